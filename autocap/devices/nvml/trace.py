"""What to make of one GPU's power readings as they come: fresh ones, repeats, zeros and stuck sensors. Pure.

A driver answers every question, with the value that it measured last; its time stamps are often those of the question.
So a reading is fresh when its value moved, or when the sensor must have measured again since. A repeat keeps the stamp
of the first time it was seen: to whoever integrates it is held power, to a period detector it is nothing new.
"""

import math

_PLATEAU_UPDATES = 1.5  # an equal value is taken for a new reading once the sensor is this far past its update
_STUCK_S = 5.0  # noise moves a live sensor's milliwatts long before this
_STUCK_UPDATES = 30.0
_LOOK_S = 1.0  # between two looks more time does not count: a call that takes seconds is no sensor that is stuck
_COUNTER_AGREES = 0.05  # a sensor of whole watts may well stand still; its energy counter then goes on as it says


class PowerTrace:
    """The power readings of one GPU, in the order in which they were taken.

    update_s: how often the sensor measures. gap: why the newest reading is none, `None` where it is one.
    """

    def __init__(self, update_s: float) -> None:
        self.update_s = update_s
        self.gap: str | None = None
        self._stamp_s = -math.inf
        self._power_w: float | None = None
        self._looked_s = self._still_s = 0.0  # when it was read last; for how long it was seen not to move
        self._moved_s = 0.0  # when the value last moved, and the energy counter then
        self._moved_j: float | None = None

    def take(
        self, stamp_s: float, power_w: float | None, *, energy_j: float | None, busy: bool
    ) -> tuple[float, float | None]:
        """The reading's own time and its watts, `None` for a gap.

        stamp_s: when the driver says it measured, else now. power_w: as answered, `None` for no answer. energy_j: the
        energy counter, where it is trusted. busy: whether the GPU is at work, as far as is known.
        """
        stamp_s = max(stamp_s, self._stamp_s)
        if power_w is None or not power_w > 0:
            self.gap = "gives no power reading" if power_w is None else "reads 0 W"
            self._stamp_s, self._power_w = stamp_s, None
            return stamp_s, None
        self._still_s += min(stamp_s - self._looked_s, _LOOK_S)
        self._looked_s = stamp_s
        if power_w != self._power_w:
            self._power_w, self._stamp_s = power_w, stamp_s
            self._moved_s, self._moved_j, self._still_s = stamp_s, energy_j, 0.0
        elif stamp_s - self._stamp_s > _PLATEAU_UPDATES * self.update_s:
            self._stamp_s = stamp_s
        if busy and self._is_stuck(power_w, energy_j):
            self.gap = f"has read {power_w:g} W without a change for {stamp_s - self._moved_s:.0f} s: it is stuck"
            return self._stamp_s, None
        self.gap = None
        return self._stamp_s, power_w

    def _is_stuck(self, power_w: float, energy_j: float | None) -> bool:
        still_s = self._stamp_s - self._moved_s
        if min(still_s, self._still_s) < max(_STUCK_S, _STUCK_UPDATES * self.update_s):
            return False
        if energy_j is None or self._moved_j is None:
            return True
        return abs((energy_j - self._moved_j) / still_s / power_w - 1.0) > _COUNTER_AGREES


class EnergyTrace:
    """The energy counter of one GPU: held where it cannot be read for a moment, dropped where it cannot be believed.

    trouble: why it was dropped, `None` while it is believed. A counter that is dropped stays so: energy that is counted
    half by one means and half by another is worth less than either.
    """

    def __init__(self) -> None:
        self.trouble: str | None = None
        self._counted_j: float | None = None
        self._moved_s = math.inf
        self._looked_s = self._still_s = 0.0  # when it was read last; for how long it was seen not to move

    def expect(self, t_s: float) -> None:
        """There is a counter, as was just seen."""
        self._moved_s = self._looked_s = t_s

    def take(self, t_s: float, counted_j: float | None, power_w: float | None) -> float | None:
        """The counter's joules; `None` once it is dropped, or before it was read. power_w: read at the same time."""
        if self.trouble is not None:
            return None
        before_j = self._counted_j
        if self._moved_s < math.inf:
            self._still_s += min(t_s - self._looked_s, _LOOK_S)
        self._looked_s = t_s
        if counted_j is not None and before_j is not None and counted_j < before_j:
            self.trouble = f"went back from {before_j:.0f} J to {counted_j:.0f} J"
        elif counted_j is not None and counted_j != before_j:
            self._counted_j, self._moved_s, self._still_s = counted_j, t_s, 0.0
        elif power_w is not None and self._still_s > _STUCK_S:
            self.trouble = f"has not moved for {t_s - self._moved_s:.0f} s"
        return None if self.trouble is not None else self._counted_j

    def drop(self, why: str) -> None:
        self.trouble = why
