"""Setting power limits of NVIDIA GPUs: in whole milliwatts, read back, and with a reason where one does not hold.

Only the guardian, the watchdog and `autocap restore` hold one of these.
"""

import math
from collections.abc import Callable
from typing import Protocol

import pynvml

from autocap.devices.base import EnforcingPort, require_inside
from autocap.devices.nvml.calls import NO_PERMISSION, WITHOUT_ROOT, NvmlError, call
from autocap.devices.nvml.held import HeldLimits, same_request
from autocap.devices.nvml.library import Library, open_library
from autocap.devices.nvml.state import LimitState, to_milliwatts
from autocap.errors import LimitNotPermitted, LimitRefused
from autocap.job.processes import ProcessId

_NOT_SUPPORTED = 3
_TRIES = 2


Look = Callable[[LimitState, float, float | None], LimitRefused | None]


class Requester(Protocol):
    """Has a limit requested: through NVML, or by a service that may."""

    def __call__(self, gpu: LimitState, cap_w: float) -> None:
        """Raises LimitRefused, or NvmlError for what may go well the next time."""


class NvmlLimits(EnforcingPort):
    """The limits of any GPU of this machine, by UUID.

    alone: the library is closed with this port, and what counts is the requested limit; for putting limits back.
    request: by whom limits are requested.
    """

    def __init__(self, library: Library, *, alone: bool = False, request: Requester | None = None) -> None:
        self._library, self._alone = library, alone
        self._held = HeldLimits(library, requested_alone=alone)
        self._request = request or request_limit

    def requested_w(self, uuid: str) -> float | None:
        """The limit last requested, by anybody, watts; `None` where the GPU does not say. Raises DeviceError."""
        return self._held.requested_w(uuid)

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        """Request a limit, watts, and see that it holds; retried once, unless another limit stands there by then.

        Raises LimitRefused where it is outside the range, not permitted, not supported, ignored, clamped, held lower by
        something outside autocap, or overtaken by somebody else's; NvmlError where the GPU is lost.
        """
        self._set(uuid, cap_w, self._held.problem)

    def request_w(self, uuid: str, cap_w: float) -> None:
        """As `EnforcingPort` has it."""
        self._set(uuid, cap_w, self._held.refusal)

    def is_enforced(self, uuid: str, cap_w: float) -> bool:
        """As `EnforcingPort` has it."""
        return self._held.problem(self._held.gpu(uuid), cap_w, None) is None

    def _set(self, uuid: str, cap_w: float, look: Look) -> None:
        gpu = self._held.gpu(uuid)
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
        if self._alone:
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
    return not same_request(requested_w, cap_w) and not same_request(requested_w, before_w)


def limits_from_outside(job: ProcessId | None) -> NvmlLimits:
    """For the watchdog and `autocap restore`; the job does not matter. Raises DeviceUnavailable without a driver."""
    return NvmlLimits(open_library(), alone=True)
