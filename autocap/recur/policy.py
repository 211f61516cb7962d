"""Which batch size the next recurrence of a job takes: exploration with pruning, then Gaussian Thompson sampling.

As in Zeus (You et al., NSDI 2023, section 4): each batch size is an arm, what it costs is the cost of training to the
target, runs that cost too much are stopped, and what has failed is not tried again. Otherwise than there

- exploration goes from the default to both sides as long as what it passes may still be the best: the cost is taken to
  have one valley, as their curves have, and nothing is tried that lies behind a batch size surely worse than the best;
- each batch size is tried once, as the scatter from run to run is taken to be the same share of the cost for all of
  them; two runs of each, from which Zeus takes a variance of its own, may agree by chance;
- a target missed now and then counts as what was spent for each one reached;
- with a window, what is old counts less and is less sure, so that what was given up is looked at again.

Pure: what happened so far goes in, a choice comes out; nothing is kept between calls.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

import numpy as np

from autocap.errors import UsageError

# Chosen on the tables of `python -m bench recurring`.
_SCATTER, _SCATTER_DOF = 0.1, 4.0  # from run to run, share of the cost, before any was seen; and what that is worth
_SIGMAS = 2.0  # beyond the best, from which on nothing further out is tried
_BOLD, _BOLD_MOVING = 0.5, 0.7  # of the error, when drawing: jobs recur tens of times, and not for ever
_LOST_OFTEN = 3  # runs lost with a batch size that has shown nothing else, which may be what kills them


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
    it runs and where it was lost. A run without a cost says nothing, except that it has failed.
    """

    number: int
    batch_size: int
    outcome: Outcome
    cost: float | None = None
    cost_stderr: float | None = None

    def __post_init__(self) -> None:
        if not all(math.isfinite(value) for value in (self.cost, self.cost_stderr) if value is not None):
            raise ValueError(f"recurrence {self.number} cost {self.cost} ± {self.cost_stderr}, which is no number")


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

    `mean` and `stderr` are `None` before the first run that reached the target; `n` counts those runs.
    `pruned`: the reason in words why it is not tried (for now), else `None`.
    """

    batch_size: int
    mean: float | None
    stderr: float | None
    n: int
    pruned: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Arm:
    """The finished runs with one batch size. n: those that reached the target. mean: what was spent for each target
    reached, and where there is none, what a run had cost, which is a lower bound; `None` without any.

    stderr: of the mean, age counted in; young_stderr: as if all were new. failed: whether runs have ended without the
    target, or were all lost, and never one with it.
    """

    batch_size: int
    n: int = 0
    mean: float | None = None
    stderr: float = 0.0
    young_stderr: float = 0.0
    failed: bool = False

    @property
    def tried(self) -> bool:
        return self.mean is not None or self.failed

    @property
    def cost(self) -> float:
        """The mean; infinite without one."""
        return math.inf if self.mean is None or self.failed else self.mean

    def worse(self, best: "_Arm") -> bool:
        """Whether it is surely worse than the best, as it is where it has never reached the target."""
        return not self.n or self.cost - best.cost > _SIGMAS * math.hypot(self.young_stderr, best.young_stderr)


def choose(past: Sequence[Recurrence], rules: Rules, rng: np.random.Generator) -> Choice:
    """The batch size of the next recurrence, given all earlier ones, those that still run among them.

    While a batch size is being tried for the first time, others get the best known so far, as in Zeus.
    Draws from `rng` while sampling only.
    """
    arms = _arms(past, rules)
    best = _best(arms)
    tried = {arm.batch_size for arm in arms if arm.tried}
    trying = [one.batch_size for one in past if one.outcome is Outcome.RUNNING and one.batch_size not in tried]
    if best is None:
        return _first(arms, rules, trying)
    most = rules.threshold * best.cost if best.cost > 0 else None
    untried = _untried(arms, best)
    if untried and trying:
        why = f"the best so far, while {trying[0]} is being tried"
        return Choice(batch_size=best.batch_size, most_cost=most, phase="exploring", why=why)
    if untried:
        beside, size = min(untried)[1:]
        why = f"not tried yet, and {beside} beside it may be the best"
        return Choice(batch_size=size, most_cost=most, phase="exploring", why=why)
    drawn_from = [
        arm for arm in arms if arm.n or (rules.window is not None and arm.mean is not None and not arm.failed)
    ]
    errors = np.array([arm.stderr for arm in drawn_from]) * (_BOLD if rules.window is None else _BOLD_MOVING)
    drawn = rng.normal([arm.cost for arm in drawn_from], errors)
    size = drawn_from[int(np.argmin(drawn))].batch_size
    return Choice(batch_size=size, most_cost=most, phase="sampling", why="the lowest of the costs drawn")


def belief(past: Sequence[Recurrence], rules: Rules) -> tuple[Belief, ...]:
    """What is thought of each of `rules.batch_sizes`, in their order."""
    arms = _arms(past, rules)
    best = _best(arms)
    open_to = {size for _, _, size in _untried(arms, best)} if best else {arm.batch_size for arm in arms}
    return tuple(
        Belief(
            batch_size=arm.batch_size,
            mean=arm.mean if arm.n else None,
            stderr=arm.stderr if arm.n else None,
            n=arm.n,
            pruned=_reason(arm, arm.batch_size in open_to),
        )
        for arm in arms
    )


def _reason(arm: _Arm, may_be_tried: bool) -> str | None:
    if arm.n:
        return None
    if arm.failed:
        return "its runs ended without the target"
    if arm.mean is not None:
        return "a run cost too much and was stopped"
    return None if may_be_tried else "not tried: what lies before it costs too much"


def _first(arms: Sequence[_Arm], rules: Rules, trying: Sequence[int]) -> Choice:
    """Before any target was reached: the default, and where that has failed the others, nearest first."""
    place = rules.batch_sizes.index(rules.default)
    near = sorted(range(len(arms)), key=lambda other: (abs(other - place), other))
    left = [arms[other].batch_size for other in near if not arms[other].tried]
    first = rules.default in left
    size = rules.default if first else next((size for size in left if size not in trying), rules.default)
    why = "the default comes first" if first else "none has reached the target so far"
    return Choice(batch_size=size, most_cost=None, phase="exploring", why=why)


def _best(arms: Sequence[_Arm]) -> _Arm | None:
    return min((arm for arm in arms if arm.n), key=lambda arm: arm.cost, default=None)


def _untried(arms: Sequence[_Arm], best: _Arm) -> list[tuple[float, int, int]]:
    """The nearest one on each side of the best that was not tried, if none before it is surely worse.

    Of each the cost of its neighbour, that neighbour, and itself.
    """
    found = []
    at = arms.index(best)
    for way in (arms[at::-1], arms[at:]):
        for near, far in pairwise(way):
            if near.worse(best):
                break
            if not far.tried:
                found.append((near.cost, near.batch_size, far.batch_size))
                break
    return found


def _arms(past: Sequence[Recurrence], rules: Rules) -> list[_Arm]:
    """What the finished runs say of each batch size, in the rules' order.

    A cost of so many recurrences ago has the variance of a new one times 1 + age / window (a random walk), and counts
    by its inverse.
    """
    ended = (Outcome.REACHED, Outcome.FAILED, Outcome.STOPPED)
    runs: dict[int, list[tuple[Recurrence, float]]] = {size: [] for size in rules.batch_sizes}
    for age, one in enumerate(reversed([one for one in past if one.outcome in ended])):
        runs.setdefault(one.batch_size, []).append((one, 1.0 if rules.window is None else 1 / (1 + age / rules.window)))
    scatter = _scatter(list(runs.values()))
    lost = Counter(one.batch_size for one in past if one.outcome is Outcome.LOST)
    return [
        _arm(size, runs[size], scatter)
        if runs[size] or lost[size] < _LOST_OFTEN
        else _Arm(batch_size=size, failed=True)
        for size in rules.batch_sizes
    ]


def _arm(batch_size: int, runs: Sequence[tuple[Recurrence, float]], scatter: float) -> _Arm:
    reached = [(one, weight) for one, weight in runs if one.outcome is Outcome.REACHED and one.cost is not None]
    # Old enough, a failure is forgotten: after as many recurrences as the window holds.
    failed = not reached and any(one.outcome is Outcome.FAILED and weight > 0.5 for one, weight in runs)
    costs = [(one.cost, weight) for one, weight in runs if one.cost is not None]
    if not costs or (not reached and not failed and any(one.outcome is Outcome.FAILED for one, _ in runs)):
        return _Arm(batch_size=batch_size, failed=failed)
    per = reached or runs
    weights = sum(weight for _, weight in per)
    mean = sum(cost * weight for cost, weight in costs) / weights
    return _Arm(
        batch_size=batch_size,
        n=len(reached),
        mean=mean,
        stderr=abs(mean) * scatter / math.sqrt(weights),
        young_stderr=abs(mean) * scatter / math.sqrt(len(per)),
        failed=failed,
    )


def _scatter(arms: Sequence[Sequence[tuple[Recurrence, float]]]) -> float:
    """How much the cost to target differs from run to run with one batch size, as a share of it, over all of them.

    Never below what the costs were measured with.
    """
    reached = [[run for run in runs if run[0].outcome is Outcome.REACHED and run[0].cost] for runs in arms]
    rows = [
        (arm, one.cost or 1.0, math.nan if one.cost_stderr is None else one.cost_stderr, weight)
        for arm, runs in enumerate(filter(None, reached))
        for one, weight in runs
    ]
    if not rows:
        return _SCATTER
    where, costs, errors, weights = np.array(rows).T
    arm = where.astype(np.intp)
    totals = np.bincount(arm, weights)
    ratios = costs / (np.bincount(arm, weights * costs) / totals)[arm]
    squares = _SCATTER_DOF * _SCATTER**2 + float(weights @ (ratios - 1) ** 2)
    dof = _SCATTER_DOF + float(totals @ (1 - 1 / np.bincount(arm)))
    stated = (errors / costs)[~np.isnan(errors)] ** 2  # of those whose error is known
    return max(math.sqrt(squares / dof), math.sqrt(float(stated.mean())) if stated.size else 0.0)
