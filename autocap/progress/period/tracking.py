"""A pattern that is known at one cap, followed through samples as they come: closely where it goes astray, and by a
reading now and then while it goes on. Then the time from one to the next varies a little, as through readings at one
rate a cycle that became shorter may look the same.
"""

import numpy as np

from autocap.progress.period.estimate import Floats, Template
from autocap.progress.period.learning import Signal
from autocap.progress.period.numbering import Knots
from autocap.progress.period.phase import PhaseTracker
from autocap.progress.period.signals import CapSignals
from autocap.progress.period.window import Window
from autocap.records import Sample, SensorInfo

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
