"""The power limits of NVIDIA GPUs: read back, which needs no rights, and set, in whole milliwatts, with a reason where
one does not hold.

Only the guardian, the watchdog and `autocap restore` hold the setter.
"""

import math
from collections.abc import Callable
from typing import Protocol

import pynvml

from autocap.devices.base import LimitPort, LimitVerifier, require_inside
from autocap.devices.nvml.library import Library, open_library
from autocap.devices.nvml.state import (
    NO_PERMISSION,
    WITHOUT_ROOT,
    LimitState,
    NvmlError,
    call,
    offered,
    opened,
    to_milliwatts,
)
from autocap.errors import (
    LimitClamped,
    LimitIgnored,
    LimitNotEnforced,
    LimitNotPermitted,
    LimitOutside,
    LimitOvertaken,
    LimitRefused,
)
from autocap.job.processes import ProcessId

_INVALID_ARGUMENT, _NOT_SUPPORTED = 2, 3
_TRIES = 2
_REQUEST_W, _ENFORCED_W = 0.01, 0.5  # how far a limit may read off: a request is a register, the rest may be rounded
_LAG_S = 0.3  # until a limit is enforced, at most; short enough for eight GPUs between two heartbeats of the guardian
_LOOK_S = 0.010
_OTHERS = "another tool may hold it (nvidia-smi, DCGM, the board's controller), so nothing is tuned"


class HeldLimits(LimitVerifier):
    """The limits of any GPU of this machine, by UUID, as they read.

    requested_alone: what counts is the requested limit; for putting limits back, where an outside limiter that holds
    less than was requested is no failure.
    """

    def __init__(self, library: Library, *, requested_alone: bool = False) -> None:
        self._library, self._requested_alone = library, requested_alone
        self._gpus: dict[str, LimitState] = {}

    def gpu(self, uuid: str) -> LimitState:
        """Raises DeviceError where there is no such GPU."""
        if uuid not in self._gpus:
            handle = self._library.handle(uuid)
            index = offered(f"reading the index of {uuid}", pynvml.nvmlDeviceGetIndex, handle)
            where = uuid if index is None else f"GPU {index}"
            self._gpus[uuid] = LimitState(handle, where)
        return self._gpus[uuid]

    def requested_w(self, uuid: str) -> float | None:
        """The limit last requested, by anybody, watts; `None` where the GPU does not say. Raises DeviceError."""
        return self.gpu(uuid).requested_w()

    @property
    def reloads(self) -> int:
        """As LimitPort has it."""
        return opened.reloads

    def default_w(self, uuid: str) -> float | None:
        """As LimitPort has it."""
        return self.gpu(uuid).default_w()

    def verify(self, uuid: str, cap_w: float) -> None:
        """See that a limit which was just requested holds. Raises LimitRefused where it does not, NvmlError."""
        problem = self.problem(self.gpu(uuid), cap_w, None)
        if problem is not None:
            raise problem

    def refusal(self, gpu: LimitState, cap_w: float, before_w: float | None) -> LimitRefused | None:
        """Why a limit that was just requested was not taken; `None` when it was. before_w: the limit requested before,
        where it is known."""
        asked = f"cap {cap_w:g} W"
        requested_w = gpu.requested_w()
        if requested_w is not None and not _same_request(requested_w, cap_w):
            if before_w is not None and _same_request(requested_w, before_w):
                stays = f"{asked} was ignored by {gpu.where}, which stays at {requested_w:g} W; {_OTHERS}"
                return LimitIgnored(stays, requested_w)
            return LimitClamped(f"{asked} was clamped by {gpu.where} to {requested_w:g} W; {_OTHERS}", requested_w)
        return None

    def problem(self, gpu: LimitState, cap_w: float, before_w: float | None) -> LimitRefused | None:
        """The same, and why one that was taken does not hold."""
        refusal = self.refusal(gpu, cap_w, before_w)
        if refusal is not None or self._requested_alone:
            return refusal
        asked = f"cap {cap_w:g} W"
        enforced_w = self._enforced_w(gpu, cap_w)
        if enforced_w is None or _is_enforced(enforced_w, cap_w):
            return None
        requested_w = gpu.requested_w()
        if requested_w is not None and not _same_request(requested_w, cap_w):  # it was ours a moment ago
            return LimitOvertaken(
                f"{asked} was requested of {gpu.where}, and at once somebody else requested {requested_w:g} W",
                requested_w,
            )
        if enforced_w < cap_w:
            return LimitNotEnforced(
                f"{asked} was requested of {gpu.where}, but {enforced_w:g} W is enforced; something outside autocap "
                f"limits it, so pass --max-cap {enforced_w:g} or less",
                enforced_w,
            )
        return LimitRefused(f"{asked} was requested of {gpu.where}, but {enforced_w:g} W is still enforced; {_OTHERS}")

    def _enforced_w(self, gpu: LimitState, cap_w: float) -> float | None:
        """The enforced limit, once it is the one asked for or has had time to become it."""
        for _ in range(round(_LAG_S / _LOOK_S)):
            enforced_w = gpu.enforced_w()
            if enforced_w is None or _is_enforced(enforced_w, cap_w):
                return enforced_w
            self._library.pause(_LOOK_S)
        return gpu.enforced_w()


def _same_request(a_w: float, b_w: float) -> bool:
    """Whether two requested limits, watts, are the same."""
    return abs(a_w - b_w) < _REQUEST_W


def _is_enforced(enforced_w: float, cap_w: float) -> bool:
    return abs(enforced_w - cap_w) < _ENFORCED_W


Look = Callable[[LimitState, float, float | None], LimitRefused | None]


class Requester(Protocol):
    """Has a limit requested: through NVML, or by a service that may."""

    def __call__(self, gpu: LimitState, cap_w: float) -> None:
        """Raises LimitRefused, or NvmlError for what may go well the next time."""


class NvmlLimits(HeldLimits, LimitPort):
    """The same, to be set.

    alone: the library is closed with this port, and what counts is the requested limit; for putting limits back.
    request: by whom limits are requested.
    """

    def __init__(self, library: Library, *, alone: bool = False, request: Requester | None = None) -> None:
        super().__init__(library, requested_alone=alone)
        self._request = request or request_limit

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        """Request a limit, watts, and see that it holds; retried once, unless another limit stands there by then.

        Raises LimitRefused where it is outside the range, not permitted, not supported, ignored, clamped, held lower by
        something outside autocap, or overtaken by somebody else's; NvmlError where the GPU is lost.
        """
        self._set(uuid, cap_w, self.problem)

    def request_w(self, uuid: str, cap_w: float) -> None:
        """As LimitPort has it."""
        self._set(uuid, cap_w, self.refusal)

    def is_enforced(self, uuid: str, cap_w: float) -> bool:
        """As LimitPort has it."""
        return self.problem(self.gpu(uuid), cap_w, None) is None

    def _set(self, uuid: str, cap_w: float, look: Look) -> None:
        gpu = self.gpu(uuid)
        require_inside(cap_w, *(gpu.bounds_w() or (0.0, math.inf)), gpu.where)
        if cap_w == math.inf:
            raise LimitRefused(f"cap {cap_w:g} W is no power limit; choose a number of watts")
        before_w = gpu.requested_w()
        problem: LimitRefused | NvmlError | None = None
        for attempt in range(_TRIES):
            try:
                if attempt > 0 and _is_third(gpu, cap_w, before_w):
                    break  # a clamp would come again, and somebody else's limit must not be written over
                self._request(gpu, cap_w)
                problem = look(gpu, cap_w, before_w)
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
        if self._requested_alone:
            self._library.close()


def request_limit(gpu: LimitState, cap_w: float) -> None:
    """Request a limit through NVML, as `Requester` has it."""
    what = f"setting {gpu.where} to {cap_w:g} W"
    try:
        call(what, pynvml.nvmlDeviceSetPowerManagementLimit, gpu.handle, to_milliwatts(cap_w))
    except NvmlError as error:
        if error.code == NO_PERMISSION:
            raise LimitNotPermitted(
                f"cap {cap_w:g} W on {gpu.where} was not permitted: setting a power limit needs root or "
                f"CAP_SYS_ADMIN; {WITHOUT_ROOT}"
            ) from error
        if error.code == _INVALID_ARGUMENT:  # as the range was asked for before
            raise LimitOutside(f"{gpu.where} refuses {cap_w:g} W, which its driver says it takes", cap_w) from error
        if error.code == _NOT_SUPPORTED:
            raise LimitRefused(
                f"{gpu.where} takes no power limit (laptops, virtual GPUs and MIG do not); pass --observe"
            ) from error
        raise


def _is_third(gpu: LimitState, cap_w: float, before_w: float | None) -> bool:
    """Whether neither the limit that was there before nor the one asked for is requested."""
    requested_w = gpu.requested_w()
    if requested_w is None or before_w is None:
        return False
    return not _same_request(requested_w, cap_w) and not _same_request(requested_w, before_w)


def limits_from_outside(job: ProcessId | None) -> NvmlLimits:
    """For the watchdog and `autocap restore`; the job does not matter. Raises DeviceUnavailable without a driver."""
    return NvmlLimits(open_library(), alone=True)
