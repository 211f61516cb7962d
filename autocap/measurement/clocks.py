"""The SM clock while a window lasts: of the slowest device, which sets the pace of a job on several."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from autocap.records import Measurement, Sample


class Clocks:
    """The clocks of some samples, in their order."""

    def __init__(self) -> None:
        self._t_s: list[float] = []
        self._slowest_hz: list[float] = []  # not a number where not every device told its own

    def add(self, sample: Sample) -> None:
        """Take in the clocks of a sample, unless a device is at rest in it: the clock that is shown then is none that a
        job runs at."""
        if any(reading.utilisation == 0 for reading in sample.readings):
            return
        slowest_hz = min([reading.sm_clock_hz or 0.0 for reading in sample.readings], default=0.0)
        self._t_s.append(sample.t_s)
        self._slowest_hz.append(slowest_hz if slowest_hz > 0 else math.nan)

    def trim(self, start_s: float) -> None:
        """Forget what came before start_s."""
        first = bisect_left(self._t_s, start_s)
        self._t_s, self._slowest_hz = self._t_s[first:], self._slowest_hz[first:]

    def mean_hz(self, start_s: float, end_s: float) -> float | None:
        """The mean between two times; `None` where it is not known throughout."""
        within = self._slowest_hz[bisect_left(self._t_s, start_s) : bisect_right(self._t_s, end_s)]
        mean_hz = sum(within) / len(within) if within else math.nan
        return None if math.isnan(mean_hz) else mean_hz


def pooled_hz(measurements: Sequence[Measurement]) -> float | None:
    """The mean over several windows, by their seconds; `None` where it is not known of all."""
    total = 0.0
    for one in measurements:
        if one.sm_clock_hz is None:
            return None
        total += one.sm_clock_hz * one.duration_s
    return total / sum(one.duration_s for one in measurements)
