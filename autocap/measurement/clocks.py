"""The SM clock while a window lasts: of the slowest device, which sets the pace of a job on several."""

from collections.abc import Sequence

from autocap.records import Measurement, Sample


class Clocks:
    """The mean over some samples; unknown as soon as a device does not tell."""

    def __init__(self) -> None:
        self._sum_hz: float | None = 0.0
        self._count = 0

    def add(self, sample: Sample) -> None:
        """Take in the clocks of a sample."""
        if self._sum_hz is None:
            return
        slowest_hz = min([reading.sm_clock_hz or 0.0 for reading in sample.readings], default=0.0)
        self._sum_hz = self._sum_hz + slowest_hz if slowest_hz > 0 else None
        self._count += 1

    @property
    def mean_hz(self) -> float | None:
        """Hertz; `None` where it is not known."""
        return self._sum_hz / self._count if self._sum_hz and self._count else None


def pooled_hz(measurements: Sequence[Measurement]) -> float | None:
    """The mean over several windows, by their seconds; `None` where it is not known of all."""
    total = 0.0
    for one in measurements:
        if one.sm_clock_hz is None:
            return None
        total += one.sm_clock_hz * one.duration_s
    return total / sum(one.duration_s for one in measurements)
