"""NVML's functions, called so that every failure has a name and says what to do; and what the driver shows of one GPU:
its field values, several in one call, each with a return code and a stamp of its own (NVML reference, "Field Value
Enums"; all of power are milliwatts), and its power limits, in watts."""

import ctypes
from collections.abc import Callable, Sequence
from typing import NamedTuple, ParamSpec, TypeVar

import pynvml

from autocap.errors import DeviceError
from autocap.job.own_command import helper_advice, sudo_advice
from autocap.records import CapRange

P = ParamSpec("P")
T = TypeVar("T")

WITHOUT_ROOT = (
    f"{sudo_advice()}, {helper_advice()}, start the container with --cap-add SYS_ADMIN, or pass --observe to measure "
    "without setting"
)

# Every return code that NVML has: its name there, and what it means with what to do about it.
ERRORS: dict[int, tuple[str, str]] = {
    1: ("UNINITIALIZED", "the NVIDIA driver was unloaded, and cannot be opened again; load it (modprobe nvidia)"),
    2: ("INVALID_ARGUMENT", "the driver does not take this value; update the driver, or report this to autocap"),
    3: ("NOT_SUPPORTED", "this GPU or its driver does not offer it; autocap does without where it can"),
    4: ("NO_PERMISSION", f"it needs root or CAP_SYS_ADMIN; {WITHOUT_ROOT}"),
    5: ("ALREADY_INITIALIZED", "the NVML library is in use in this process already; report this to autocap"),
    6: ("NOT_FOUND", "the driver has no such thing, perhaps because it is not ready yet; look at nvidia-smi"),
    7: ("INSUFFICIENT_SIZE", "more processes appeared than there was room for; try again"),
    8: ("INSUFFICIENT_POWER", "the GPU's external power is not connected; check its power cables"),
    9: ("DRIVER_NOT_LOADED", "the NVIDIA kernel driver is not loaded; load it (modprobe nvidia), or reboot"),
    10: ("TIMEOUT", "the driver did not answer in time; if it goes on, look at the kernel log (dmesg, Xid)"),
    11: ("IRQ_ISSUE", "the kernel has an interrupt problem with the GPU; look at the kernel log (dmesg)"),
    12: (
        "LIBRARY_NOT_FOUND",
        "libnvidia-ml.so.1 is missing; install the NVIDIA driver, or give the container its GPUs",
    ),
    13: ("FUNCTION_NOT_FOUND", "the driver is too old for this; update it, autocap does without where it can"),
    14: ("CORRUPTED_INFOROM", "the GPU's infoROM is corrupted; have the card serviced"),
    15: ("GPU_IS_LOST", "the GPU has fallen off the bus; look at the kernel log (dmesg, Xid 79), it needs a reboot"),
    16: ("RESET_REQUIRED", "the GPU must be reset before it can be used again; see nvidia-smi --gpu-reset"),
    17: ("OPERATING_SYSTEM", "the operating system or the control group blocked it; give the container its devices"),
    18: ("LIB_RM_VERSION_MISMATCH", "library and kernel driver differ in version, as after an update; reboot"),
    19: ("IN_USE", "somebody else is using the GPU for something exclusive; try again later"),
    20: ("MEMORY", "there is not enough memory; free some"),
    21: ("NO_DATA", "the driver has no data for it at the moment; try again"),
    22: ("VGPU_ECC_NOT_SUPPORTED", "this operation is not available on a virtual GPU with ECC"),
    23: ("INSUFFICIENT_RESOURCES", "the GPU or its driver has run out of a resource; end other users of it"),
    24: ("FREQ_NOT_SUPPORTED", "this frequency is not supported"),
    25: ("ARGUMENT_VERSION_MISMATCH", "driver and binding differ in version; update nvidia-ml-py or the driver"),
    26: ("DEPRECATED", "the driver no longer offers this; update autocap"),
    27: ("NOT_READY", "the GPU is not ready yet; try again"),
    28: ("GPU_NOT_FOUND", "there is no such GPU any more; look at nvidia-smi"),
    29: ("INVALID_STATE", "the GPU is in a state that does not allow it; look at nvidia-smi"),
    30: ("RESET_TYPE_NOT_SUPPORTED", "this kind of reset is not supported"),
    999: ("UNKNOWN", "the driver failed without saying why; look at the kernel log (dmesg, Xid)"),
}
_UNLISTED = ("UNLISTED", "this code is newer than autocap; look it up in NVIDIA's nvmlReturn_t and update autocap")

UNINITIALIZED, NO_PERMISSION = 1, 4
# After these nothing more is to be had from the GPU in this process.
_LOST = frozenset({1, 9, 12, 15, 16, 18, 28})
# These mean that there is no such thing here, now and later. NO_PERMISSION is one of them for whatever only reads.
_ABSENT = frozenset({2, 3, 4, 6, 13, 17, 25, 26})


class NvmlError(DeviceError):
    """An NVML function failed.

    code: its nvmlReturn_t. name: what NVML calls that.
    """

    def __init__(self, what: str, code: int) -> None:
        self.code = code
        self.name, self.advice = ERRORS.get(code, _UNLISTED)
        super().__init__(f"{what} failed with {self.name} ({code}): {self.advice}")

    @property
    def lost(self) -> bool:
        """Whether the GPU, or the way to it, is gone for good."""
        return self.code in _LOST

    @property
    def absent(self) -> bool:
        """Whether this GPU does not offer what was asked for, so that asking again is of no use."""
        return self.code in _ABSENT


class _Opened:
    """NVML in this process, which all of its users share. users: those that have it open. reloads: how often it was
    opened again for them, as the driver had been unloaded and loaded meanwhile."""

    def __init__(self) -> None:
        self.users = self.reloads = 0

    def again(self, error: pynvml.NVMLError) -> bool:
        """After such an error: whether it was opened again, so that the same may be asked once more."""
        if error.value != UNINITIALIZED or self.users == 0:
            return False
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError:
            return False
        self.reloads += 1
        return True


opened = _Opened()


def call(what: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The function's result. what: what is being done, for the message. Raises NvmlError."""
    try:
        return asked(function, *args, **kwargs)
    except pynvml.NVMLError as error:
        raise NvmlError(what, error.value) from error


def asked(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The function's result, also once NVML had to be opened again first. Raises pynvml.NVMLError."""
    try:
        return function(*args, **kwargs)
    except pynvml.NVMLError as error:
        if not opened.again(error):
            raise
    return function(*args, **kwargs)


def offered(what: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """The function's result, or `None` where this GPU does not offer it. Raises NvmlError for any other failure."""
    try:
        return call(what, function, *args, **kwargs)
    except NvmlError as error:
        if error.absent:
            return None
        raise


INSTANT_POWER, ENFORCED_LIMIT, REQUESTED_LIMIT = 186, 190, 192
GPU_SCOPE, MODULE_SCOPE = 0, 1

# nvmlValueType_t: which member of the union holds the value.
_MEMBERS = {0: "dVal", 1: "uiVal", 2: "ulVal", 3: "ullVal", 4: "sllVal", 5: "siVal", 6: "usVal"}


class _Plain(ctypes.Structure):
    """pynvml's structure without its Python code at every access, which twenty samples a second would feel."""

    _fields_ = pynvml.c_nvmlFieldValue_t._fields_


class FieldValue(NamedTuple):
    """One field as answered. code: its nvmlReturn_t, 0 where there is a value. stamp_us: the driver's time stamp,
    microseconds since 1970 by the CPU's clock, 0 where it gave none."""

    value: float
    code: int
    stamp_us: int


def read_fields(what: str, handle: object, fields: Sequence[tuple[int, int]]) -> tuple[FieldValue, ...]:
    """Several fields of one GPU, each (field, scope), in their order. Raises NvmlError where the call itself fails."""
    answers = call(what, pynvml.nvmlDeviceGetFieldValues, handle, list(fields))
    return tuple(
        FieldValue(
            value=float(getattr(answer.value, _MEMBERS.get(answer.valueType, "ullVal"))),
            code=int(answer.nvmlReturn),
            stamp_us=int(answer.timestamp),
        )
        for answer in (_Plain * len(answers)).from_buffer(answers)
    )


def to_watts(milliwatts: float) -> float:
    """The nearest float to that many milliwatts, which `to_milliwatts` takes back exactly."""
    return milliwatts / 1000


def to_milliwatts(watts: float) -> int:
    return round(watts * 1000)


class LimitState:
    """Reads limits, afresh at each call. handle: NVML's. where: what messages call the GPU.

    All methods give `None` where the GPU does not say, and raise NvmlError for any other failure.
    """

    def __init__(self, handle: object, where: str) -> None:
        self.handle, self.where = handle, where
        self.denied = False  # the driver keeps one of them from us

    def requested_w(self) -> float | None:
        """The limit last requested, by anybody. Field 192 is what was asked for, also where less is enforced."""
        return self._limit("requested", pynvml.nvmlDeviceGetPowerManagementLimit, REQUESTED_LIMIT)

    def enforced_w(self) -> float | None:
        """The limit that holds after all limiters."""
        return self._limit("enforced", pynvml.nvmlDeviceGetEnforcedPowerLimit, ENFORCED_LIMIT)

    def default_w(self) -> float | None:
        """The limit the GPU boots with."""
        return self._limit("default", pynvml.nvmlDeviceGetPowerManagementDefaultLimit)

    def bounds_w(self) -> tuple[float, float] | None:
        """The lowest and highest limit that the GPU accepts."""
        what = f"reading the power limit range of {self.where}"
        bounds = self._offered(what, pynvml.nvmlDeviceGetPowerManagementLimitConstraints)
        return None if bounds is None else (to_watts(bounds[0]), to_watts(bounds[1]))

    def cap_range(self) -> CapRange | None:
        """What the GPU accepts. One that does not tell its default is taken to boot with its highest limit."""
        bounds_w, default_w = self.bounds_w(), self.default_w()
        if bounds_w is None or not 0 < bounds_w[0] <= bounds_w[1]:
            return None
        low_w, high_w = bounds_w
        default_w = high_w if default_w is None else default_w
        return CapRange(min_w=low_w, max_w=high_w, default_w=min(max(default_w, low_w), high_w))

    def _limit(self, which: str, getter: Callable[[object], int], field: int | None = None) -> float | None:
        """One limit: its field where it has one that says something, else by NVML's older function."""
        what = f"reading the {which} power limit of {self.where}"
        limit_w = None if field is None else self._field(what, field)
        if limit_w is not None:
            return limit_w
        limit_mw = self._offered(what, getter)
        return to_watts(limit_mw) if limit_mw else None

    def _offered(self, what: str, getter: Callable[[object], T]) -> T | None:
        try:
            return call(what, getter, self.handle)
        except NvmlError as error:
            self.denied |= error.code == NO_PERMISSION
            if error.absent:
                return None
            raise

    def _field(self, what: str, field: int) -> float | None:
        try:
            (answer,) = read_fields(what, self.handle, [(field, GPU_SCOPE)])
            if answer.code != 0:
                raise NvmlError(what, answer.code)
        except NvmlError as error:
            if error.absent:
                return None
            raise
        return to_watts(answer.value) if answer.value > 0 else None
