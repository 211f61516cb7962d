"""What each device of a job draws on average while something is measured."""

from dataclasses import replace

from autocap.records import Sample
from autocap.window import EnergyMeter


class DeviceDraws:
    """Fed with the samples of a window, it adds up each device's energy and time; pauses of the job are left out."""

    def __init__(self, devices: int) -> None:
        self._meters = [EnergyMeter() for _ in range(devices)]
        self._energies_j = [0.0] * devices
        self._seconds = 0.0
        self._last_s: float | None = None

    def feed(self, sample: Sample, *, paused: bool) -> None:
        """Add a sample. paused: the job did not train since the one before."""
        before_j = [meter.energy_j for meter in self._meters]
        for meter, reading in zip(self._meters, sample.readings, strict=True):
            meter.feed(replace(sample, readings=(reading,)))
        if self._last_s is not None and not paused:
            self._seconds += sample.t_s - self._last_s
            for device, (meter, before) in enumerate(zip(self._meters, before_j, strict=True)):
                self._energies_j[device] += meter.energy_j - before
        self._last_s = sample.t_s

    def mean_w(self) -> tuple[float, ...] | None:
        """The mean draw of each device, watts; `None` where nothing was fed, or a device showed no power."""
        if self._seconds <= 0 or min(self._energies_j) <= 0:
            return None
        return tuple(energy_j / self._seconds for energy_j in self._energies_j)
