"""Iterations from the power signal alone: the detector's cycles, turned into marks as they become known.

At the limit found on arrival the waveform is learned once and for all. At every other cap the same waveform is looked
for, stretched, so that the same multiple of the period is counted at each cap: a constant multiple does not change
which cap is best, a changed one would. Where the pattern is lost there are no marks, and `trouble` says why.
"""

import math

import numpy as np

from autocap.config import PERIOD_AWAITED_SECONDS, PERIOD_WITHIN_SECONDS
from autocap.progress import HAVE_COUNTED, LONGER, NEVER_S, Mark
from autocap.progress.period import Cycles, PeriodEstimate, RatioEstimate, Template, Verdict, count, detect, lock, ratio
from autocap.progress.period.bound import Draw
from autocap.progress.period.estimate import Floats
from autocap.progress.period.glimpse import glimpse
from autocap.progress.period.proof import Tried, Unproven, agree
from autocap.progress.period.signals import CapSignals
from autocap.progress.period.window import Window
from autocap.records import Sample, SensorInfo

_FEWEST_CYCLES = 12.0
_MANY_CYCLES = 24.0  # in which twice and three times the period were looked for as well, so that one look will do
_LOCK_ERROR = 0.01
_STILL_IT = 0.05  # of a period that was proven: what is found so near to it, where it was lost, is the same
_FEWEST_READINGS = 80  # for a sighting: half of a period of few updates fits fewer as well
_FIRST_LOOK_S = 4.0
# A stretch is looked at again when it has grown to so many times its length: rarely while nothing is known, which is
# when a look costs most; often once a look only counts along, since a trial cannot end before the next one.
_GROWTH_BLIND, _GROWTH, _GROWTH_SURE = 1.6, 1.4, 1.2
_KEPT_S, _KEPT_CYCLES = 90.0, 30.0  # of readings, whichever is longer, at a cap that is held for long
_GLIMPSE_S = 0.95 * PERIOD_WITHIN_SECONDS  # of readings: just before something else may be taken instead
_GLIMPSE_AGAIN = 1.05  # times as many: once more before that; a glimpse at each sample would take half a core
# Cycles at which a pattern that shows is looked at: when it may be seen, be learned, and be learned from more. No look
# sees much of what the one before saw, so that two of them say more than one.
_LOOKS, _LEAST_GROWTH = (8.6, 12.8, 20.0), 1.3
_AT_ARRIVAL = (0.93, 1.07)  # how far the period may move at the limit where the waveform was learned
_ELSEWHERE = (0.97, 4.5)  # a cap slows down, at the floor of some cards four times
_CLOCK_FELL, _NOT_FASTER = 0.97, 0.985
_MARGIN = 1.15
_SETTLED = 2.0  # windows that were learned, after a change of caps: the card takes its time as well
_PEAK = 1.5  # times the power limit: what a card draws for moments
_CONSIDERED_S = 2 * PERIOD_WITHIN_SECONDS  # that a pattern which is not proven yet is worth waiting for
_MOST_MISTAKES, _MOST_LOSSES = 3, 2
_MORE_MAY_HELP = (" yet", " are needed", " to tell a period")  # how troubles end that a longer signal may cure
_NOT_FOLLOWED = "the pattern cannot be followed through the readings"


class PeriodProgress:
    """Marks from periods in the power of one of the devices, which a job makes iterate together.

    sensor: of the devices; what is read within its settling time after a cap change is left out.
    """

    kind = "period"
    confidence = "high"
    follows_power = True
    is_over = False

    def __init__(self, sensor: SensorInfo) -> None:
        self._sensor = sensor
        self._template: Template | None = None
        self._device: int | None = None  # on which it was learned
        self._seen_s: float | None = None  # the period that was seen last, proven or not
        self._unproven = Unproven()
        self._proven_s: float | None = None  # the period that was proven last
        self._learned_at: tuple[float | None, ...] = ()
        self._arrival: tuple[float | None, ...] | None = None  # limits
        self._learned_clock_hz: float | None = None
        self._losses = 0  # looks in a row that did not find it where it was learned
        self._mistakes = 0  # looks that speak against what was learned
        self._refuted: str | None = None  # for good
        self._look_at_s, self._glimpse_at_s = _FIRST_LOOK_S, _GLIMPSE_S  # seconds of readings before the next one
        self._first_s: float | None = None  # the first sample
        self._looked_s = 0.0  # seconds of readings at the last look
        self._looked_at_s = 0.0  # when that was
        self._shows_s: float | None = None  # the period of a pattern that shows, and is not known well enough yet
        self.worth_until_s = NEVER_S
        self.notice: str | None = None
        self._marked: Mark | None = None  # the last one
        self._marked_here = False  # at this cap
        self._period_s = 0.0  # then
        self._window: Window | None = None  # what a reading averages over, where that was learned
        self._begin((), 0.0, 0.0)
        self.trouble: str | None = "the power signal is still too short to tell a period"

    @property
    def advice(self) -> str:
        """A signal that does not repeat will not after a longer wait; one that was too short may, unless as much was
        waited for already."""
        if (self.trouble or "").endswith(_MORE_MAY_HELP) and self.notice is None:
            return f"{LONGER}, or {HAVE_COUNTED}"
        return HAVE_COUNTED if self._signals.clock_hz is None else f"pass --progress speed, or {HAVE_COUNTED}"

    @property
    def unproven_s(self) -> float | None:
        """The period of a pattern that was found twice, and that only a trial at another cap can prove, seconds."""
        return None if self._template is not None or self._refuted is not None else self._unproven.period_s

    @property
    def settle_s(self) -> float:
        """After a change of caps, until a reading holds nothing of the time before."""
        longest_s = 0.0 if self._window is None else self._window.window_s * (1.0 + self._window.off)
        return max(self._sensor.settle_s, _SETTLED * longest_s)

    @property
    def _at_first(self) -> bool:
        """Whether the limits are those found on arrival."""
        return self._caps == self._arrival

    @property
    def _draw(self) -> Draw | None:
        """What the card can draw at most: for moments more than its limit, which holds on average."""
        limits_w = [limit_w for limit_w in self._arrival or () if limit_w]
        return Draw(least_w=0.0, most_w=_PEAK * max(limits_w)) if limits_w else None

    def _try(self, template: Template, t_s: Floats, power_w: Floats) -> None:
        """See at another cap whether a period that is not proven is the job's own."""
        found, times = self._unproven.tried_with(t_s, power_w, self._signals.clock_hz)
        if found is Tried.PROVEN:
            self._template, self._learned_at = template, self._arrival or ()
            self._proven_s = template.period_s
            self._learned_clock_hz = self._unproven.clock_hz
        elif found is Tried.REFUTED:
            self.trouble = self._refuted = (
                f"the period of {template.period_s:.3f} s went to {times or 0.0:.2f} times its length with the cap: "
                "it is not the job's own cycle"
            )

    def marks(self, sample: Sample) -> tuple[Mark, ...]:
        caps = tuple(reading.requested_w for reading in sample.readings)
        self._arrival = caps if self._arrival is None else self._arrival
        if caps != self._caps:
            if caps == self._arrival != self._learned_at:
                self._template = self._device = self._seen_s = None  # a cap flattens the waveform: it is learned anew
            if self.unproven_s is not None and caps == self._arrival:
                self._unproven.give_up()
            self._begin(caps, sample.t_s, sample.t_s + (self.settle_s if self._caps else 0.0))
        self._signals.take(sample)
        self._first_s = sample.t_s if self._first_s is None else self._first_s
        marks: tuple[Mark, ...] = ()
        blind = self._template is None and self._shows_s is None
        if self._signals.span_s >= self._look_at_s:
            self._looked_at_s = sample.t_s
            marks = self._look()
            period_s = max(self._period_s, self._shows_s or 0.0)
            if self._signals.span_s > max(_KEPT_S, _KEPT_CYCLES * period_s):
                self._signals.shorten()  # what a cap that is held for long shows is known well enough
            self._looked_s = self._signals.span_s
            self._look_at_s = max(self._looked_s * self._growth, _FIRST_LOOK_S)
            self._await_more(sample.t_s)
        elif blind and self._looked_s < _GLIMPSE_S and self._signals.span_s >= self._glimpse_at_s:
            self._glimpse_at_s = _GLIMPSE_AGAIN * self._signals.span_s
            self._shows_s = self._glimpse()
            self._await_more(sample.t_s)
        self._tell(sample.t_s)
        return marks

    def _await_more(self, now_s: float) -> None:
        """Where a pattern shows, look again when that may tell more, and let that be waited for."""
        self.worth_until_s = NEVER_S
        if self._first_s is not None and self._unproven.awaits_another_look:
            self.worth_until_s = min(now_s + self._looked_s, self._first_s + _CONSIDERED_S)
        if self._shows_s is None or self._first_s is None:
            return
        looks_s = [cycles * self._shows_s for cycles in _LOOKS]
        later_s = [look_s for look_s in looks_s if look_s >= _LEAST_GROWTH * self._looked_s]
        if later_s:
            self._look_at_s = later_s[0]
            more_s = max(0.0, later_s[0] - self._signals.span_s) + self._sensor.update_s
            self.worth_until_s = min(now_s + more_s, self._first_s + PERIOD_AWAITED_SECONDS)

    def _tell(self, now_s: float) -> None:
        """What is waited for, once that takes longer than a period is usually looked for."""
        left_s = 0.0 if self._shows_s is None else _LOOKS[1] * self._shows_s - self._signals.span_s
        if self.notice is None and left_s > 0 and now_s - (self._first_s or 0.0) >= PERIOD_WITHIN_SECONDS:
            self.notice = (
                f"a period of about {self._shows_s:.2g} s shows in the power; {_FEWEST_CYCLES:.0f} cycles are needed "
                f"to count by it, about {left_s:.0f} s more, which are waited for "
                f"({PERIOD_AWAITED_SECONDS:g} s at most)"
            )

    def _glimpse(self) -> float | None:
        """The period of a long pattern that more cycles may make known, seconds; `None` where none shows."""
        device = self._signals.liveliest()
        signal = self._signals.signal(device)
        if signal is None or len(signal[0]) < _FEWEST_READINGS:
            return None
        t_s, power_w, update_s, window_s = signal
        period_s = glimpse(t_s, power_w, update_s=update_s, window_s=window_s)
        return None if period_s is None or self._signals.contradicted(period_s, device) else period_s

    @property
    def _growth(self) -> float:
        if self._template is None:
            return _GROWTH_BLIND if self._unproven.template is None else _GROWTH
        return _GROWTH if self._sure is None else _GROWTH_SURE

    def _begin(self, caps: tuple[float | None, ...], begun_s: float, settled_s: float) -> None:
        # What runs from the last cycle counted to the first one here is known from the periods before and after.
        self._bridge = self._marked_here
        self._marked_here = False
        self._begun_s, self._caps = begun_s, caps
        self._signals = CapSignals(self._sensor, settled_s, self._window)
        self._glimpse_at_s = _GLIMPSE_S
        # Once the period is known, a look before there are enough cycles could only say so.
        known = self._template or self._unproven.template
        enough_s = 0.0 if known is None else 1.1 * _FEWEST_CYCLES * known.period_s
        self._look_at_s = max(_FIRST_LOOK_S, enough_s)
        self._seen: Template | None = None  # the waveform at this cap, as of the look before
        self._sure: Template | None = None  # two looks agreed on its period

    def _look(self) -> tuple[Mark, ...]:
        if self._refuted is not None:
            self.trouble = self._refuted
            return ()
        device = self._signals.liveliest() if self._device is None else self._device
        self._signals.learn_window(device)
        self._window = self._signals.window
        signal = self._signals.signal(device)
        if signal is None:
            self.trouble = f"the power sensor averages over {self._sensor.window_s:g} s, and there is no energy counter"
            return ()
        t_s, power_w, update_s, window_s = signal
        if self._template is None and self._unproven.template is not None and not self._at_first:
            self._try(self._unproven.template, t_s, power_w)
        if self._template is None:
            if len(t_s) < _FEWEST_READINGS or self._refuted is not None:
                return ()
            estimate = detect(
                t_s,
                power_w,
                update_s=update_s,
                window_s=window_s,
                window_off=self._signals.window_off,
                counted=self._signals.counter(device),
                witnesses=self._signals.witnesses(device),
                draw=self._draw,
            )
            before_s, self._shows_s = self._seen_s, None
            if estimate.verdict is Verdict.PERIODIC:  # a disturbed window does not undo what one before it showed
                self._seen_s = estimate.period_s
            self.trouble = _doubt(estimate, before_s, self._proven_s)
            if self.trouble is None:
                self._template = lock(t_s, power_w, estimate, update_s=update_s, window_s=window_s)
                self.trouble = _NOT_FOLLOWED if self._template is None else None
            elif estimate.open and self._at_first:
                pattern = lock(t_s, power_w, estimate, update_s=update_s, window_s=window_s)
                if pattern is not None and _is_known(pattern.cycles, pattern.rel_stderr):
                    self._unproven.consider(pattern, self._signals.clock_hz)
                    self._device = device
            if self._template is None:
                if self._signals.span_s >= _GLIMPSE_S:
                    may_do = (self.trouble or "").endswith(_MORE_MAY_HELP)
                    self._shows_s = estimate.period_s if may_do else self._glimpse()
                return ()
            self._proven_s = self._template.period_s
            self._device, self._learned_at = device, self._caps
            self._learned_clock_hz = self._signals.clock_hz
        return self._follow(self._template, t_s, power_w)

    def _follow(self, template: Template, t_s: Floats, power_w: Floats) -> tuple[Mark, ...]:
        """Marks of the cycles in the readings at this cap. Once two looks have agreed on their period, later ones
        only count along, for a fraction of the cost, as long as what they count agrees as well."""
        if self._sure is not None:
            cycles = _counted_by(self._sure, t_s, power_w)
            if cycles is not None and agree(cycles.period_s, self._sure.period_s):
                self.trouble = None
                return self._marks(cycles)
        before, self._seen, self._sure = self._seen, None, None
        fastest, slowest = self._possible()
        found = ratio(template, t_s, power_w, fastest=fastest, slowest=slowest)
        self.trouble = self._mistaken(found)
        if self.trouble is None and not found.ok:
            self.trouble = f"the period is lost: {found.reason}"
            self._heed_loss()
        elif self.trouble is None and found.cycles < _FEWEST_CYCLES:
            self.trouble = f"only {found.cycles:.1f} cycles, {_FEWEST_CYCLES:.0f} are needed"
        if self.trouble is not None or found.seen is None:
            return ()
        cycles = _counted_by(found.seen, t_s, power_w)
        if cycles is None:
            self.trouble = _NOT_FOLLOWED
            return ()
        self._seen, self._losses = found.seen, 0
        if self._at_arrival:  # the same period from more readings, so its waveform is better known
            self._template = found.seen
        self._sure = found.seen if before is not None and agree(found.seen.period_s, before.period_s) else None
        return self._marks(cycles)

    def _heed_loss(self) -> None:
        """Where the limits hold at which the period was learned, a job that lost it for good has another one by now."""
        self._losses += self._at_arrival
        if self._losses >= _MOST_LOSSES:
            self._losses = 0
            self._template = self._device = self._seen_s = None
            self._begin(self._caps, self._looked_at_s, self._looked_at_s)

    @property
    def _at_arrival(self) -> bool:
        """Whether the limits are those at which the waveform was learned."""
        return self._caps == self._learned_at

    def _possible(self) -> tuple[float, float]:
        """The shortest and the longest that a cycle can be at this cap, against the one learned: a lower clock makes
        no cycle shorter, nor longer than the clock itself explains."""
        if self._at_arrival:
            return _AT_ARRIVAL
        clock_hz, before_hz = self._signals.clock_hz, self._learned_clock_hz
        if clock_hz is None or before_hz is None:
            return _ELSEWHERE
        return _ELSEWHERE[0], min(_ELSEWHERE[1], _MARGIN * max(before_hz / clock_hz, 1.0))

    def _mistaken(self, found: RatioEstimate) -> str | None:
        """Why what was learned cannot be the job's own cycle: at another cap it got shorter, as the beat between a
        cycle and the sensor's sampling may. After some such looks that stands for good."""
        if found.ratio is None or self._at_arrival:
            return None
        clock_hz, before_hz = self._signals.clock_hz or math.nan, self._learned_clock_hz or math.nan
        if found.ratio >= (_NOT_FASTER if clock_hz < _CLOCK_FELL * before_hz else _ELSEWHERE[0]):
            return None
        self._mistakes += 1
        why = f"the period went to {found.ratio:.2f} times its length with the cap: it is not the job's own cycle"
        if self._mistakes >= _MOST_MISTAKES:
            self._refuted = why
        return why

    def _marks(self, cycles: Cycles) -> tuple[Mark, ...]:
        """The boundaries that are new. The last cycle is left for the next look, which knows it better."""
        times, counts = cycles.t_s, cycles.count
        known = times <= times[-1] - cycles.period_s
        if self._marked is None or not self._marked_here:
            fresh = known
            base = self._before(float(times[0]), cycles.period_s) - counts[0]
        else:
            fresh = known & (times >= self._marked.t_s + 0.5 * cycles.period_s)
            base = self._marked.iterations - float(np.interp(self._marked.t_s, times, counts))
        marks = tuple(
            Mark(t_s=float(t), iterations=float(base + n)) for t, n in zip(times[fresh], counts[fresh], strict=True)
        )
        if marks:
            self._marked, self._marked_here, self._period_s = marks[-1], True, cycles.period_s
        return marks

    def _before(self, first_s: float, period_s: float) -> float:
        """Iterations done when the first cycle counted at this cap begins. Across caps at which none was counted they
        are not known, and the count stands still."""
        if self._marked is None:
            return 0.0
        if not self._bridge:
            return self._marked.iterations
        at_last_cap = (self._begun_s - self._marked.t_s) / self._period_s
        return self._marked.iterations + at_last_cap + (first_s - self._begun_s) / period_s


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
    if estimate.cycles < _MANY_CYCLES and (before_s is None or not agree(found_s, before_s)):
        return f"the period of {estimate.period_s:.3f} s was not found a second time yet"
    return None


def _is_known(cycles: float, rel_stderr: float) -> bool:
    """Whether a period is known well enough to be followed."""
    return cycles >= _FEWEST_CYCLES and rel_stderr <= _LOCK_ERROR


def _counted_by(pattern: Template, t_s: Floats, power_w: Floats) -> Cycles | None:
    return count(pattern, t_s, power_w, update_s=pattern.update_s, window_s=pattern.window_s)
