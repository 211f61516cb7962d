"""What one whole run of the command used, from its start to its end: the controller of a run whose cap is fixed."""

from autocap.actions import Action, SetCaps
from autocap.energy import EnergyMeter
from autocap.records import Reading, Sample
from autocap.sweep.records import Used

_SILENT_S = 1.0  # a sensor may be so late with its first reading


class GpuMeter:
    """One GPU's energy from the start of a run to its end.

    Between the first and the last point that readings give, energy is theirs; the ends before and after are filled
    with the first and the last power known. A reading that is missing after that counts as such. window_s: what a
    reading is the mean of; one whose window reaches back before the run is not of it.
    """

    def __init__(self, begin_s: float, window_s: float) -> None:
        self._begin_s, self._window_s = begin_s, window_s
        self._meter = EnergyMeter()
        self._points: list[tuple[float, float]] = []  # t_s, energy_j: the first and the newest
        self._power_w: tuple[float, float] | None = None  # the first reading and the last
        self.missing = 0

    def feed(self, t_s: float, reading: Reading) -> None:
        """Add a reading of this GPU, taken at t_s."""
        inside = reading.t_s >= self._begin_s + self._window_s
        if reading.power_w is None:
            late = t_s > self._begin_s + self._window_s + _SILENT_S
            self.missing += late or self._power_w is not None
        elif inside:
            self._power_w = (self._power_w or (reading.power_w,))[0], reading.power_w
        elif reading.energy_j is None:
            return
        point = self._meter.feed(Sample(t_s=t_s, readings=(reading,)))
        if point is not None:
            self._points = [*self._points[:1], (point.t_s, point.energy_j)]

    def energy_j(self, end_s: float) -> float | None:
        """Joules up to the end of the run; `None` where no power was ever read."""
        if self._power_w is None:
            return None
        first_w, last_w = self._power_w
        if not self._points:
            return first_w * (end_s - self._begin_s)
        (first_s, first_j), (last_s, last_j) = self._points[0], self._points[-1]
        return first_w * (first_s - self._begin_s) + last_j - first_j + last_w * (end_s - last_s)


class WholeRun:
    """Holds one cap per GPU from the start of a run to its end, and adds up what the run uses. For `Runner`.

    caps_w: watts, set before the run began. begin_s: when the command was started. window_s: of the sensor.
    trouble: why the run is not comparable with others, once something has happened.
    """

    def __init__(self, caps_w: tuple[float, ...], begin_s: float, window_s: float) -> None:
        self.caps_w = caps_w
        self.trouble: str | None = None
        self._begin_s = begin_s
        self._end_s: float | None = None
        self._gpus = tuple(GpuMeter(begin_s, window_s) for _ in caps_w)

    @property
    def ended_because(self) -> str | None:
        """Why the measuring ended before the run."""
        return self.trouble

    @property
    def used(self) -> Used | None:
        """What the run used, once it has ended; `None` before, or where a GPU gave no reading at all."""
        if self._end_s is None:
            return None
        energies_j = [gpu.energy_j(self._end_s) for gpu in self._gpus]
        known_j = tuple(energy_j for energy_j in energies_j if energy_j is not None)
        if len(known_j) < len(energies_j):
            return None
        missing = sum(gpu.missing for gpu in self._gpus)
        return Used(time_s=self._end_s - self._begin_s, energy_j=known_j, missing=missing)

    def feed(self, sample: Sample) -> list[Action]:
        """Add a sample; nothing is ever to be done about it."""
        for gpu, reading in zip(self._gpus, sample.readings, strict=True):
            gpu.feed(sample.t_s, reading)
        return []

    def interrupted(self, t_s: float) -> list[Action]:
        """The limits were put back for a while: the cap is set again, but the run does not count."""
        self.trouble = self.trouble or "autocap or the command was stopped for a while"
        return [SetCaps(caps_w=self.caps_w)]

    def retune(self, t_s: float) -> list[Action]:
        """There is nothing to tune."""
        return []

    def stop(self, t_s: float, why: str) -> list[Action]:
        """The cap is no longer held."""
        self.trouble = self.trouble or why
        return []

    def close(self, t_s: float) -> list[Action]:
        """The run has ended."""
        self._end_s = t_s
        return []
