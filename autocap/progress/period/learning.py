"""What is learned at the limits found on arrival, once and for all: the period, and the waveform of a cycle.

Readings are looked at rarely while nothing is known, which is when a look costs most; sooner where a pattern shows that
more readings may make known, which is waited for.
"""

from autocap.config import PERIOD_AWAITED_SECONDS, PERIOD_WITHIN_SECONDS
from autocap.progress import NEVER_S
from autocap.progress.period.bound import Draw
from autocap.progress.period.detect import detect
from autocap.progress.period.estimate import Floats, PeriodEstimate, Template, Verdict
from autocap.progress.period.period_ratio import Tried, Unproven, agree, lock
from autocap.progress.period.signals import CapSignals

FEWEST_CYCLES = 12.0  # to count by
GLIMPSE_S = 0.95 * PERIOD_WITHIN_SECONDS  # of readings: just before something else may be taken instead
# A stretch is looked at again when it has grown to so many times its length: rarely while nothing is known, which is
# when a look costs most; often once a look only counts along, since a trial cannot end before the next one.
BLIND, SEEN, SURE = 1.6, 1.4, 1.2
_FIRST_LOOK_S = 4.0
FEWEST_READINGS = 80  # for a sighting: half of a period of few updates fits fewer as well
_SPARE = 1.03  # of these, as updates are as long as they are said to be on average
_GLIMPSE_AGAIN = 1.05  # times as many: once more before that; a glimpse at each sample would take half a core
# Cycles at which a pattern that shows is looked at: when it may be seen, and be learned. Until there are many of them
# it is looked at once more, when that look sees enough that the one before did not: two of them say more than one.
_LOOKS, _LEAST_GROWTH = (8.6, FEWEST_CYCLES + 0.8), 1.3
MANY_CYCLES = 24.0  # in which twice and three times the period were looked for as well, so that one look will do
_CONSIDERED_S = 2 * PERIOD_WITHIN_SECONDS  # that a pattern which is not proven yet is worth waiting for


class LookTimes:
    """update_s: of the sensor. shows_s: the period of a pattern that shows, and is not known well enough yet, seconds.
    worth_until_s: until when that is worth waiting for."""

    def __init__(self, update_s: float) -> None:
        self._update_s = update_s
        self.begin(None)
        self._first_s: float | None = None  # the first sample
        self._looked_s = 0.0  # seconds of readings at the last look
        self.shows_s: float | None = None
        self.worth_until_s = NEVER_S

    def begin(self, known_s: float | None) -> None:
        """Readings are taken from nothing on. known_s: the period that is looked for; a look before there are enough
        cycles of it could only say so."""
        self._glimpse_at_s = GLIMPSE_S  # seconds of readings before the next one, as for a look
        enough_s = _SPARE * FEWEST_READINGS * self._update_s if known_s is None else 1.1 * FEWEST_CYCLES * known_s
        self._look_at_s = max(_FIRST_LOOK_S, enough_s)

    def sampled(self, now_s: float) -> None:
        self._first_s = now_s if self._first_s is None else self._first_s

    def due(self, span_s: float) -> bool:
        """Whether to look. span_s: of the readings, as everywhere here."""
        return span_s >= self._look_at_s

    def glimpse_due(self, span_s: float) -> bool:
        """Whether to see at least if a long pattern shows, where nothing is known."""
        return self.shows_s is None and self._looked_s < GLIMPSE_S and span_s >= self._glimpse_at_s

    def looked(self, now_s: float, span_s: float, growth: float, *, awaits_another: bool) -> None:
        """growth: how many times as long the stretch is to be at the next look. awaits_another: a second one is to bear
        out what this one found."""
        self._looked_s = span_s
        self._look_at_s = max(span_s * growth, _FIRST_LOOK_S)
        self._await_more(now_s, span_s, awaits_another)

    def glimpsed(self, now_s: float, span_s: float, shows_s: float | None, *, awaits_another: bool) -> None:
        self._glimpse_at_s = _GLIMPSE_AGAIN * span_s
        self.shows_s = shows_s
        self._await_more(now_s, span_s, awaits_another)

    def _await_more(self, now_s: float, span_s: float, awaits_another: bool) -> None:
        """Where a pattern shows, look again when that may tell more, and let that be waited for."""
        self.worth_until_s = NEVER_S
        if self._first_s is not None and awaits_another:
            self.worth_until_s = min(now_s + self._looked_s, self._first_s + _CONSIDERED_S)
        if self.shows_s is None or self._first_s is None:
            return
        if self._looked_s < MANY_CYCLES * self.shows_s:
            looks_s = [cycles * self.shows_s for cycles in _LOOKS if cycles * self.shows_s > self._looked_s]
            self._look_at_s = max(_LEAST_GROWTH * self._looked_s, min(looks_s, default=0.0))
            more_s = max(0.0, self._look_at_s - span_s) + self._update_s
            self.worth_until_s = min(now_s + more_s, self._first_s + PERIOD_AWAITED_SECONDS)

    def notice(self, now_s: float, span_s: float) -> str | None:
        """What is waited for, once that takes longer than a period is usually looked for."""
        left_s = 0.0 if self.shows_s is None else _LOOKS[1] * self.shows_s - span_s
        if left_s <= 0 or now_s - (self._first_s or 0.0) < PERIOD_WITHIN_SECONDS:
            return None
        return (
            f"a period of about {self.shows_s:.2g} s shows in the power; {FEWEST_CYCLES:.0f} cycles are needed "
            f"to count by it, about {left_s:.0f} s more, which are waited for "
            f"({PERIOD_AWAITED_SECONDS:g} s at most)"
        )


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
