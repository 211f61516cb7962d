"""Whether a power limit that was requested holds: read back from NVML, which needs no rights, whoever requested it."""

import pynvml

from autocap.devices.base import LimitVerifier
from autocap.devices.nvml.calls import offered
from autocap.devices.nvml.library import Library
from autocap.devices.nvml.state import LimitState
from autocap.errors import LimitClamped, LimitIgnored, LimitNotEnforced, LimitOvertaken, LimitRefused

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
        if requested_w is not None and not same_request(requested_w, cap_w):
            if before_w is not None and same_request(requested_w, before_w):
                return LimitIgnored(f"{asked} was ignored by {gpu.where}, which stays at {requested_w:g} W; {_OTHERS}")
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
        if requested_w is not None and not same_request(requested_w, cap_w):  # it was ours a moment ago
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

    def _enforced_w(self, gpu: LimitState, cap_w: float) -> float | None:
        """The enforced limit, once it is the one asked for or has had time to become it."""
        for _ in range(round(_LAG_S / _LOOK_S)):
            enforced_w = gpu.enforced_w()
            if enforced_w is None or _is_enforced(enforced_w, cap_w):
                return enforced_w
            self._library.pause(_LOOK_S)
        return gpu.enforced_w()


def same_request(a_w: float, b_w: float) -> bool:
    """Whether two requested limits, watts, are the same."""
    return abs(a_w - b_w) < _REQUEST_W


def _is_enforced(enforced_w: float, cap_w: float) -> bool:
    return abs(enforced_w - cap_w) < _ENFORCED_W
