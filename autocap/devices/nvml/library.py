"""The NVML library of this process, and which GPUs it shows. Nothing here sets anything."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import pynvml

from autocap.devices.inventory import ListedDevice
from autocap.devices.nvml.state import WITHOUT_ROOT, LimitState, NvmlError, call, offered, opened
from autocap.errors import DeviceError, DeviceUnavailable
from autocap.records import CapRange

_VIRTUAL_GPU = 2  # NVML_GPU_VIRTUALIZATION_MODE_VGPU
_NO_MIG = (3, 13)  # NOT_SUPPORTED, FUNCTION_NOT_FOUND


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlGpu(ListedDevice):
    """One GPU as NVML shows it; `None` where it does not say.

    minor_number: of /dev/nvidiaN. mig: whether MIG splits it. persistence: whether the driver stays loaded, and
    the limits with it, while nobody uses the GPU.
    """

    kind: str = "nvml"
    minor_number: int | None = None
    mig: bool | None = None
    persistence: bool | None = None


def pci_address(handle: object, where: str) -> str | None:
    """Where a GPU is plugged in, as lspci -D writes it, which other programs know it by as well; `None` where it does
    not say. handle: NVML's. where: what messages call it. Raises NvmlError."""
    info = offered(f"reading the PCI address of {where}", pynvml.nvmlDeviceGetPciInfo_v3, handle)
    return None if info is None else f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"


class _Handle:
    """NVML's handle of a GPU, as ctypes takes it; found anew once NVML was opened again."""

    def __init__(self, uuid: str, found: object) -> None:
        self._uuid, self._found, self._reloads = uuid, found, opened.reloads

    @property
    def _as_parameter_(self) -> object:
        if self._reloads != opened.reloads:
            self._found, self._reloads = pynvml.nvmlDeviceGetHandleByUUID(self._uuid), opened.reloads
        return self._found


class Library:
    """NVML while it is initialised: made by `open_library`, ended by `close` or `with`.

    pause: waits for some seconds without taking a signal from anybody (time.sleep). wall_s: the clock behind the
    driver's time stamps, seconds since 1970.
    """

    def __init__(self, pause: Callable[[float], object], wall_s: Callable[[], float]) -> None:
        self.pause, self.wall_s = pause, wall_s
        self._open = True
        opened.users += 1
        self._handles: dict[str, object] = {}
        self.unreadable: tuple[str, ...] = ()  # why GPUs that the driver counts are not in the inventory

    def __enter__(self) -> "Library":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the library; no limit changes."""
        if self._open:
            self._open = False
            opened.users -= 1
            with suppress(pynvml.NVMLError):  # there is nothing left to do about it
                pynvml.nvmlShutdown()

    def inventory(self) -> tuple[NvmlGpu, ...]:
        """Every GPU that can be read, in NVML's order; `unreadable` says why others cannot. Raises NvmlError where the
        library as a whole fails."""
        driver = self.driver()
        found, unreadable = [], []
        for index in range(self.count()):
            try:
                found.append(self.gpu(index, driver))
            except NvmlError as error:  # one that is lost, or that this container may not see
                unreadable.append(str(error))
        self.unreadable = tuple(unreadable)
        return tuple(found)

    def driver(self) -> str:
        """Its version. Raises NvmlError."""
        return str(offered("reading the driver's version", pynvml.nvmlSystemGetDriverVersion) or "unknown")

    def count(self) -> int:
        """Of the GPUs that the driver shows, readable or not. Raises NvmlError."""
        return int(call("counting the GPUs", pynvml.nvmlDeviceGetCount))

    def compute_pids(self, uuid: str) -> tuple[int, ...] | None:
        """The processes that compute on a GPU, by the PIDs that the driver gives; `None` where it does not tell, as in
        some containers. Raises NvmlError."""
        handle, what = self.handle(uuid), f"listing the processes on {uuid}"
        # By version: what the name without one stands for depends on the binding.
        listed = offered(what, pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
        return None if listed is None else tuple(int(process.pid) for process in listed)

    def is_busy(self, uuid: str) -> bool | None:
        """Whether anything was computed on a GPU in the last moment; `None` where that is not to be had."""
        what, get = f"reading the utilisation of {uuid}", pynvml.nvmlDeviceGetUtilizationRates
        with suppress(DeviceError):
            return bool(call(what, get, self.handle(uuid)).gpu)
        return None

    def user_pids(self, uuid: str) -> tuple[int, ...] | None:
        """Whatever uses a GPU, by the PIDs that the driver gives: what computes, also through MPS, and what draws;
        `None` where it keeps no list of what computes. Raises NvmlError."""
        handle, what = self.handle(uuid), f"listing the processes on {uuid}"
        computing = offered(what, pynvml.nvmlDeviceGetComputeRunningProcesses_v3, handle)
        if computing is None:
            return None
        through_mps = offered(what, pynvml.nvmlDeviceGetMPSComputeRunningProcesses_v3, handle)
        drawing = offered(what, pynvml.nvmlDeviceGetGraphicsRunningProcesses_v3, handle)
        return tuple(dict.fromkeys(int(one.pid) for one in (*computing, *(through_mps or ()), *(drawing or ()))))

    def handle(self, uuid: str) -> object:
        """NVML's handle of a GPU. Raises DeviceError where there is no such GPU, NvmlError where it is lost."""
        if uuid not in self._handles:
            try:
                found = call(f"finding GPU {uuid}", pynvml.nvmlDeviceGetHandleByUUID, uuid)
            except NvmlError as error:
                if not error.absent:
                    raise
                raise DeviceError(f"there is no GPU {uuid}; `autocap devices` lists those there are") from error
            self._handles[uuid] = _Handle(uuid, found)
        return self._handles[uuid]

    def gpu(self, index: int, driver: str) -> NvmlGpu:
        """One of them. driver: its version. Raises NvmlError where it cannot be read."""
        where = f"GPU {index}"
        handle = call(f"opening {where}", pynvml.nvmlDeviceGetHandleByIndex, index)
        uuid = str(call(f"reading the UUID of {where}", pynvml.nvmlDeviceGetUUID, handle))
        name = str(offered(f"reading the name of {where}", pynvml.nvmlDeviceGetName, handle) or "NVIDIA GPU")
        mig = _is_split(handle, where)
        minor = offered(f"reading the minor number of {where}", pynvml.nvmlDeviceGetMinorNumber, handle)
        persistence = offered(f"reading the persistence mode of {where}", pynvml.nvmlDeviceGetPersistenceMode, handle)
        virtual = offered(f"reading the virtualisation of {where}", pynvml.nvmlDeviceGetVirtualizationMode, handle)
        limits = LimitState(handle, where)
        self._handles[uuid] = _Handle(uuid, handle)
        cap_range, requested_w, enforced_w = limits.cap_range(), limits.requested_w(), limits.enforced_w()
        return NvmlGpu(
            index=index,
            uuid=uuid,
            name=name,
            address=pci_address(handle, where),
            minor_number=None if minor is None else int(minor),
            mig=mig,
            cap_range=cap_range,
            requested_w=requested_w,
            enforced_w=enforced_w,
            default_w=limits.default_w(),
            obstacle=_unsupported(
                f"{where} ({name})", mig, virtual, cap_range, requested_w, enforced_w, denied=limits.denied
            ),
            persistence=None if persistence is None else bool(persistence),
            driver=driver,
        )


def _is_split(handle: object, where: str) -> bool | None:
    """Whether MIG splits a GPU: one that knows no MIG is whole, of one that keeps it from us it is not known. Raises
    NvmlError for any other failure."""
    try:
        return bool(call(f"reading the MIG mode of {where}", pynvml.nvmlDeviceGetMigMode, handle)[0] == 1)
    except NvmlError as error:
        if error.code in _NO_MIG:
            return False
        if error.absent:
            return None
        raise


def _unsupported(
    where: str,
    mig: bool | None,
    virtual: int | None,
    cap_range: CapRange | None,
    requested_w: float | None,
    enforced_w: float | None,
    *,
    denied: bool,
) -> str | None:
    """Why a GPU's limit cannot be set, as far as that shows without setting it. denied: the driver answers that we may
    not ask for limits."""
    known = "its limits cannot be read either" if enforced_w is None else f"only the {enforced_w:g} W enforced is shown"
    if mig:
        return f"{where} is split into MIG instances, which share one power limit; switch MIG off, or pass --observe"
    if cap_range is None or requested_w is None:
        if virtual == _VIRTUAL_GPU:
            return f"{where} is a virtual GPU, whose power limit belongs to its host ({known}); pass --observe"
        if denied:
            return f"the driver does not let us read which power limits {where} takes ({known}): {WITHOUT_ROOT}"
        others = " and virtual GPUs" if virtual is None else ""  # which it may be, for all that is told
        return f"{where} has no power limit to set, as on many laptops{others} ({known}); pass --observe to measure it"
    if cap_range.min_w == cap_range.max_w:
        return f"{where} accepts no limit but {cap_range.min_w:g} W; pass --observe to measure it"
    return None


def open_library(*, pause: Callable[[float], object] = time.sleep, wall_s: Callable[[], float] = time.time) -> Library:
    """Initialise NVML in this process. Raises DeviceUnavailable, with what to do, where there is no working driver."""
    try:
        call("opening NVML", pynvml.nvmlInit)
    except NvmlError as error:
        raise DeviceUnavailable(f"no NVIDIA GPU can be used: {error}") from error
    return Library(pause, wall_s)
