"""Which batch size the next recurrence of a job takes: exploration with pruning, then Thompson sampling.

The rule is that of Zeus (You et al., NSDI 2023, section 4): each batch size is an arm, its reward the cost of training
to the target. Pure: what happened so far goes in, a choice comes out; nothing is kept between calls.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from autocap.errors import UsageError


class Outcome(StrEnum):
    """What became of a recurrence."""

    RUNNING = "running"
    REACHED = "reached"  # the target was reached; `cost` is the cost to target
    FAILED = "failed"  # it ended without the target; `cost` is what it cost in vain
    STOPPED = "stopped"  # stopped early, as it had cost more than it was allowed to; `cost` is what it had cost by then
    LOST = "lost"  # killed or crashed: says nothing of the batch size


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """One call of the job: `number` counts them from 0, in the order in which they were chosen.

    `cost` and `cost_stderr` are in the metric's unit, over the whole run (joules, joule seconds, money …); `None` while
    it runs and where it was lost.
    """

    number: int
    batch_size: int
    outcome: Outcome
    cost: float | None = None
    cost_stderr: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What may be chosen, and how boldly.

    `batch_sizes`: those allowed, ascending and distinct; `default`: the one of them that the job would take by itself,
    which is tried first. `threshold`: a run that costs more than this times the cheapest known is stopped, and its
    batch size pruned (Zeus's beta, 2). `window`: only that many of the latest finished recurrences count, for jobs
    whose data drift; `None`: all.
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
        if not self.threshold > 1:
            raise UsageError(f"a threshold of {self.threshold:g} would stop the cheapest run; pass one above 1")
        if self.window is not None and self.window < 1:
            raise UsageError(f"a window of {self.window} recurrences holds none; pass 1 or more")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The batch size to run with next.

    `most_cost`: what the run may cost before it is to be stopped, in the metric's unit; `None`: no limit is known yet.
    `phase`: "exploring" or "sampling"; `why`: the reason, in words for people.
    """

    batch_size: int
    most_cost: float | None
    phase: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What is thought of the cost to target with one batch size, in the metric's unit.

    `mean` and `stderr` are `None` before the first run that reached the target; `n` counts those in the window.
    `pruned`: the reason in words why it is not tried (for now), else `None`.
    """

    batch_size: int
    mean: float | None
    stderr: float | None
    n: int
    pruned: str | None


def choose(past: Sequence[Recurrence], rules: Rules, rng: np.random.Generator) -> Choice:
    """The batch size of the next recurrence, given all earlier ones, those that still run among them.

    Draws from `rng` while sampling only.
    """
    costs = [one.cost for one in past if one.outcome is Outcome.REACHED and one.cost is not None]
    most = rules.threshold * min(costs) if costs else None
    for size in rules.batch_sizes:
        if all(one.batch_size != size or one.outcome is Outcome.LOST for one in past):
            return Choice(batch_size=size, most_cost=most, phase="exploring", why="not tried yet")
    thought = [one for one in belief(past, rules) if one.mean is not None]
    if not thought:
        return Choice(batch_size=rules.default, most_cost=most, phase="exploring", why="none reached the target yet")
    drawn = [rng.normal(one.mean, one.stderr or 0.0) for one in thought]
    size = thought[int(np.argmin(drawn))].batch_size
    return Choice(batch_size=size, most_cost=most, phase="sampling", why="the lowest of the costs drawn")


def belief(past: Sequence[Recurrence], rules: Rules) -> tuple[Belief, ...]:
    """What is thought of each of `rules.batch_sizes`, in their order."""
    thought = []
    for size in rules.batch_sizes:
        mine = [one for one in past if one.batch_size == size]
        costs = [one.cost for one in mine if one.outcome is Outcome.REACHED and one.cost is not None]
        pruned = mine and not costs and any(one.outcome in (Outcome.FAILED, Outcome.STOPPED) for one in mine)
        spread = float(np.std(costs, ddof=1) / np.sqrt(len(costs))) if len(costs) > 1 else None
        thought.append(
            Belief(
                batch_size=size,
                mean=float(np.mean(costs)) if costs else None,
                stderr=spread,
                n=len(costs),
                pruned="did not reach the target" if pruned else None,
            )
        )
    return tuple(thought)
