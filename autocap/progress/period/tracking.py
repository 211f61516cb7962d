"""What was learned, looked for at one cap in all of its readings, until it is known well there; and then followed
through samples as they come, closely where it goes astray, and by a reading now and then while it goes on. Then the
time from one to the next varies a little, as through readings at one rate a cycle that became shorter may look the
same."""

from collections.abc import Callable

import numpy as np

from autocap.progress import Mark
from autocap.progress.period.estimate import Cycles, Floats, RatioEstimate, Template
from autocap.progress.period.learning import FEWEST_CYCLES, NOT_FOLLOWED, Signal
from autocap.progress.period.locate import count
from autocap.progress.period.period_ratio import agree, ratio
from autocap.progress.period.phase import PhaseTracker
from autocap.progress.period.series import MOST_READINGS
from autocap.progress.period.signals import CapSignals, Window
from autocap.records import Sample, SensorInfo

Knots = list[tuple[float, float]]  # times, seconds, and the cycles counted until then


class Numbering:
    """Marks, each once, from what is counted again and again. last: the last mark, at whatever cap."""

    def __init__(self) -> None:
        self.last: Mark | None = None
        self._period_s = 0.0  # then
        self._here = self._bridge = False  # there is one at this cap; was one at the cap before
        self._begun_s = 0.0

    @property
    def period_s(self) -> float:
        """Of the cycles counted last, seconds; 0 before."""
        return self._period_s

    def begin(self, begun_s: float) -> None:
        """Other caps hold from then on. What runs from the last cycle counted to the first one there is known from the
        periods before and after."""
        self._bridge, self._here, self._begun_s = self._here, False, begun_s

    def of(self, cycles: Cycles) -> tuple[Mark, ...]:
        """The boundaries that are new. The last cycle is left for the next look, which knows it better."""
        times, counts = cycles.t_s, cycles.count
        known = times <= times[-1] - cycles.period_s
        if self.last is None or not self._here:
            fresh = known
            base = self._before(float(times[0]), cycles.period_s) - counts[0]
        else:
            fresh = known & (times >= self.last.t_s + 0.5 * cycles.period_s)
            base = self.last.iterations - float(np.interp(self.last.t_s, times, counts))
        return self._marked(times[fresh], base + counts[fresh], cycles.period_s)

    def along(self, knots: Knots, period_s: float) -> tuple[Mark, ...]:
        """The ends of iterations after the last mark, and those of pauses, along what a tracker has counted. knots:
        from before the last mark on, if it is one of this cap."""
        if len(knots) < 2:
            return ()
        times, counts = np.array(knots).T
        if self.last is None or not self._here:
            self.last = Mark(t_s=float(times[0]), iterations=self._before(float(times[0]), period_s))
        done = self.last.iterations + counts - float(np.interp(self.last.t_s, times, counts))
        ends = np.arange(self.last.iterations + 1.0, done[-1] + 1e-9)
        still = np.flatnonzero(np.diff(done) == 0)
        at = np.concatenate((np.interp(ends, done, times), times[still], times[still + 1]))
        reached = np.concatenate((ends, done[still], done[still]))
        order = np.lexsort((reached, at))
        at, reached = at[order], reached[order]
        fresh = at > self.last.t_s
        return self._marked(at[fresh], reached[fresh], period_s)

    def _marked(self, times: Floats, counts: Floats, period_s: float) -> tuple[Mark, ...]:
        marks = tuple(Mark(t_s=float(t), iterations=float(n)) for t, n in zip(times, counts, strict=True))
        if marks:
            self.last, self._here, self._period_s = marks[-1], True, period_s
        return marks

    def _before(self, first_s: float, period_s: float) -> float:
        """Iterations done when the first cycle counted at this cap begins. Across caps at which none was counted they
        are not known, and the count stands still."""
        if self.last is None:
            return 0.0
        if not self._bridge:
            return self.last.iterations
        at_last_cap = (self._begun_s - self.last.t_s) / self._period_s
        return self.last.iterations + at_last_cap + (first_s - self._begun_s) / period_s


_FED_CYCLES = 30.0  # that it begins with
_EVERY_S = 1.0  # readings are taken together for so long
_FEW, _OVERLAP = 40, 32  # samples that are kept, for the moves of a counter
_AWAY_S, _AWAY_CYCLES = 10.0, 6.0  # what pauses usually take, at most
_UNCLEAR_CYCLES = 10.0  # without a clear phase
_SELDOM_S = 0.4  # from reading to reading: a beat of the watchdog, which wakes us in any case
_AWAY_STEP, _LONGEST_AWAY_S = 0.2, 0.1  # the same while it is away: of a cycle, and seconds
_SPREAD = (0.85, 0.95, 0.90, 1.0, 0.80)  # of that, in turn


def away_s(period_s: float) -> float:
    """How long, seconds, the job may do something else before its pattern is looked for anew."""
    return max(_AWAY_S, _AWAY_CYCLES * period_s)


class Tracking:
    """sensor, device: what is read. pattern: as it is at this cap. signal: readings of it until now, to begin with.
    window: what a reading averages over, where that was learned. lost_s: since when something else is seen, for longer
    than pauses usually take, `None` where it is not."""

    def __init__(
        self, sensor: SensorInfo, device: int, pattern: Template, signal: Signal, window: Window | None = None
    ) -> None:
        t_s, power_w, _, _ = signal
        self.pattern, self._device = pattern, device
        self._tracker = PhaseTracker(pattern, blur_s=sensor.update_s)
        self._usual_s = float(np.median(np.diff(t_s[-_FEW:])))
        self._signals = CapSignals(sensor, float(t_s[-1]), window)
        self._counts = self._signals.blurred
        self._taken_s, self._due_s = float(t_s[-1]), float(t_s[-1]) + _EVERY_S
        self._turn, self._step_s = 0, 0.0
        self.lost_s: float | None = None
        recent = t_s >= t_s[-1] - _FED_CYCLES * pattern.period_s
        self._tracker.take(t_s[recent], power_w[recent])

    @property
    def period_s(self) -> float:
        return self._tracker.period_s

    @property
    def knots(self) -> Knots:
        return self._tracker.knots

    @property
    def follows(self) -> bool:
        """Whether the readings go with the pattern."""
        clear_s = self.knots[-1][0] if self.knots else -np.inf
        unclear = self._taken_s - clear_s > _UNCLEAR_CYCLES * self.period_s
        return self._tracker.follows and not unclear

    @property
    def step_s(self) -> float:
        """Seconds until the next reading is needed; 0 where each is."""
        return self._step_s * _SPREAD[self._turn % len(_SPREAD)]

    def forget_before(self, t_s: float) -> None:
        """What was counted before is known elsewhere."""
        del self.knots[: max(0, sum(at_s <= t_s for at_s, _ in self.knots) - 1)]

    def take(self, sample: Sample) -> bool:
        """Take in a sample; whether there is more in `knots` now."""
        self._signals.take(sample)
        self._turn += 1
        if sample.t_s < self._due_s:
            return False
        self._due_s = sample.t_s + _EVERY_S
        signal = self._signals.signal(self._device)
        self._signals.keep(_OVERLAP if self._counts else 1)
        if signal is None:
            return False
        t_s, power_w, _, _ = signal
        new = t_s > self._taken_s
        if not new.any():
            return False
        self._follow(t_s[new], power_w[new])
        return True

    def _follow(self, t_s: Floats, power_w: Floats) -> None:
        tracker = self._tracker
        tracker.take(t_s, power_w, seldom=self._step_s > 0)
        self._taken_s = float(t_s[-1])
        left_s = tracker.left_s
        if left_s is None and self.follows:
            self.lost_s = None
        elif self.lost_s is None and left_s is None:
            self.lost_s = self._taken_s
        elif self.lost_s is None and left_s is not None and self._taken_s - left_s > away_s(self.period_s):
            self.lost_s = left_s  # until it is followed for some cycles again: one may fit by chance
        # A counter that is read seldom shows means over longer than the waveform was learned through.
        step_s = tracker.spare_s(_SELDOM_S) if self.follows and not self._counts else 0.0
        if tracker.left_s is not None and self.lost_s is None and not self._counts:
            step_s = min(_AWAY_STEP * self.period_s, _LONGEST_AWAY_S)
        self._step_s = step_s


_SAME = 0.05  # by which the period may differ, of a while ago


class Follower:
    """trouble: why nothing is counted. found: what the last look at the pattern has shown, `None` where it was only
    counted along; is_lost: that this is not what was learned. sure: the waveform as two looks have agreed on it, `None`
    before."""

    def __init__(self) -> None:
        self.trouble: str | None = None
        self.found: RatioEstimate | None = None
        self.is_lost = False
        self.sure: Template | None = None
        self._seen: Template | None = None  # as of the look before

    def look(
        self,
        learned: Template,
        signal: Signal,
        possible: tuple[float, float],
        objection: Callable[[RatioEstimate], str | None],
    ) -> Cycles | None:
        """The cycles in the readings at this cap. Once two looks have agreed on their period, later ones only count
        along, for a fraction of the cost, as long as what they count agrees as well. possible: the shortest and the
        longest that a cycle may be, against the one learned. objection: why what is found cannot be, `None` where it
        can."""
        self.trouble = self.found = None
        self.is_lost = False
        if self.sure is not None:
            cycles = _counted_by(self.sure, signal)
            if cycles is not None and agree(cycles.period_s, self.sure.period_s):
                return cycles
        before, self._seen, self.sure = self._seen, None, None
        self.found = found = ratio(learned, signal[0], signal[1], fastest=possible[0], slowest=possible[1])
        self.trouble = objection(found)
        if self.trouble is None and not found.ok:
            self.trouble = f"the period is lost: {found.reason}"
        self.is_lost = self.trouble is not None
        if self.trouble is None and found.cycles < FEWEST_CYCLES:
            self.trouble = f"only {found.cycles:.1f} cycles, {FEWEST_CYCLES:.0f} are needed"
        if self.trouble is not None or found.seen is None:
            return None
        cycles = _counted_by(found.seen, signal)
        if cycles is None:
            self.trouble = NOT_FOLLOWED
            return None
        self._seen = found.seen
        self.sure = found.seen if before is not None and agree(found.seen.period_s, before.period_s) else None
        return cycles


def closely(pattern: Template, signal: Signal) -> Template | None:
    """The waveform from the latest readings, each for itself: of many, neighbours were averaged, which hides what is
    short in it. `None` where they do not show it."""
    t_s, power_w, _, _ = signal
    if len(t_s) <= MOST_READINGS:
        return pattern
    latest = t_s >= min(t_s[-MOST_READINGS], t_s[-1] - FEWEST_CYCLES * pattern.period_s)
    found = ratio(pattern, t_s[latest], power_w[latest], fastest=1 - _SAME, slowest=1 + _SAME)
    return found.seen if found.ok else None


def _counted_by(pattern: Template, signal: Signal) -> Cycles | None:
    return count(pattern, signal[0], signal[1], update_s=pattern.update_s, window_s=pattern.window_s)
