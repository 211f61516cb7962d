"""What each device of a job draws on average while something is measured."""

from dataclasses import replace

from autocap.measurement.energy import EnergyMeter
from autocap.records import Sample


class DevicePower:
    """Fed with the samples of a window, it adds up each device's energy and time; pauses of the job are left out."""

    def __init__(self, devices: int) -> None:
        self._meters = [EnergyMeter() for _ in range(devices)]
        self._energies_j = [0.0] * devices
        self._seconds = 0.0
        self._last_s: float | None = None

    def feed(self, sample: Sample, *, paused: bool) -> None:
        """Add a sample. paused: the job did not train since the one before."""
        trained = self._last_s is not None and not paused
        for device, (meter, reading) in enumerate(zip(self._meters, sample.readings, strict=True)):
            before_j = meter.energy_j
            meter.feed(Sample(t_s=sample.t_s, readings=(replace(reading, beside_j=None),)))
            self._energies_j[device] += meter.energy_j - before_j if trained else 0.0
        self._seconds += sample.t_s - self._last_s if self._last_s is not None and trained else 0.0
        self._last_s = sample.t_s

    def mean_w(self) -> tuple[float, ...] | None:
        """The mean draw of each device, watts; `None` where nothing was fed, or a device showed no power."""
        if self._seconds <= 0 or min(self._energies_j) <= 0:
            return None
        return tuple(energy_j / self._seconds for energy_j in self._energies_j)
