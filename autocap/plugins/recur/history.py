"""What has become of the recurrences of a job, and what may be chosen for the next."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from autocap.errors import UsageError

LONGEST_WAIT = 1024  # recurrences
_MEMORY, _CLOSED = 2, 8  # runs out of memory that close a batch size, and recurrences for which they do


class Outcome(StrEnum):
    """What became of a recurrence."""

    RUNNING = "running"
    REACHED = "reached"  # the target was reached; `cost` is the cost to target
    FAILED = "failed"  # it ended without the target; `cost` is what it cost in vain
    STOPPED = "stopped"  # stopped early, as it had cost more than it was allowed to; `cost` is what it had cost by then
    LOST = "lost"  # killed or crashed: says nothing of the batch size
    OUT_OF_MEMORY = "out of memory"  # as lost, until it comes again


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """One call of the job: `number` counts them from 0, in the order in which they were chosen.

    `cost` and `cost_stderr` are in the metric's unit, over the whole run (joules, joule seconds, money …); `None` while
    it runs; that of a lost one is what it had cost by then. A run without a cost says nothing, except that it has
    failed. `search_cost`: how much of the cost the search for a cap took, beyond what the cap that it came to would
    have; `None` where it searched and that is not known. `cost_stderr` is that of `cost` less `search_cost`.
    """

    number: int
    batch_size: int
    outcome: Outcome
    cost: float | None = None
    cost_stderr: float | None = None
    search_cost: float | None = 0.0

    def __post_init__(self) -> None:
        numbers = (self.cost, self.cost_stderr, self.search_cost)
        if not all(math.isfinite(value) for value in numbers if value is not None):
            raise ValueError(f"recurrence {self.number} cost {self.cost} ± {self.cost_stderr}, which is no number")

    @property
    def is_lost(self) -> bool:
        """Whether it ended, and neither by its work nor by its cost."""
        return self.outcome in (Outcome.LOST, Outcome.OUT_OF_MEMORY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What may be chosen, and how boldly.

    `batch_sizes`: those allowed, ascending and distinct; `default`: the one of them that the job would take by itself,
    which is tried first. `threshold`: a run that costs more than this times the cheapest known is stopped, and its
    batch size pruned (Zeus's beta, 2). `window`: for jobs whose data drift, the number of finished recurrences after
    which a cost counts half as much as a new one; `None`: all count the same.
    """

    batch_sizes: tuple[int, ...]
    default: int
    threshold: float = 2.0
    window: int | None = None

    def __post_init__(self) -> None:
        if not self.batch_sizes or list(self.batch_sizes) != sorted({size for size in self.batch_sizes if size > 0}):
            raise UsageError(f"batch sizes {self.batch_sizes} are no ascending list of distinct whole numbers above 0")
        if self.default not in self.batch_sizes:
            sizes = ", ".join(map(str, self.batch_sizes))
            raise UsageError(f"the default batch size {self.default} is none of those to try: {sizes}")
        if not 1 < self.threshold < math.inf:
            raise UsageError(f"a threshold of {self.threshold:g} would stop the cheapest run, or none; pass 2, or so")
        if self.window is not None and self.window < 1:
            raise UsageError(f"a window of {self.window} recurrences holds none; pass 1 or more")


def out_of_memory(batch_size: int, past: Sequence[Recurrence]) -> list[Recurrence]:
    """The runs with batch sizes up to this one that ran out of memory, where it sufficed for none as large."""
    enough = max((one.batch_size for one in past if one.outcome is Outcome.REACHED), default=0)
    return [one for one in past if one.outcome is Outcome.OUT_OF_MEMORY and enough < one.batch_size <= batch_size]


def closed_for(short: int) -> int:
    """For how many recurrences so many runs out of memory close a batch size: twice may be chance, as where somebody
    else used the card, so that it is tried again, after twice as many each time."""
    return min(_CLOSED * 2 ** min(short - _MEMORY, 30), LONGEST_WAIT) if short >= _MEMORY else 0
