"""What the driver shows of one GPU: its field values, several in one call, each with a return code and a stamp of its
own (NVML reference, "Field Value Enums"; all of power are milliwatts), and its power limits, in watts."""

import ctypes
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

import pynvml

from autocap.devices.nvml.calls import NO_PERMISSION, NvmlError, call
from autocap.records import CapRange

T = TypeVar("T")

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
