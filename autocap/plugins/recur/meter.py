"""What a job has used by a moment, from its start on: its energy out of the samples, its time by the clock."""

from bisect import bisect_left
from dataclasses import dataclass

from autocap.events import DeviceFound
from autocap.measurement.energy import EnergyMeter
from autocap.plugins.recur.record import Spent
from autocap.records import Sample

_LATE_S = 10.0  # after the last sample; until then its power is taken to go on
_MOST_UNKNOWN = 0.05  # of the time that is metered; with more the energy counts as not known
_KEPT = 512  # points, of the last minutes
_FOR_MEAN = 10  # points whose mean power goes on: within one, the sensor may not have had a new reading


@dataclass(frozen=True, slots=True)
class _Point:
    t_s: float
    energy_j: float
    unknown_s: float


class JobMeter:
    """began_s: when the job was started. Energy counts from the first sample on, when the job uses a device."""

    def __init__(self, began_s: float) -> None:
        self._began_s = began_s
        self._energy = EnergyMeter()
        self._points: list[_Point] = []
        self._first_s: float | None = None
        self._unknown_s = 0.0
        self._found: DeviceFound | None = None

    @property
    def gpus(self) -> tuple[str, ...]:
        """The models of the devices; none before they are found."""
        return () if self._found is None else tuple(gpu.name for gpu in self._found.gpus)

    @property
    def last_s(self) -> float:
        """Of the last sample; of the job's start before there is one."""
        return self._points[-1].t_s if self._points else self._began_s

    def found(self, devices: DeviceFound) -> None:
        """On which devices it runs."""
        self._found = devices

    def add(self, sample: Sample) -> None:
        """Take in the next sample."""
        was_known = self._energy.known
        self._energy.add(sample)
        if self._first_s is None:
            self._first_s = sample.t_s
        elif self._energy.gained.total <= 0 and not (self._energy.known and was_known):
            self._unknown_s += sample.t_s - self.last_s
        self._points.append(_Point(sample.t_s, self._energy.energy_j, self._unknown_s))
        if len(self._points) > _KEPT:
            del self._points[: _KEPT // 2]

    def spent(self, t_s: float) -> Spent | None:
        """By a moment; `None` where the energy is not known, for want of a device or of its power.

        The part of the time for which the power is not known is taken at the mean of the rest, and that much is its
        standard error.
        """
        if self._found is None or self._first_s is None or len(self._points) < 2 or t_s <= self._first_s:
            return None
        energy_j, unknown_s = self._at(t_s)
        metered_s = t_s - self._first_s
        known_s = metered_s - unknown_s
        if known_s < (1 - _MOST_UNKNOWN) * metered_s:
            return None
        guessed_j = energy_j / known_s * unknown_s
        return Spent(
            energy_j=energy_j + guessed_j,
            time_s=t_s - self._began_s,
            devices=len(self._found.gpus),
            most_w=sum(gpu.cap_range.max_w for gpu in self._found.gpus),
            energy_stderr_j=guessed_j,
        )

    def _at(self, t_s: float) -> tuple[float, float]:
        """Joules by a moment, and the seconds for which they are not known."""
        before, after = self._around(t_s)
        last = self._points[-1]
        if t_s > last.t_s + _LATE_S:  # nobody has looked since
            return last.energy_j, last.unknown_s + t_s - last.t_s
        share = (t_s - before.t_s) / max(after.t_s - before.t_s, 1e-9)
        energy_j = before.energy_j + share * (after.energy_j - before.energy_j)
        return max(0.0, energy_j), before.unknown_s if share <= 1 else after.unknown_s

    def _around(self, t_s: float) -> tuple[_Point, _Point]:
        """The two points around a moment, or the last two, whose power goes on."""
        points = self._points
        if t_s > points[-1].t_s:
            return points[max(0, len(points) - 1 - _FOR_MEAN)], points[-1]
        after = max(1, bisect_left(points, t_s, key=lambda point: point.t_s))
        return points[after - 1], points[after]
