"""What each device of a job draws on average while something is measured."""

from autocap.measurement.metering import Metered
from autocap.records import Sample


class DevicePower:
    """Adds up each device's energy and time over the samples of a window; pauses of the job are left out."""

    def __init__(self, devices: int) -> None:
        self._energies_j = [0.0] * devices
        self._seconds = 0.0
        self._before: Sample | None = None

    def add(self, metered: Metered) -> None:
        """Add a sample: what a device's own counter has gained or, where it has none, its power."""
        before, self._before = self._before, metered.sample
        if before is None or metered.paused:
            return
        self._seconds += metered.t_s - before.t_s
        for device, (then, now) in enumerate(zip(before.readings, metered.sample.readings, strict=True)):
            if then.energy_j is not None and now.energy_j is not None:
                self._energies_j[device] += now.energy_j - then.energy_j
            elif metered.gained.held:
                self._energies_j[device] += metered.gained.held[device]

    def mean_w(self) -> tuple[float, ...] | None:
        """The mean draw of each device, watts; `None` where there were no samples, or a device showed no power."""
        if self._seconds <= 0 or min(self._energies_j) <= 0:
            return None
        return tuple(energy_j / self._seconds for energy_j in self._energies_j)
