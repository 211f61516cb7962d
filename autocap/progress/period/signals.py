"""What one device of a job shows while one cap holds: its readings, and the other signals that may bear them out.

One device and not the sum: the devices of a job iterate together, but their sensors update at different times, so that
a sum of held readings is smeared over an update. Energy is still summed where it is measured.
"""

import numpy as np
from numpy.typing import NDArray

from autocap.records import Sample, SensorInfo

Floats = NDArray[np.float64]
_BLURRED_S = 0.5  # a window from which on a sensor's average hides the cycle
_EVENED = 11  # moves of a counter that are taken together
_MISSING = float("nan")


class CapSignals:
    """Samples of one stretch at constant caps, kept as columns per device.

    settled_s: what is read before is left out.
    """

    def __init__(self, sensor: SensorInfo, settled_s: float) -> None:
        self._sensor, self._settled_s = sensor, settled_s
        self._t_s: list[float] = []
        self._stamps: list[list[float]] = []
        self._watts: list[list[float]] = []
        self._energies: list[list[float]] = []
        self._utilisations: list[list[float]] = []
        self._clocks: list[float] = []

    def take(self, sample: Sample) -> None:
        """Add a sample; one with a missing reading is a gap."""
        readings = sample.readings
        if sample.t_s < self._settled_s or any(reading.power_w is None for reading in readings):
            return
        self._t_s.append(sample.t_s)
        self._stamps.append([reading.t_s for reading in readings])
        self._watts.append([_number(reading.power_w) for reading in readings])
        self._energies.append([_number(reading.energy_j) for reading in readings])
        self._utilisations.append([_number(reading.utilisation) for reading in readings])
        clocks = [reading.sm_clock_hz for reading in readings if reading.sm_clock_hz is not None]
        if clocks:
            self._clocks.append(sum(clocks) / len(clocks))

    @property
    def span_s(self) -> float:
        return self._t_s[-1] - self._t_s[0] if self._t_s else 0.0

    @property
    def clock_hz(self) -> float | None:
        """Mean SM clock of all devices; `None` where none reports it."""
        return sum(self._clocks) / len(self._clocks) if self._clocks else None

    @property
    def blurred(self) -> bool:
        """Whether the readings are averages too long to show a cycle, so that the energy counter has to."""
        return self._sensor.window_s >= _BLURRED_S

    def liveliest(self) -> int:
        """The device whose power varies most."""
        return int(np.argmax(np.std(np.array(self._watts), axis=0))) if self._watts else 0

    def signal(self, device: int) -> tuple[Floats, Floats, float, float] | None:
        """Times, watts, update and window, seconds, of what a period is looked for in; `None` where the readings are
        blurred and there is no counter. A long average has no response at whole fractions of its window."""
        if not self.blurred:
            return *self._fresh(device), self._sensor.update_s, self._sensor.window_s
        counted = self.counted(device)
        if counted is None:
            return None
        span_s = float(np.median(np.diff(counted[0])))
        return *counted, span_s, span_s

    def counted(self, device: int) -> tuple[Floats, Floats] | None:
        """Mean power between two moves of the energy counter, with the time of the later one, each of shape (n,)."""
        t_s, energy_j = np.array(self._t_s), np.array(self._energies).reshape(len(self._t_s), -1)[:, device]
        moved = np.flatnonzero(np.diff(energy_j) > 0) + 1
        if len(moved) < 3:
            return None
        stamps_s = _evened(t_s[moved])
        return stamps_s[1:], np.diff(energy_j[moved]) / np.diff(stamps_s)

    def witnesses(self, device: int) -> list[tuple[Floats, Floats]]:
        """Other signals of the device, each as (times, values)."""
        found = []
        counted = self.counted(device)
        if self.blurred:
            found.append(self._fresh(device))
        elif counted is not None:
            found.append(counted)
        utilisation = np.array(self._utilisations)[:, device]
        if np.isfinite(utilisation).all():
            found.append((np.array(self._t_s), utilisation))
        return found

    def shorten(self) -> None:
        """Forget the older half."""
        half = len(self._t_s) // 2
        for column in (self._t_s, self._stamps, self._watts, self._energies, self._utilisations):
            del column[:half]
        del self._clocks[: len(self._clocks) // 2]

    def _fresh(self, device: int) -> tuple[Floats, Floats]:
        """Readings with their own stamps, each once."""
        stamps_s, watts = np.array(self._stamps)[:, device], np.array(self._watts)[:, device]
        fresh = np.concatenate(([True], np.diff(stamps_s) > 0)) & (stamps_s >= self._settled_s)
        return stamps_s[fresh], watts[fresh]


def _evened(t_s: Floats) -> Floats:
    """When a counter that moves regularly did so, shape (n,), seconds: a move is only noticed at the next sample, so
    each stamp is taken against its neighbours'. Where they are far apart, the stamps stay as they are."""
    line = np.linspace(t_s[0], t_s[-1], len(t_s))
    padded = np.pad(t_s - line, _EVENED // 2, mode="edge")
    evened = line + np.convolve(padded, np.full(_EVENED, 1 / _EVENED), mode="valid")
    near = np.abs(evened - t_s) < 0.7 * float(np.median(np.diff(t_s)))
    return evened if near.all() else t_s


def _number(value: float | None) -> float:
    return _MISSING if value is None else value
