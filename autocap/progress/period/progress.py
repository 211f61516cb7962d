"""Iterations from the power signal alone: the detector's cycles, turned into marks as they become known.

At the limit found on arrival the waveform is learned once and for all. At every other cap the same waveform is looked
for, stretched, so that the same multiple of the period is counted at each cap: a constant multiple does not change
which cap is best, a changed one would. What a cap that is held for long shows is followed by its phase from then on.
Where the pattern is lost there are no marks, and `trouble` says why.
"""

import math

from autocap.progress import HAVE_COUNTED, LONGER, Mark
from autocap.progress.period.bound import Draw
from autocap.progress.period.detect import detect
from autocap.progress.period.estimate import RatioEstimate
from autocap.progress.period.learning import BLIND, FEWEST_READINGS, GLIMPSE_S, SEEN, SURE, Learner, LookTimes, Signal
from autocap.progress.period.period_ratio import agree
from autocap.progress.period.repetition import glimpse
from autocap.progress.period.signals import CapSignals, Host, Window
from autocap.progress.period.tracking import Follower, Numbering, Tracking, away_s, closely
from autocap.records import Sample, SensorInfo

_KEPT_S, _KEPT_CYCLES = 90.0, 30.0  # of readings, whichever is longer, at a cap that is held for long
_AT_ARRIVAL = (0.93, 1.07)  # how far the period may move at the limit where the waveform was learned
_ELSEWHERE = (0.97, 4.5)  # a cap slows down, at the floor of some cards four times
_ANOTHER_JOB = (0.3, 4.5)  # how far it may at one cap, where the job is another one by now
_CHANGED = 0.05  # by which it is
_CLOCK_FELL, _NOT_FASTER = 0.97, 0.985
_MARGIN = 1.15
_SETTLED = 2.0  # windows that were learned, after a change of caps: the card takes its time as well
_PEAK = 1.5  # times the power limit: what a card draws for moments
_MOST_LOSSES, _MOST_LOSSES_ELSEWHERE = 2, 3  # looks in a row that do not find what was learned, at a cap as well
_MORE_MAY_HELP = (" yet", " are needed", " to tell a period")  # how troubles end that a longer signal may cure
_LOST = "the period is lost: the power does not repeat as it did"


class PeriodProgress:
    """Marks from periods in the power of one of the devices, which a job makes iterate together.

    sensor: of the devices; what is read within its settling time after a cap change is left out. host: looks at the
    job's CPU time, `None` where nobody does. changed: why what
    these caps are followed by is no longer the job that was learned, `None` while it is.
    """

    kind = "period"
    confidence = "high"
    follows_power = True
    is_over = False

    def __init__(self, sensor: SensorInfo, host: Host | None = None) -> None:
        self._sensor, self._host = sensor, host
        self._learner, self._numbering, self._times = Learner(), Numbering(), LookTimes(sensor.update_s)
        self._arrival: tuple[float | None, ...] | None = None  # limits
        self._losses, self._lost_at_s = 0, 0.0  # looks in a row that did not find it, and when the first of them was
        self._looked_at_s = 0.0
        self.changed: str | None = None
        self._another_s: float | None = None  # the period that was proven instead of one that is lost, at the last look
        self.notice: str | None = None
        self._window: Window | None = None  # what a reading averages over, where that was learned
        self._begin((), 0.0, 0.0)
        self.trouble: str | None = "the power signal is still too short to tell a period"

    @property
    def worth_until_s(self) -> float:
        return self._times.worth_until_s

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
        learner = self._learner
        return None if learner.template is not None or learner.refuted is not None else learner.unproven.period_s

    @property
    def settle_s(self) -> float:
        """After a change of caps, until a reading holds nothing of the time before."""
        longest_s = 0.0 if self._window is None else self._window.window_s * (1.0 + self._window.off)
        return max(self._sensor.settle_s, _SETTLED * longest_s)

    @property
    def step_s(self) -> float:
        """Seconds from one sample to the next that will do, 0 where each reading says something."""
        return 0.0 if self._tracking is None or self._is_lost else self._tracking.step_s

    @property
    def _draw(self) -> Draw | None:
        """What the card can draw at most: for moments more than its limit, which holds on average."""
        limits_w = [limit_w for limit_w in self._arrival or () if limit_w]
        return Draw(least_w=0.0, most_w=_PEAK * max(limits_w)) if limits_w else None

    @property
    def _at_home(self) -> bool:
        """Whether the limits are those at which the waveform was learned."""
        return self._caps == self._learner.at

    def marks(self, sample: Sample) -> tuple[Mark, ...]:
        caps = tuple(reading.requested_w for reading in sample.readings)
        self._arrival = caps if self._arrival is None else self._arrival
        if caps != self._caps:
            self._move(caps, sample.t_s)
        if self._tracking is not None:
            marks = self._track(self._tracking, sample)
            if not self._is_lost:
                return marks
        return self._look_closely(sample)

    def _move(self, caps: tuple[float | None, ...], now_s: float) -> None:
        """Other limits hold."""
        learner = self._learner
        if caps == self._arrival and (caps != learner.at or self.changed is not None):
            learner.forget()  # a cap flattens the waveform: it is learned anew
        self.changed = self._another_s = None
        if self.unproven_s is not None and caps == self._arrival:
            learner.unproven.give_up()
        self._begin(caps, now_s, now_s + (self.settle_s if self._caps else 0.0))

    def _begin(self, caps: tuple[float | None, ...], begun_s: float, settled_s: float) -> None:
        self._numbering.begin(begun_s)
        self._caps, self._losses = caps, 0
        self._tracking: Tracking | None = None
        self._look_from(settled_s, self._learner.known_s)

    def _look_from(self, settled_s: float, known_s: float | None) -> None:
        self._signals, self._follower = CapSignals(self._sensor, settled_s, self._window, self._host), Follower()
        self._is_lost = False  # what was followed by its phase
        self._times.begin(known_s)

    def _track(self, tracking: Tracking, sample: Sample) -> tuple[Mark, ...]:
        """Follow the phase; where it is lost, look for what is there from then on."""
        if not tracking.take(sample):
            return ()
        lost_s, was_lost = tracking.lost_s, self._is_lost
        if lost_s is None:
            self._is_lost, self.trouble = False, None
        elif not was_lost:
            self._losses = 0
            self._look_from(lost_s, tracking.period_s)
            self._is_lost, self.trouble = True, _LOST
        marks = self._numbering.along(tracking.knots, tracking.period_s)
        if self._numbering.last is not None:
            tracking.forget_before(self._numbering.last.t_s)
        return marks

    def _look_closely(self, sample: Sample) -> tuple[Mark, ...]:
        """See at all the readings at this cap, when it is time to."""
        times, signals, now_s = self._times, self._signals, sample.t_s
        signals.take(sample)
        times.sampled(now_s)
        marks: tuple[Mark, ...] = ()
        if times.due(signals.span_s):
            self._looked_at_s = now_s
            marks = self._look()
            period_s = max(self._numbering.period_s, times.shows_s or 0.0)
            if self._tracking is None and self._signals.span_s > max(_KEPT_S, _KEPT_CYCLES * period_s):
                self._signals.shorten()  # what a cap that is held for long shows is known well enough
            awaits_another = self._learner.unproven.awaits_another_look
            times.looked(now_s, self._signals.span_s, self._growth, awaits_another=awaits_another)
        elif self._learner.template is None and times.glimpse_due(signals.span_s):
            awaits_another = self._learner.unproven.awaits_another_look
            times.glimpsed(now_s, signals.span_s, self._glimpse(), awaits_another=awaits_another)
        self.notice = self.notice or times.notice(now_s, self._signals.span_s)
        return marks

    def _glimpse(self) -> float | None:
        """The period of a long pattern that more cycles may make known, seconds; `None` where none shows."""
        device = self._signals.liveliest()
        signal = self._signals.signal(device)
        if signal is None or len(signal[0]) < FEWEST_READINGS:
            return None
        t_s, power_w, update_s, window_s = signal
        period_s = glimpse(t_s, power_w, update_s=update_s, window_s=window_s)
        return None if period_s is None or self._signals.contradicted(period_s, device) else period_s

    @property
    def _growth(self) -> float:
        if self._learner.template is None:
            return BLIND if self._learner.unproven.template is None else SEEN
        is_to_be_borne_out = self._follower.sure is None and self.trouble is None
        return SEEN if is_to_be_borne_out else SURE

    def _look(self) -> tuple[Mark, ...]:
        learner, signals = self._learner, self._signals
        if learner.refuted is not None:
            self.trouble = learner.refuted
            return ()
        device = signals.liveliest() if learner.device is None else learner.device
        signals.learn_window(device)
        self._window = signals.window
        signal = signals.signal(device)
        if signal is None:
            self.trouble = f"the power sensor averages over {self._sensor.window_s:g} s, and there is no energy counter"
            return ()
        if self._tracking is not None:
            return self._look_again(self._tracking, signal, device)
        if learner.template is None and self._caps != self._arrival:
            learner.try_out(signals, signal, self._arrival or ())
            self.trouble = learner.refuted or self.trouble
        if learner.template is None and not self._learn(signal, device):
            return ()
        return self._follow(signal, device)

    def _learn(self, signal: Signal, device: int) -> bool:
        """Look for a period that nothing is known of; whether it is learned."""
        learner = self._learner
        if len(signal[0]) < FEWEST_READINGS or learner.refuted is not None:
            return False
        at_first = self._caps == self._arrival
        estimate, self.trouble = learner.look(self._signals, signal, device, self._caps, self._draw, at_first=at_first)
        may_do = learner.template is None and (self.trouble or "").endswith(_MORE_MAY_HELP)
        self._times.shows_s = estimate.period_s if may_do else None
        if learner.template is None and not may_do and self._signals.span_s >= GLIMPSE_S:
            self._times.shows_s = self._glimpse()
        return learner.template is not None

    def _follow(self, signal: Signal, device: int) -> tuple[Mark, ...]:
        """Marks of the cycles in the readings at this cap, as far as what was learned is found in them."""
        learner, follower = self._learner, self._follower
        assert learner.template is not None
        cycles = follower.look(learner.template, signal, self._possible(), self._mistaken)
        self.trouble, found = follower.trouble, follower.found
        if found is not None and follower.is_lost:
            self._heed_loss(self._mistaken(found))
        elif found is not None:
            self._losses = 0
        if cycles is None:
            return ()
        if found is not None and self._at_home:  # the same period from more readings, so its waveform is better known
            learner.template = found.seen
        marks = self._numbering.of(cycles)
        if self._signals.span_s > max(_KEPT_S, _KEPT_CYCLES * cycles.period_s):
            self._track_from_now_on(signal, device)
        return marks

    def _track_from_now_on(self, signal: Signal, device: int) -> None:
        """Follow the phase alone, where that can be done."""
        pattern = None if self._follower.sure is None else closely(self._follower.sure, signal)
        if pattern is None:
            return
        tracking = Tracking(self._sensor, device, pattern, signal, self._window)
        if tracking.follows:
            self._tracking, self._is_lost = tracking, False

    def _look_again(self, before: Tracking, signal: Signal, device: int) -> tuple[Mark, ...]:
        """What was followed here is not there any more: is it again, or another job's?"""
        follower = self._follower
        cycles = follower.look(before.pattern, signal, _ANOTHER_JOB, lambda found: None)
        self.trouble = follower.trouble
        if cycles is None:
            self._losses += follower.found is not None and not follower.found.ok
            if self._losses >= _MOST_LOSSES:
                self._look_for_another(signal, device)
            return ()
        self._another_s = None
        times = cycles.period_s / before.pattern.period_s
        if follower.sure is None and abs(times - 1.0) > _CHANGED:
            return ()
        marks = self._numbering.of(cycles)
        if abs(times - 1.0) > _CHANGED:
            self.changed = f"the workload has changed: an iteration takes {times:.2f} times as long as before"
        if follower.sure is not None:
            if self._at_home:
                self._learner.template = follower.sure
            self._track_from_now_on(signal, device)
        return marks

    def _look_for_another(self, signal: Signal, device: int) -> None:
        """A job that lost its pattern for good has another one by now."""
        learner = self._learner
        if self._at_home:
            learner.forget()
            self._tracking = None
            self._look_from(self._looked_at_s, None)
            self.changed = None
            return
        estimate = detect(
            signal[0],
            signal[1],
            update_s=signal[2],
            window_s=signal[3],
            window_off=self._signals.window_off,
            counted=self._signals.counter(device),
            witnesses=self._signals.witnesses(device),
            draw=self._draw,
            load=self._signals.load,
        )
        before_s, self._another_s = self._another_s, estimate.period_s if estimate.verified else None
        if estimate.verified and before_s is not None and agree(estimate.period_s or 0.0, before_s):
            self.changed = (
                f"the workload has changed: its power repeats otherwise than before, every {estimate.period_s:.3g} s"
            )

    def _heed_loss(self, contradiction: str | None) -> None:
        """What was proven, and is not found any more, is another job's by now: so it is where the limits hold at which
        it was learned; at another cap these are to show whether it is. contradiction: as `_mistaken` says it."""
        if not self._losses:
            self._lost_at_s = self._looked_at_s
        self._losses += 1
        if self._at_home and self._losses >= _MOST_LOSSES:
            self._losses = 0
            self._learner.forget()
            self._numbering.begin(self._looked_at_s)
            self._look_from(self._looked_at_s, None)
        elif not self._at_home and self._losses >= _MOST_LOSSES_ELSEWHERE and self.changed is None:
            lasts_s = self._looked_at_s - self._lost_at_s
            if lasts_s > away_s(self._learner.known_s or 0.0) and self._learner.suspect(contradiction):
                self.changed = f"the workload may have changed: {self.trouble}"

    def _possible(self) -> tuple[float, float]:
        """The shortest and the longest that a cycle can be at this cap, against the one learned: a lower clock makes
        no cycle shorter, nor longer than the clock itself explains."""
        if self._at_home:
            return _AT_ARRIVAL
        clock_hz, before_hz = self._signals.clock_hz, self._learner.clock_hz
        if clock_hz is None or before_hz is None:
            return _ELSEWHERE
        return _ELSEWHERE[0], min(_ELSEWHERE[1], _MARGIN * max(before_hz / clock_hz, 1.0))

    def _mistaken(self, found: RatioEstimate) -> str | None:
        """Why what is found cannot be what was learned: at another cap it got shorter, as another job's, or the beat
        between a cycle and the sensor's sampling, may."""
        if found.ratio is None or self._at_home:
            return None
        clock_hz, before_hz = self._signals.clock_hz or math.nan, self._learner.clock_hz or math.nan
        if found.ratio >= (_NOT_FASTER if clock_hz < _CLOCK_FELL * before_hz else _ELSEWHERE[0]):
            return None
        return f"the period went to {found.ratio:.2f} times its length with the cap: it is not the job's own cycle"
