"""Setting power limits through NVML: in whole milliwatts, read back, and with a reason where one does not hold.

Only the guardian, the watchdog and `autocap restore` hold one of these.
"""

import math
from dataclasses import dataclass

import pynvml

from autocap.devices.base import LimitPort, require_inside
from autocap.devices.nvml.calls import WITHOUT_ROOT, NvmlError, call, offered
from autocap.devices.nvml.library import Library, open_library
from autocap.devices.nvml.state import LimitState, to_milliwatts
from autocap.errors import LimitNotEnforced, LimitOvertaken, LimitRefused
from autocap.job.processes import ProcessId

_NO_PERMISSION, _NOT_SUPPORTED = 4, 3
_TRIES = 2
_REQUEST_W, _ENFORCED_W = 0.01, 0.5  # how far a limit may read off: a request is a register, the rest may be rounded
_LAG_S = 0.3  # until a limit is enforced, at most; short enough for eight GPUs between two heartbeats of the guardian
_LOOK_S = 0.010


@dataclass(frozen=True, slots=True, kw_only=True)
class _Gpu:
    handle: object
    where: str
    state: LimitState


class NvmlLimits(LimitPort):
    """The limits of any GPU of this machine, by UUID.

    alone: the library is closed with this port, and what counts is the requested limit; for putting limits back, where
    an outside limiter that holds less than was requested is no failure.
    """

    def __init__(self, library: Library, *, alone: bool = False) -> None:
        self._library, self._alone = library, alone
        self._gpus: dict[str, _Gpu] = {}

    def requested_w(self, uuid: str) -> float | None:
        """The limit last requested, by anybody, watts; `None` where the GPU does not say. Raises DeviceError."""
        return self._gpu(uuid).state.requested_w()

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        """Request a limit, watts, and see that it holds; retried once, unless another limit stands there by then.

        Raises LimitRefused where it is outside the range, not permitted, not supported, ignored, clamped, held lower by
        something outside autocap, or overtaken by somebody else's; NvmlError where the GPU is lost.
        """
        gpu = self._gpu(uuid)
        require_inside(cap_w, *(gpu.state.bounds_w() or (0.0, math.inf)), gpu.where)
        if cap_w == math.inf:
            raise LimitRefused(f"cap {cap_w:g} W is no power limit; choose a number of watts")
        before_w = gpu.state.requested_w()
        problem: LimitRefused | NvmlError | None = None
        for attempt in range(_TRIES):
            try:
                if attempt > 0 and self._is_third(gpu, cap_w, before_w):
                    break  # a clamp would come again, and somebody else's limit must not be written over
                self._write(gpu, cap_w)
                problem = self._problem(gpu, cap_w, before_w)
            except NvmlError as error:
                if error.lost:
                    raise
                problem = error
            if problem is None:
                return
        assert problem is not None  # or it would have returned
        if isinstance(problem, LimitRefused):
            raise problem
        raise LimitRefused(str(problem)) from problem

    def close(self) -> None:
        if self._alone:
            self._library.close()

    def _write(self, gpu: _Gpu, cap_w: float) -> None:
        what = f"setting {gpu.where} to {cap_w:g} W"
        try:
            call(what, pynvml.nvmlDeviceSetPowerManagementLimit, gpu.handle, to_milliwatts(cap_w))
        except NvmlError as error:
            if error.code == _NO_PERMISSION:
                raise LimitRefused(
                    f"cap {cap_w:g} W on {gpu.where} was not permitted: setting a power limit needs root or "
                    f"CAP_SYS_ADMIN; {WITHOUT_ROOT}"
                ) from error
            if error.code == _NOT_SUPPORTED:
                raise LimitRefused(
                    f"{gpu.where} takes no power limit (laptops, virtual GPUs and MIG do not); pass --observe"
                ) from error
            raise

    def _problem(self, gpu: _Gpu, cap_w: float, before_w: float | None) -> LimitRefused | None:
        """Why a limit that was just written does not hold; `None` when it does."""
        asked = f"cap {cap_w:g} W"
        requested_w = gpu.state.requested_w()
        if requested_w is not None and not _same(requested_w, cap_w):
            if before_w is not None and _same(requested_w, before_w):
                return LimitRefused(f"{asked} was ignored by {gpu.where}, which stays at {requested_w:g} W; {_OTHERS}")
            return LimitRefused(f"{asked} was clamped by {gpu.where} to {requested_w:g} W; {_OTHERS}")
        if self._alone:
            return None
        enforced_w = self._enforced_w(gpu, cap_w)
        if enforced_w is None or _same(enforced_w, cap_w, _ENFORCED_W):
            return None
        requested_w = gpu.state.requested_w()
        if requested_w is not None and not _same(requested_w, cap_w):  # it was ours a moment ago
            return LimitOvertaken(
                f"{asked} was requested of {gpu.where}, and at once somebody else requested {requested_w:g} W",
                requested_w,
            )
        if enforced_w < cap_w:
            return LimitNotEnforced(
                f"{asked} was requested of {gpu.where}, but {enforced_w:g} W is enforced; something outside autocap "
                f"limits it, so pass --max-cap {enforced_w:g} or less"
            )
        return LimitRefused(f"{asked} was requested of {gpu.where}, but {enforced_w:g} W is still enforced; {_OTHERS}")

    def _is_third(self, gpu: _Gpu, cap_w: float, before_w: float | None) -> bool:
        """Whether neither the limit that was there before nor the one asked for is requested."""
        requested_w = gpu.state.requested_w()
        if requested_w is None or before_w is None:
            return False
        return not _same(requested_w, cap_w) and not _same(requested_w, before_w)

    def _enforced_w(self, gpu: _Gpu, cap_w: float) -> float | None:
        """The enforced limit, once it is the one asked for or has had time to become it."""
        for _ in range(round(_LAG_S / _LOOK_S)):
            enforced_w = gpu.state.enforced_w()
            if enforced_w is None or _same(enforced_w, cap_w, _ENFORCED_W):
                return enforced_w
            self._library.pause(_LOOK_S)
        return gpu.state.enforced_w()

    def _gpu(self, uuid: str) -> _Gpu:
        if uuid not in self._gpus:
            handle = self._library.handle(uuid)
            index = offered(f"reading the index of {uuid}", pynvml.nvmlDeviceGetIndex, handle)
            where = uuid if index is None else f"GPU {index}"
            self._gpus[uuid] = _Gpu(handle=handle, where=where, state=LimitState(handle, where))
        return self._gpus[uuid]


_OTHERS = "another tool may hold it (nvidia-smi, DCGM, the board's controller), so nothing is tuned"


def _same(a_w: float, b_w: float, resolution_w: float = _REQUEST_W) -> bool:
    return abs(a_w - b_w) < resolution_w


def limits_from_outside(job: ProcessId | None) -> NvmlLimits:
    """For the watchdog and `autocap restore`; the job does not matter. Raises DeviceUnavailable without a driver."""
    return NvmlLimits(open_library(), alone=True)
