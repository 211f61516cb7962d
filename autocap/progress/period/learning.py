"""What is learned at the limits found on arrival, once and for all: the period, and the waveform of a cycle."""

from autocap.progress.period.bound import Draw
from autocap.progress.period.detect import detect
from autocap.progress.period.estimate import Floats, PeriodEstimate, Template, Verdict
from autocap.progress.period.looking import FEWEST_CYCLES, MANY_CYCLES
from autocap.progress.period.proof import Tried, Unproven, agree
from autocap.progress.period.ratio import lock
from autocap.progress.period.signals import CapSignals

_LOCK_ERROR = 0.01
_STILL_IT = 0.05  # of a period that was proven: what is found so near to it, where it was lost, is the same
NOT_FOLLOWED = "the pattern cannot be followed through the readings"

Signal = tuple[Floats, Floats, float, float]  # times, watts, update and window


class Learner:
    """template: what was learned, `None` before. device: on which; at: the limits that held then, watts; clock_hz: the
    SM clock then. unproven: what only a trial at another cap can prove. refuted: why it is not the job's, for good."""

    def __init__(self) -> None:
        self.template: Template | None = None
        self.device: int | None = None
        self.at: tuple[float | None, ...] = ()
        self.clock_hz: float | None = None
        self.unproven = Unproven()
        self.refuted: str | None = None
        self._seen_s: float | None = None  # the period that was seen last, proven or not
        self._proven_s: float | None = None  # the period that was proven last
        self._suspected_s: float | None = None  # the period that was learned when the job was taken for another one

    @property
    def known_s(self) -> float | None:
        """The period that is looked for, proven or not, seconds."""
        known = self.template or self.unproven.template
        return None if known is None else known.period_s

    def forget(self) -> None:
        """It is another one by now, or looks otherwise."""
        self.template = self.device = self._seen_s = None

    def suspect(self, contradiction: str | None) -> bool:
        """What was learned does not show at another cap. Whether that may be as the job is another one, so that all is
        to be learned anew. Where that was done before, and it was the same one, it is not: then the cap hides it; or,
        by a contradiction, it never was the job's own."""
        assert self.template is not None
        is_new = self._suspected_s is None or abs(self.template.period_s / self._suspected_s - 1.0) > _STILL_IT
        if is_new:
            self._suspected_s = self.template.period_s
        elif contradiction is not None:
            self.refuted = contradiction
        return is_new

    def try_out(self, signals: CapSignals, signal: Signal, arrival: tuple[float | None, ...]) -> None:
        """See at another cap whether a period that is not proven is the job's own. arrival: limits, watts."""
        tried = self.unproven.template
        if tried is None:
            return
        found, times = self.unproven.tried_with(*signal[:2], signals.clock_hz)
        if found is Tried.PROVEN:
            self.template, self.at = tried, arrival
            self._proven_s = tried.period_s
            self.clock_hz = self.unproven.clock_hz
        elif found is Tried.REFUTED:
            self.refuted = (
                f"the period of {tried.period_s:.3f} s went to {times or 0.0:.2f} times its length with the cap: "
                "it is not the job's own cycle"
            )

    def look(
        self,
        signals: CapSignals,
        signal: Signal,
        device: int,
        caps: tuple[float | None, ...],
        draw: Draw | None,
        *,
        at_first: bool,
    ) -> tuple[PeriodEstimate, str | None]:
        """What the detector sees, and why it is not learned, `None` where it is. device: whose signal it is. at_first:
        whether the limits, caps, are those found on arrival."""
        t_s, power_w, update_s, window_s = signal
        estimate = detect(
            t_s,
            power_w,
            update_s=update_s,
            window_s=window_s,
            window_off=signals.window_off,
            counted=signals.counter(device),
            witnesses=signals.witnesses(device),
            draw=draw,
            load=signals.load,
        )
        before_s = self._seen_s
        if estimate.verdict is Verdict.PERIODIC:  # a disturbed window does not undo what one before it showed
            self._seen_s = estimate.period_s
        trouble = _doubt(estimate, before_s, self._proven_s)
        if trouble is None:
            self.template = lock(t_s, power_w, estimate, update_s=update_s, window_s=window_s)
            trouble = NOT_FOLLOWED if self.template is None else None
        elif estimate.triable and at_first:
            pattern = lock(t_s, power_w, estimate, update_s=update_s, window_s=window_s)
            if pattern is not None and _is_known(pattern.cycles, pattern.rel_stderr):
                self.unproven.consider(pattern, signals.clock_hz)
                self.device = device
        if self.template is not None:
            self._proven_s = self.template.period_s
            self.device, self.at, self.clock_hz = device, caps, signals.clock_hz
        return estimate, trouble


def _doubt(estimate: PeriodEstimate, before_s: float | None, proven_s: float | None) -> str | None:
    """Why an estimate must not drive a search; `None` when it may. proven_s: a period of this job that was proven."""
    found_s = estimate.period_s or 0.0
    known = estimate.open and proven_s is not None and abs(found_s / proven_s - 1.0) < _STILL_IT
    if estimate.verdict is not Verdict.PERIODIC and not known:
        return f"no period in the power signal ({estimate.verdict.value}): {estimate.reason}"
    if not estimate.verified and not known:
        return f"the period of {estimate.period_s:.3f} s is not proven: {estimate.reason}"
    if not _is_known(estimate.cycles, estimate.rel_stderr or 1.0):
        return f"the period of {estimate.period_s:.3f} s is not known well enough yet"
    if estimate.cycles < MANY_CYCLES and (before_s is None or not agree(found_s, before_s)):
        return f"the period of {estimate.period_s:.3f} s was not found a second time yet"
    return None


def _is_known(cycles: float, rel_stderr: float) -> bool:
    """Whether a period is known well enough to be followed."""
    return cycles >= FEWEST_CYCLES and rel_stderr <= _LOCK_ERROR
