"""Which caps the devices of a job take as they are, as far as their limits have shown."""

import math
from collections.abc import Callable, Sequence

from autocap.devices.limit_steps import LimitSteps, on_steps
from autocap.errors import LimitOutside
from autocap.records import same_limit


class TakenCaps:
    """steps: what each device was seen to make of limits. least_w: the lowest limit that all take, `None` while none
    was too low. most_w: at what something outside autocap holds one of them, watts."""

    def __init__(self, steps: Sequence[LimitSteps]) -> None:
        self._steps = steps
        self.least_w: float | None = None
        self.most_w = math.inf

    def among(self, settings: Sequence[float]) -> tuple[float, ...]:
        """What becomes of caps, watts, ascending; the lowest limit that is taken is one, as far as they reach so
        high."""
        low_w = self.least_w
        found_w = [
            setting for setting in settings if low_w is None or (setting > low_w and not same_limit(setting, low_w))
        ]
        if low_w is not None and low_w < max(settings):
            found_w.append(low_w)
        within = [setting for setting in found_w if setting <= self.most_w]
        return on_steps(within, self._steps) if within else ()

    def above_refused(
        self, settings: Sequence[float], refused_w: float, set_caps: Callable[[float], object]
    ) -> tuple[float, ...]:
        """The same where a device refuses one of them, and so all below; the lowest that is not is found by setting
        some."""
        above_w = [setting for setting in self.among(settings) if setting > refused_w]
        low, high = 0, len(above_w)
        while low < high:
            middle = (low + high) // 2
            try:
                set_caps(above_w[middle])
                high = middle
            except LimitOutside:
                low = middle + 1
        self.least_w = above_w[low] if above_w[low:] else math.inf
        return tuple(above_w[low:])
