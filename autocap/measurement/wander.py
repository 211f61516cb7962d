"""How far windows of the same caps are from each other beyond their errors, where others use the machine as well.

The scatter within a window says nothing of what comes and goes more slowly than that. It shows where a cap is measured
again, and is an error of each window that others are compared with, however long that window is. Each window is held
against the nearer of the two before it, so that a slow drift adds little, and what comes once, a burst or another
workload, adds once; of all that, the median counts, which such a thing does not move.
"""

import math
from collections import deque
from dataclasses import replace

from autocap.measurement.batches import BatchErrors
from autocap.measurement.tuning import TUNING
from autocap.records import Measurement

_BEFORE = 2  # windows of the same caps
_MEDIAN = (0.455, 0.150)  # half the squared distance of a normal number from one other, and from the nearer of two


class Wander:
    """That of one run. burst_s: the longest stretch of other work that was seen, seconds."""

    def __init__(self) -> None:
        self._before: dict[tuple[float, ...], deque[Measurement]] = {}
        self._apart: list[tuple[float, float, float]] = []  # var of time, of energy, their covariance, beyond errors
        self.burst_s = 0.0

    def add(self, window: Measurement) -> None:
        """Take in a window, with the errors that it has by itself."""
        window = window.of_gpus()
        if not math.isfinite(sum(_squares(window))):
            return
        before = self._before.setdefault(window.setting, deque(maxlen=_BEFORE))
        if before:
            nearest = min(before, key=lambda one: abs(_time(window, one)))
            time, energy = _time(window, nearest), _energy(window, nearest)
            error = math.hypot(window.period_rel_stderr, nearest.period_rel_stderr)
            if abs(time) > max(TUNING.wander_apart, TUNING.wander_apart_sigmas * error):
                self.disturbed((window if time > 0 else nearest).duration_s)
            share = 2 * _MEDIAN[len(before) - 1]
            own = [(a + b) / 2 for a, b in zip(_squares(window), _squares(nearest), strict=True)]
            seen = (time**2 / share, energy**2 / share, time * energy / share)
            self._apart.append((seen[0] - own[0], seen[1] - own[1], seen[2] - own[2]))
        before.append(window)

    def disturbed(self, lasted_s: float) -> None:
        """A stretch of other work was seen."""
        self.burst_s = max(self.burst_s, lasted_s)

    def begin_anew(self) -> None:
        """The job has changed: windows of the one before are no repeats, and its last stretch was no other work."""
        self._before.clear()
        self.burst_s = 0.0

    @property
    def is_quiet(self) -> bool:
        """Whether no burst of other work was seen so far."""
        return self.burst_s == 0

    @property
    def least_errors(self) -> tuple[float, float]:
        """Of the time and the energy of any window, relative; 0 while unknown."""
        time, energy, _ = self._beyond
        return math.sqrt(time), math.sqrt(energy)

    def widened(self, window: Measurement) -> Measurement:
        """The window with that in its errors."""
        time, energy, covariance = self._beyond
        if max(time, energy) <= 0:
            return window
        whole = _wider(replace(window, gpu=None), time, energy, covariance)
        return whole if window.gpu is None else whole.with_gpus(_wider(window.of_gpus(), time, energy, covariance))

    @property
    def _beyond(self) -> tuple[float, float, float]:
        """Relative variances of time and energy beyond a window's errors, and their covariance; 0 where unknown."""
        if len(self._apart) < TUNING.wander_fewest:
            return 0.0, 0.0, 0.0
        time, energy, both = (sorted(part)[(len(part) - 1) // 2] for part in zip(*self._apart, strict=True))
        time, energy = max(0.0, time), max(0.0, energy)
        most = math.sqrt(time * energy)
        return time, energy, min(most, max(-most, both))


def _time(window: Measurement, other: Measurement) -> float:
    return math.log(window.period_s / other.period_s)


def _energy(window: Measurement, other: Measurement) -> float:
    return math.log(window.energy_per_iteration_j / other.energy_per_iteration_j)


def _squares(window: Measurement) -> tuple[float, float, float]:
    time, energy = window.period_rel_stderr, window.energy_rel_stderr
    return time**2, energy**2, window.time_energy_corr * time * energy


def _wider(window: Measurement, time: float, energy: float, covariance: float) -> Measurement:
    own_t, own_e, own = _squares(window)
    errors = BatchErrors.of(own_t + time, own_e + energy, own + covariance)
    return replace(
        window,
        period_rel_stderr=errors.time,
        energy_rel_stderr=errors.energy,
        power_rel_stderr=errors.power,
        time_energy_corr=errors.correlation,
    )
