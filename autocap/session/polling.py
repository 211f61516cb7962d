"""What it costs the job that its devices are read: found out once, by leaving them alone for some seconds now and then.

A call into a driver may take a lock that the launch of a kernel waits for. While a cap is held counters tell the
energy without a reading, and the job's own count of its iterations whether it is faster meanwhile.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from autocap.clock import Clock
from autocap.measurement.batches import student_factor
from autocap.records import GpuInfo, Sample, StepReading
from autocap.session.roles import Sampler

_AFTER_S = 300.0  # of steady training: of a short job nothing is compared
_STINT_S = 8.0  # somebody else's limit may stay unseen for so long
_TURNS, _FEWEST = 24, 12  # read, left alone, read; and of them those that must have told something
_APART = 0.618  # of a stint, between two turns: what the job does every so many seconds meets another one each time
_MEDIAN_ERROR, _NORMAL = 1.2533, 1.4826  # of a median, over a mean's; standard deviations a median absolute deviation
_MATTERS, _SURE = 0.001, 2.0  # of the job's speed, and standard errors
_LEAST_HZ, _HELD_HZ = 1.0, 2.0  # the lowest --sample-hz; without it fewer are taken while a cap is held


class PollingComparison:
    """A sampler that makes the comparison and notes what it costs, where it is more than a thousandth.

    sampler: reads the devices. steps: reads the job's count of its iterations, and no device. is_steady: whether
    nothing is measured and iterations and energy are counted, so that for some seconds nobody needs a reading. pace:
    seconds between samples.
    """

    def __init__(
        self,
        sampler: Sampler,
        *,
        clock: Clock,
        steps: Callable[[], StepReading | None],
        is_steady: Callable[[], bool],
        pace: Callable[[], float],
    ) -> None:
        self._sampler, self._clock, self._steps = sampler, clock, steps
        self._is_steady, self._pace = is_steady, pace
        self._next_s = math.inf  # when a turn may begin
        self._stints: list[list[StepReading]] = []  # of the turn under way
        self._since_s = 0.0  # of the last of them
        self._turns = 0
        self._costs: list[float] = []  # shares of the speed when left alone, one of each turn
        self._rate_hz = 0.0
        self._said: list[str] = []

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        return self._sampler.gpus

    def samples(self) -> Iterable[Sample]:
        """As Sampler has it; none while the devices are left alone."""
        return () if self._leaves_alone() else self._sampler.samples()

    def notes(self) -> tuple[str, ...]:
        """As Sampler has it."""
        said, self._said = self._said, []
        return (*said, *self._sampler.notes())

    def _leaves_alone(self) -> bool:
        if self._turns == _TURNS:
            return False
        now_s, is_steady = self._clock.now(), self._is_steady()
        if is_steady and self._next_s == math.inf:
            self._next_s = now_s + _AFTER_S
        if now_s < self._next_s:
            return False
        steps = self._steps() if is_steady else None
        if steps is None or steps.suspended:
            if self._stints:
                self._end_turn(now_s)
            return False
        if not self._stints:
            self._begin_stint(now_s)
        if steps.t_s >= self._since_s:
            self._stints[-1].append(steps)
        if now_s - self._since_s >= _STINT_S:
            if len(self._stints) < 3:
                self._begin_stint(now_s)
            else:
                self._take_turn()
                self._end_turn(now_s)
        return len(self._stints) == 2

    def _begin_stint(self, now_s: float) -> None:
        self._stints.append([])
        self._since_s = now_s

    def _take_turn(self) -> None:
        """Each turn counts by itself, so that a job that gets slowly faster or slower shows no cost."""
        before, alone, after = map(_speed, self._stints)
        if before is not None and alone is not None and after is not None:
            self._costs.append(1 - (before + after) / 2 / alone)
            self._rate_hz = 1 / self._pace()

    def _end_turn(self, now_s: float) -> None:
        self._turns += 1
        self._stints, self._next_s = [], now_s + self._turns * _APART % 1 * _STINT_S
        if self._turns == _TURNS and len(self._costs) >= _FEWEST:
            self._judge()

    def _judge(self) -> None:
        """By medians: a checkpoint makes one stint far longer, and says nothing of the others."""
        cost = median(self._costs)
        spread = _NORMAL * median(abs(one - cost) for one in self._costs)
        few = len(self._costs)
        error = student_factor(few - 1) * _MEDIAN_ERROR * spread / math.sqrt(few)
        if cost - _SURE * error > _MATTERS:
            self._said.append(
                f"reading the devices {self._rate_hz:.3g} times a second costs the job {100 * cost:.2f} ± "
                f"{max(0.01, 100 * error):.2f} % of its speed, by how it ran while they were left alone; "
                f"{_remedy(self._rate_hz)}"
            )


def _speed(stint: Sequence[StepReading]) -> float | None:
    """Whole iterations a second, those alone that began and ended in a stint; `None` where there were too few."""
    if len(stint) < 2 or stint[-1].t_s <= stint[0].t_s or stint[-1].count <= stint[0].count:
        return None
    return (stint[-1].count - stint[0].count) / (stint[-1].t_s - stint[0].t_s)


def _remedy(rate_hz: float) -> str:
    if rate_hz > _HELD_HZ:
        return "leave out --sample-hz, or pass a lower rate"
    if rate_hz > _LEAST_HZ:
        return f"pass --sample-hz {_LEAST_HZ:g} to have them read less often, which makes searches longer"
    return "they cannot be read less often"
