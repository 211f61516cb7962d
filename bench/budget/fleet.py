"""Many jobs under caps, in steps of a tenth of a second, all at once: what they draw and how fast they are.

A cap that is set takes hold after a call of 10 to 20 ms and evenly over a lag of 50 to 200 ms, as on the simulated
device. A job that trains draws what its published curve says at the cap that acts; while it pauses, to validate or to
write a checkpoint, an idle card's draw. A reading is of one moment within an iteration, whose power follows the
simulated device's waveform, and has its card's gain error and noise.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocap.testing.simulated.job import DEEP
from bench.budget.curves import Kinds

Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Indices = NDArray[np.intp]

STEP_S = 0.1
GAIN_ERROR, _NOISE = 0.02, 0.003  # standard deviations: of a card's sensor, and of a reading
_OVERSHOOT = 1.05  # how far peaks of power pass a cap that holds the average down, as on the simulated device


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """What the sensors show, shape (jobs,), of a device of each: watts, and whether its cap holds the clocks down."""

    power_w: Floats
    binding: Bools


class Fleet:
    """curves: that there are. kinds: of each job, the number of its curve. devices: of each. Arrays have shape (jobs,);
    jobs that have not come yet, or are gone, draw nothing here."""

    def __init__(self, curves: Kinds, kinds: Indices, devices: Floats, seed: int) -> None:
        self._rng = np.random.default_rng([seed, 1])
        self.curves, self._tables = curves, curves.tables
        ranges = [profile.cap_range for profile in curves.profiles]
        self.kinds, self.devices = kinds, devices
        self.lowest_w = np.array([one.min_w for one in ranges])[kinds]
        self.found_w = np.array([one.default_w for one in ranges])[kinds]
        self._idle_w = np.array([profile.idle_w for profile in curves.profiles])[kinds]
        self._powers_w = np.stack(
            [profile.power_w(self._tables.caps_w[row]) for row, profile in enumerate(curves.profiles)]
        )
        jobs = len(kinds)
        self.there, self.paused = np.zeros(jobs, dtype=bool), np.zeros(jobs, dtype=bool)
        self.caps_w = self.lowest_w.copy()  # as set; of a device that nobody uses the lowest
        self.acting_w = self.caps_w.copy()
        self._from_w, self._begin_s, self._end_s = self.caps_w.copy(), np.zeros(jobs), np.zeros(jobs)
        self._gain = 1 + GAIN_ERROR * self._rng.standard_normal(jobs)
        shares, levels = (np.array([getattr(part, name) for part in DEEP]) for name in ("share", "power"))
        self._levels, self._phases = levels / (shares @ levels / shares.sum()), np.cumsum(shares / shares.sum())

    def set_caps(self, t_s: float, jobs: Indices, caps_w: Floats) -> None:
        """Set caps, watts, of a device of each of these jobs."""
        self._from_w[jobs], self.caps_w[jobs] = self.acting_w[jobs], caps_w
        self._begin_s[jobs] = t_s + self._rng.uniform(0.010, 0.020, len(jobs))
        self._end_s[jobs] = self._begin_s[jobs] + self._rng.uniform(0.05, 0.20, len(jobs))

    def advance(self, t_s: float) -> None:
        """It is now so late, seconds."""
        way = np.clip((t_s - self._begin_s) / np.maximum(self._end_s - self._begin_s, 1e-9), 0, 1)
        self.acting_w = self._from_w + way * (self.caps_w - self._from_w)

    def settled(self, t_s: float) -> Bools:
        """Whose caps hold fully."""
        return np.asarray(t_s >= self._end_s)

    def power_w(self) -> Floats:
        """The mean draw of each job's devices together over an iteration, watts; shape (jobs,)."""
        return np.asarray(self.there * self.devices * np.where(self.paused, self._idle_w, self._training_w()))

    def slowdown(self) -> Floats:
        """By how much more time an iteration takes than at the limit found, less 1; whether it trains now or not."""
        return self._at(self._tables.slowdown)

    def read(self) -> Readings:
        """What the sensors show now."""
        mean_w, jobs = self._training_w(), len(self.kinds)
        level = self._levels[np.searchsorted(self._phases, self._rng.random(jobs))]
        room = np.maximum(0.0, _OVERSHOOT * self.acting_w / mean_w - 1)
        flat = np.minimum(1.0, room / (self._levels.max() - 1))
        power_w = np.where(self.paused, self._idle_w, mean_w * (1 + (level - 1) * flat))
        noise = 1 + _NOISE * self._rng.standard_normal(jobs)
        return Readings(
            power_w=power_w * self._gain * noise, binding=~self.paused & (self.acting_w < self.found_w - 0.5)
        )

    def _training_w(self) -> Floats:
        return self._at(self._powers_w)

    def _at(self, table: Floats) -> Floats:
        steps = table.shape[1] - 1
        place = (self.acting_w - self.lowest_w) / (self.found_w - self.lowest_w) * steps
        left = np.clip(place.astype(int), 0, steps - 1)
        share = place - left
        return np.asarray((1 - share) * table[self.kinds, left] + share * table[self.kinds, left + 1])
