"""Which batch size the next recurrence of a job takes: exploration with pruning, then Gaussian Thompson sampling.

As in Zeus (You et al., NSDI 2023, section 4): each batch size is an arm, what it costs is the cost of training to the
target, runs that cost too much are stopped, and what has failed is not tried again. Otherwise than there

- exploration goes from the default to both sides as long as what it passes may still be the best: the cost is taken to
  have one valley, as their curves have, and nothing is tried that lies behind a batch size surely worse than the best;
- each batch size is tried once, as the scatter from run to run is taken to be the same share of the cost for all of
  them; two runs of each, from which Zeus takes a variance of its own, may agree by chance;
- a target missed now and then counts as what was spent for each one reached;
- what the search for a cap took is left out of what batch sizes are compared by, as it comes once;
- a run that crashed or was killed says nothing of its batch size but that it had cost so much by then. It is tried
  again; after more in a row than the losses of others explain, in ever longer intervals. Running out of memory, which
  a larger batch size does as well, closes both when it came twice, for intervals that grow in the same way;
- with a window, what is old counts less and is less sure, so that what was given up is looked at again.

Pure: what happened so far goes in, a choice comes out; nothing is kept between calls.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

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


# Chosen on the tables of `python -m bench recurring`.
_SCATTER, _SCATTER_DOF = 0.1, 4.0  # from run to run, share of the cost, before any was seen; and what that is worth
_SIGMAS = 2.0  # beyond the best, from which on nothing further out is tried
# Chance that a batch size ends every run: of one that has not reached the target yet, and of one that has.
_FATAL, _FATAL_AFTER_ALL = 0.05, 0.001
# What a search for a cap took where that is not known: its share of the cost, the standard deviation of that, and how
# many runs with a known one that is worth.
_SEARCH, _SEARCH_STD, _SEARCH_WORTH = 0.15, 0.15, 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """The finished runs with one batch size. n: those that reached the target. mean: what was spent for each target
    reached, and where there is none, what a run had cost, which is a lower bound; `None` without any.

    stderr: of the mean, age counted in; scattered: the part of it that is the runs' scatter, not an error of what a
    search for a cap took; young_stderr: stderr as if all runs were new. failed: whether runs have ended without the
    target, and never one with it. lost: runs that were lost since any other; wait: how many recurrences must end before
    it is tried again for that. was_lost: the mean is what a lost run had cost. closed_by: the batch size from which on
    memory did not suffice, while it waits for that; else 0.
    """

    batch_size: int
    n: int = 0
    mean: float | None = None
    stderr: float = 0.0
    scattered: float = 0.0
    young_stderr: float = 0.0
    failed: bool = False
    lost: int = 0
    wait: int = 0
    was_lost: bool = False
    closed_by: int = 0

    @property
    def may_run(self) -> bool:
        """Whether nothing that it was lost by speaks against it just now."""
        return not self.wait

    @property
    def tried(self) -> bool:
        return self.mean is not None or self.failed

    @property
    def cost(self) -> float:
        """The mean; infinite without one."""
        return math.inf if self.mean is None or self.failed else self.mean

    def worse(self, best: "Arm") -> bool:
        """Whether it is surely worse than the best, as it is where it has never reached the target."""
        return not self.n or self.cost - best.cost > _SIGMAS * math.hypot(self.young_stderr, best.young_stderr)


def best_of(arms: Sequence[Arm]) -> Arm | None:
    """The one with the lowest mean of those that have reached the target."""
    return min((arm for arm in arms if arm.n), key=lambda arm: arm.cost, default=None)


def arms_of(past: Sequence[Recurrence], rules: Rules) -> list[Arm]:
    """What the finished runs say of each batch size, in the rules' order.

    A cost of so many recurrences ago has the variance of a new one times 1 + age / window (a random walk), and counts
    by its inverse.
    """
    ended = (Outcome.REACHED, Outcome.FAILED, Outcome.STOPPED)
    counted = enumerate(reversed([one for one in past if one.outcome in ended]))
    runs = _runs([(one, 1.0 if rules.window is None else 1 / (1 + age / rules.window)) for age, one in counted])
    scatter = _scatter(list(runs.values()))
    arms = [_losses(_arm(size, runs.get(size, []), scatter), past) for size in rules.batch_sizes]
    return _bounded(arms, past, scatter)


def _losses(arm: Arm, past: Sequence[Recurrence]) -> Arm:
    """With what runs that were lost mean for it. A crash may come of anything, so it is tried again at once while the
    rate at which all other runs are lost may explain as many in a row; then in intervals that double. So it is, with
    longer intervals, where memory twice did not suffice for it or for less, unless it once did."""
    ended = [one for one in past if one.outcome is not Outcome.RUNNING]
    mine = [place for place, one in enumerate(ended) if one.batch_size == arm.batch_size]
    lost = next((count for count, place in enumerate(reversed(mine)) if not ended[place].is_lost), len(mine))
    usual = (sum(one.is_lost for one in ended) - lost + 1) / (len(ended) - lost + 3)
    fatal = _FATAL_AFTER_ALL if arm.n else _FATAL
    explained = math.ceil(math.log(fatal / (1 - fatal)) / math.log(usual))  # from then on that is the likelier reason
    wait = 0
    if lost >= explained:
        wait = min(2 ** min(lost - explained, 30), LONGEST_WAIT) - (len(ended) - 1 - mine[-1])
    short = out_of_memory(arm.batch_size, past)
    closed = closed_for(len(short)) - sum(one.number > short[-1].number for one in ended) if short else 0
    closed_by = max(one.batch_size for one in short) if closed > 0 else 0
    return replace(arm, lost=lost, wait=max(0, wait, closed), closed_by=closed_by)


def _bounded(arms: Sequence[Arm], past: Sequence[Recurrence], scatter: float) -> list[Arm]:
    """With what lost runs had cost without the target, where that alone is surely more than the best: then they need
    not be made again."""
    best = best_of(arms)
    if best is None:
        return list(arms)
    found = []
    for arm in arms:
        spent = [
            one.cost - (one.search_cost or 0.0)
            for one in past
            if one.is_lost and one.batch_size == arm.batch_size and one.cost is not None
        ]
        least = max(spent, default=0.0)
        surely = least - best.cost > _SIGMAS * math.hypot(scatter * least, best.young_stderr)
        found.append(replace(arm, mean=least, was_lost=True) if surely and not arm.tried else arm)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """A finished run. cost: without its search for a cap. off: the relative error that this was measured, or guessed,
    with. age: what it counts for because of that, 1 for a new one."""

    outcome: Outcome
    cost: float | None
    off: float
    age: float

    def trust(self, scatter: float) -> float:
        """What it counts for by its error, where runs scatter so much by themselves: 1 for one without."""
        return 1 / (1 + (self.off / scatter) ** 2)


def _runs(past: Sequence[tuple[Recurrence, float]]) -> dict[int, list[_Run]]:
    """By batch size, what each run of (recurrence, what its age leaves of it) would have cost without its search for a
    cap. Where that is not known it is taken to be the share that it was of others, and of runs beside those with the
    same batch size that did not search, with the error that such a guess has."""
    bare: dict[int, list[float]] = {}
    for one, _ in past:
        if one.outcome is Outcome.REACHED and one.cost and one.search_cost == 0:
            bare.setdefault(one.batch_size, []).append(one.cost)
    shares = list[float]()
    for one, _ in past:
        if one.cost is None or one.cost <= 0 or one.search_cost == 0 or one.outcome is not Outcome.REACHED:
            continue
        if one.search_cost is not None:
            shares.append(one.search_cost / one.cost)
        elif one.batch_size in bare:
            shares.append(1 - float(np.mean(bare[one.batch_size])) / one.cost)
    weight = len(shares) + _SEARCH_WORTH
    share = (sum(shares) + _SEARCH_WORTH * _SEARCH) / weight
    squares = sum((each - share) ** 2 for each in shares) + _SEARCH_WORTH * _SEARCH_STD**2
    found: dict[int, list[_Run]] = {}
    for one, age in past:
        cost, off = one.cost, 0.0
        if cost is not None:
            guess = one.search_cost is None
            cost -= share * abs(cost) if one.search_cost is None else one.search_cost
            of = (one.cost_stderr or 0.0) / (abs(cost) or 1.0)
            off = math.hypot(of, math.sqrt(squares / weight)) if guess else of
        found.setdefault(one.batch_size, []).append(_Run(outcome=one.outcome, cost=cost, off=off, age=age))
    return found


def _arm(batch_size: int, runs: Sequence[_Run], scatter: float) -> Arm:
    reached = [one for one in runs if one.outcome is Outcome.REACHED and one.cost is not None]
    # Old enough, a failure is forgotten: after as many recurrences as the window holds.
    failed = not reached and any(one.outcome is Outcome.FAILED and one.age > 0.5 for one in runs)
    costs = [(one.cost, one.age * one.trust(scatter)) for one in runs if one.cost is not None]
    if not costs or (not reached and not failed and any(one.outcome is Outcome.FAILED for one in runs)):
        return Arm(batch_size=batch_size, failed=failed)
    per = reached or runs
    weights = sum(one.age * one.trust(scatter) for one in per)
    mean = sum(cost * weight for cost, weight in costs) / weights
    return Arm(
        batch_size=batch_size,
        n=len(reached),
        mean=mean,
        stderr=abs(mean) * scatter / math.sqrt(weights),
        scattered=abs(mean) * scatter / math.sqrt(sum(one.age for one in per)),
        young_stderr=abs(mean) * scatter / math.sqrt(sum(one.trust(scatter) for one in per)),
        failed=failed,
    )


def _scatter(arms: Sequence[Sequence[_Run]]) -> float:
    """How much the cost to target differs from run to run with one batch size, as a share of it, over all of them;
    without what it was measured with."""
    reached = [[run for run in runs if run.outcome is Outcome.REACHED and run.cost] for runs in arms]
    rows = [
        (arm, one.cost or 1.0, one.age * one.trust(_SCATTER))
        for arm, runs in enumerate(filter(None, reached))
        for one in runs
    ]
    if not rows:
        return _SCATTER
    where, costs, weights = np.array(rows).T
    arm = where.astype(np.intp)
    totals = np.bincount(arm, weights)
    ratios = costs / (np.bincount(arm, weights * costs) / totals)[arm]
    squares = _SCATTER_DOF * _SCATTER**2 + float(weights @ (ratios - 1) ** 2)
    dof = _SCATTER_DOF + float(totals @ (1 - 1 / np.bincount(arm)))
    return math.sqrt(squares / dof)


# Chosen on the tables of `python -m bench recurring`.
# Of the runs' scatter, when drawing: jobs recur tens of times, and not for ever. What a search took may be off by
# more than runs scatter, and one more run ends that.
_BOLD, _BOLD_MOVING = 0.5, 0.7


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

    `mean` is `None` before the first run that reached the target; `n` counts those runs. `stderr` is `None` before two
    runs with one of the batch sizes did, which show how runs scatter.
    `pruned`: the reason in words why it is not tried (for now), else `None`.
    """

    batch_size: int
    mean: float | None
    stderr: float | None
    n: int
    pruned: str | None


def choose(past: Sequence[Recurrence], rules: Rules, rng: np.random.Generator) -> Choice:
    """The batch size of the next recurrence, given all earlier ones, those that still run among them.

    While a batch size is being tried for the first time, others get the best known so far, as in Zeus.
    Draws from `rng` while sampling only.
    """
    arms = arms_of(past, rules)
    best = best_of(arms)
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
    known = [arm for arm in arms if arm.n or (rules.window is not None and arm.mean is not None and not arm.failed)]
    drawn_from = [arm for arm in known if arm.may_run] or known
    errors, scattered = np.array([(arm.stderr, arm.scattered) for arm in drawn_from]).T
    bold = _BOLD if rules.window is None else _BOLD_MOVING
    drawn = rng.normal([arm.cost for arm in drawn_from], np.sqrt(errors**2 - (1 - bold**2) * scattered**2))
    size = drawn_from[int(np.argmin(drawn))].batch_size
    return Choice(batch_size=size, most_cost=most, phase="sampling", why="the lowest of the costs drawn")


def belief(past: Sequence[Recurrence], rules: Rules) -> tuple[Belief, ...]:
    """What is thought of each of `rules.batch_sizes`, in their order."""
    arms = arms_of(past, rules)
    best = best_of(arms)
    scatters = any(arm.n > 1 for arm in arms)  # else how runs scatter is only taken to be so
    open_to = {size for _, _, size in _untried(arms, best)} if best else {arm.batch_size for arm in arms}
    return tuple(
        Belief(
            batch_size=arm.batch_size,
            mean=arm.mean if arm.n else None,
            stderr=arm.stderr if arm.n and scatters else None,
            n=arm.n,
            pruned=_reason(arm, arm.batch_size in open_to),
        )
        for arm in arms
    )


def _reason(arm: Arm, may_be_tried: bool) -> str | None:
    if 0 < arm.closed_by < arm.batch_size:
        return f"not tried: batch size {arm.closed_by} ran out of memory"
    if arm.wait:
        when = "after the next recurrence" if arm.wait == 1 else f"after {arm.wait} more recurrences"
        why = "memory ran out more than once" if arm.closed_by else f"its last {arm.lost} runs were lost"
        return f"{why}; it is tried again {when}"
    if arm.n:
        return None
    if arm.failed:
        return "its runs ended without the target"
    if arm.mean is not None:
        return "a run had cost too much when it was lost" if arm.was_lost else "a run cost too much and was stopped"
    return None if may_be_tried else "not tried: what lies before it costs too much"


def _first(arms: Sequence[Arm], rules: Rules, trying: Sequence[int]) -> Choice:
    """Before any target was reached: the default, and where that has failed the others, nearest first."""
    place = rules.batch_sizes.index(rules.default)
    near = sorted(range(len(arms)), key=lambda other: (abs(other - place), other))
    left = [arms[other].batch_size for other in near if not arms[other].tried and arms[other].may_run]
    first = rules.default in left
    size = rules.default if first else next((size for size in left if size not in trying), rules.default)
    why = "the default comes first" if first else "none has reached the target so far"
    return Choice(batch_size=size, most_cost=None, phase="exploring", why=why)


def _untried(arms: Sequence[Arm], best: Arm) -> list[tuple[float, int, int]]:
    """The nearest one on each side of the best that was not tried, if none before it is surely worse.

    Of each the cost of its neighbour, that neighbour, and itself. One that waits, as its runs were lost, hides nothing.
    """
    found = []
    at = arms.index(best)
    for way in (arms[at::-1], arms[at:]):
        near = best
        for far in way[1:]:
            if near.worse(best) or far.closed_by:
                break
            if far.tried:
                near = far
            elif far.may_run:
                found.append((near.cost, near.batch_size, far.batch_size))
                break
    return found


def cheapest(thought: Sequence[Belief]) -> Belief | None:
    """The batch size with the lowest mean cost that is not pruned; `None` before one has reached the target."""
    known = [one for one in thought if one.mean is not None and one.pruned is None]
    return min(known, key=lambda one: one.mean or 0.0, default=None)


def more(one: Belief, than: Belief) -> tuple[float, float]:
    """What a batch size costs more than another, as a share of that, with its standard error; infinite where that is
    not known, as of what was run once."""
    assert one.mean is not None
    assert than.mean is not None
    error = math.hypot(*(math.inf if belief.stderr is None else belief.stderr for belief in (one, than)))
    return (one.mean - than.mean) / abs(than.mean or 1.0), error / abs(than.mean or 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What the choice of batch sizes has saved against the default one, in the metric's unit. so_far: over all
    recurrences that reached their target, with all that was spent in vain and in searches taken off; a_run: the share
    of the default's cost that a run with the cheapest one saves. Each with its standard error."""

    so_far: float
    so_far_stderr: float
    a_run: float
    a_run_stderr: float


def saved(costs: Sequence[Recurrence], thought: Sequence[Belief], default: int) -> Saved | None:
    """`None` where the default's cost is not known, or nothing else is."""
    best, usual = cheapest(thought), next(one for one in thought if one.batch_size == default)
    if best is None or usual.mean is None or best is usual or not usual.mean > 0:
        return None
    reached = sum(one.outcome is Outcome.REACHED for one in costs)
    spent = sum(one.cost or 0.0 for one in costs)
    extra, error = more(best, usual)
    return Saved(
        so_far=reached * usual.mean - spent,
        so_far_stderr=math.inf if usual.stderr is None else reached * usual.stderr,
        a_run=-extra,
        a_run_stderr=error,
    )
