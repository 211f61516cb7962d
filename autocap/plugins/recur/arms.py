"""What the runs so far say of each batch size: what it costs, how surely, and whether it may run at all.

Costs are compared without what the search for a cap took, as that comes once.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from autocap.plugins.recur.history import LONGEST_WAIT, Outcome, Recurrence, Rules, closed_for, out_of_memory

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
