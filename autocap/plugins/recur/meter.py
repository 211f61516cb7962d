"""What a job has used by a moment, from its start on: its energy out of the samples, its time by the clock; and what of
that the search for a cap took, beyond what the same iterations take once it is over.

Between the running totals of a run, some seconds apart, so many iterations were made with so much time and energy,
pauses left out. What they take while a cap is held is that of the whole run, had there been no search. The error is
that of the mean of those that were held.
"""

import math
from bisect import bisect_left
from dataclasses import dataclass, replace

from autocap.events import DeviceFound, Event, ProgressFound, State, StateEntered, Tally, TrialStarted
from autocap.measurement.energy import EnergyMeter
from autocap.plugins.recur.record import SearchSpent, Spent
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


_FEWEST = 3  # stretches that were held, for a mean with an error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """Sums over stretches: how many, iterations, seconds and joules, and those squared over the iterations."""

    count: int = 0
    iterations: float = 0.0
    seconds: float = 0.0
    joules: float = 0.0
    seconds_2: float = 0.0
    joules_2: float = 0.0

    def error(self, total: float, squares: float) -> float:
        """Standard error of a mean per iteration."""
        spread = max(0.0, squares - total**2 / self.iterations) / (self.count - 1)
        return math.sqrt(spread / self.iterations)


class Searching:
    """Is told all events of a run. searched: whether a cap was tried."""

    def __init__(self) -> None:
        self.searched = False
        self._counts = True  # what is counted are iterations
        self._last: Tally | None = None
        self._total = (0.0, 0.0, 0.0)  # iterations, seconds, joules
        self._holding = False  # since the last totals
        self._state: State | None = None
        self._held = _Held()

    def event(self, event: Event) -> None:
        """Take in what is recorded."""
        match event:
            case TrialStarted():
                self.searched = True
            case ProgressFound(confidence=confidence):
                self._counts = self._counts and confidence == "high"
            case StateEntered(state=state):
                self._state = state
                self._holding = self._holding and state is State.HOLDING
            case Tally():
                self._take(event)

    @property
    def spent(self) -> SearchSpent | None:
        """What it took so far; `None` where that cannot be told, as where the job ended too soon after it."""
        held = self._held
        if not self.searched or not self._counts or held.count < _FEWEST:
            return None
        iterations, seconds, joules = self._total
        rest = iterations - held.iterations
        return SearchSpent(
            energy_j=joules - iterations * held.joules / held.iterations,
            time_s=seconds - iterations * held.seconds / held.iterations,
            energy_stderr_j=rest * held.error(held.joules, held.joules_2),
            time_stderr_s=rest * held.error(held.seconds, held.seconds_2),
        )

    def _take(self, tally: Tally) -> None:
        last, self._last = self._last, tally
        if last is not None and last.since_s != tally.since_s:
            self._counts = False  # what is counted is another thing from here on
        before = (0.0, 0.0, 0.0) if last is None else _active(last)
        iterations, seconds, joules = (now - then for now, then in zip(_active(tally), before, strict=True))
        self._total = (self._total[0] + iterations, self._total[1] + seconds, self._total[2] + joules)
        if self._holding and iterations > 0:
            held = self._held
            self._held = replace(
                held,
                count=held.count + 1,
                iterations=held.iterations + iterations,
                seconds=held.seconds + seconds,
                joules=held.joules + joules,
                seconds_2=held.seconds_2 + seconds**2 / iterations,
                joules_2=held.joules_2 + joules**2 / iterations,
            )
        self._holding = self._state is State.HOLDING


def _active(tally: Tally) -> tuple[float, float, float]:
    return (
        tally.iterations - tally.paused_iterations,
        tally.counted_s - tally.paused_s,
        tally.counted_j - tally.paused_j,
    )
