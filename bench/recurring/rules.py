"""Who chooses the batch size of a recurrence: autocap, Zeus as published, grid search, or nobody.

Zeus: You et al., NSDI 2023, section 4, and the simulator published with it, which its numbers are from: pruning
exploration in two rounds, from the default downwards and then upwards, each way until a run fails to reach the target
or is stopped at twice the least cost seen so far, always before the epoch that would pass it; the second round begins
at the best of the first. Then Thompson sampling over those left, each with a flat prior and the variance of its own
costs, those of stopped runs included; with a window only the latest of each count.

One story: a job recurs so many times under a rule, each time until its target is reached.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from autocap.plugins.recur.policy import Outcome, Recurrence, Rules, choose
from bench.recurring.job import NONE, OFF, Caps, Job, Plan, Run, Searched, Troubles, Uncapped, ZeusScan
from bench.recurring.workloads import Price, Workload
from bench.strategies.curves import Floats

_BETA = 2.0
WINDOW = 10  # for jobs that drift


class Rule(Protocol):
    """Chooses a run: the place of a batch size, the caps of the run, and what it may cost; and is told what came."""

    def next(self) -> tuple[int, Plan, float | None]: ...

    def tell(self, batch: int, run: Run) -> None: ...


class Default:
    """Always the batch size that the job would take by itself, uncapped."""

    def __init__(self, workload: Workload) -> None:
        self._choice = workload.default, Uncapped(workload).plan(0), None

    def next(self) -> tuple[int, Plan, float | None]:
        return self._choice

    def tell(self, batch: int, run: Run) -> None:
        pass


class Grid:
    """Every batch size once at every cap of the traces, highest first, without those that have failed; then the best.

    The default comes first, then its neighbours, nearest first. Runs are stopped at twice the least cost as well, which
    the grid search of the paper does not do: without it the smallest batch sizes alone cost hundreds of recurrences.
    """

    def __init__(self, workload: Workload, *, capped: bool) -> None:
        curve, grid = workload.curves[0], workload.grid
        caps = [grid.index(cap_w) for cap_w in reversed(curve.caps_w)] if capped else [len(grid) - 1]
        order = sorted(range(len(workload.batch_sizes)), key=lambda place: abs(place - workload.default))
        self._left = [(batch, cap) for batch in order for cap in caps]
        self._costs: dict[tuple[int, int], float] = {}
        self._now = self._left[0]

    def next(self) -> tuple[int, Plan, float | None]:
        self._now = self._left[0] if self._left else min(self._costs, key=lambda pair: self._costs[pair])
        most = _BETA * min(self._costs.values()) if self._costs else None
        return self._now[0], Plan(windows=(), held=self._now[1]), most

    def tell(self, batch: int, run: Run) -> None:
        if self._left and run.outcome is not Outcome.REACHED:
            self._left = [pair for pair in self._left if pair[0] != batch]
        elif self._left:
            self._costs[self._left.pop(0)] = run.cost


class Zeus:
    """The published rule."""

    def __init__(self, job: Job, caps: Caps, rng: np.random.Generator, window: int | None) -> None:
        self._job, self._caps, self._rng, self._window = job, caps, rng, window
        self._seen: list[tuple[int, float]] = []
        self._arms = list(range(len(job.workload.batch_sizes)))
        self._start, self._rounds = job.workload.default, 2
        self._begin_round()
        self._least, self._spent = math.inf, 0.0

    def _begin_round(self) -> None:
        place = self._arms.index(self._start)
        self._down, self._up = self._arms[place::-1], self._arms[place + 1 :]
        self._good: list[tuple[float, int]] = []

    def next(self) -> tuple[int, Plan, float | None]:
        batch = (self._down or self._up)[0] if self._rounds else self._sample()
        plan = self._caps.plan(batch)
        if math.isinf(self._least):
            return batch, plan, None
        per_epoch = self._job.per_epoch(batch, plan.held)
        return batch, plan, _BETA * self._least // per_epoch * per_epoch

    def tell(self, batch: int, run: Run) -> None:
        if run.outcome is Outcome.LOST:
            return  # the published rule knows no such runs, and would take them for runs that cost too much
        reached = run.outcome is Outcome.REACHED
        # Where not even one epoch fits, the simulator runs none and tells its rule a prohibitive cost.
        self._seen.append((batch, run.cost or 100 * _BETA * self._least))
        self._spent += run.cost
        if reached:
            self._least, self._spent = min(self._least, self._spent), 0.0
        if not self._rounds:
            return
        way = self._down or self._up
        way.pop(0)
        if reached:
            self._good.append((run.cost, batch))
        else:
            way.clear()
        if not self._down and not self._up:
            self._rounds -= 1
            if self._good:  # else the published rule ends with an error; here all stay
                self._arms, self._start = sorted(place for _, place in self._good), min(self._good)[1]
            self._begin_round()

    def _sample(self) -> int:
        drawn = []
        for arm in self._arms:
            costs = np.array([cost for batch, cost in self._seen if batch == arm][-(self._window or 0) :])
            # One that was never tried is there only where all of the others were pruned as well.
            drawn.append(
                self._rng.normal(costs.mean(), costs.std() / math.sqrt(len(costs))) if costs.size else math.inf
            )
        return self._arms[int(np.argmin(drawn))]


class Autocap:
    """autocap's own rule."""

    def __init__(self, job: Job, caps: Caps, rng: np.random.Generator, window: int | None) -> None:
        sizes = job.workload.batch_sizes
        self._sizes, self._caps, self._rng = sizes, caps, rng
        self._rules = Rules(batch_sizes=sizes, default=sizes[job.workload.default], threshold=_BETA, window=window)
        self._past: list[Recurrence] = []

    def next(self) -> tuple[int, Plan, float | None]:
        choice = choose(self._past, self._rules, self._rng)
        batch = self._sizes.index(choice.batch_size)
        return batch, self._caps.plan(batch), choice.most_cost

    def tell(self, batch: int, run: Run) -> None:
        self._past.append(
            Recurrence(
                number=len(self._past),
                batch_size=self._sizes[batch],
                outcome=run.outcome,
                cost=run.cost,
                cost_stderr=OFF * abs(run.search or 0.0),
                search_cost=run.search,
            )
        )


RULES = ("autocap", "zeus", "grid search", "default")


def rule_named(name: str, job: Job, price: Price, rng: np.random.Generator, *, capped: bool, drifts: bool) -> Rule:
    """A new rule for a job, one of RULES."""
    workload, window = job.workload, WINDOW if drifts else None
    if name == "default":
        return Default(workload)
    if name == "grid search":
        return Grid(workload, capped=capped)
    if name == "zeus":
        return Zeus(job, ZeusScan(workload, price, rng) if capped else Uncapped(workload), rng, window)
    return Autocap(job, Searched(workload, price, rng) if capped else Uncapped(workload), rng, window)


_MOST_TRIES = 20  # as in the published simulator
_LAST = 10  # recurrences


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What recurs, and how. drift: one of DRIFTS. capped: whether caps are tuned within the runs. trouble: what goes
    wrong with them."""

    workload: Workload
    price: Price
    drift: str
    capped: bool
    trouble: str = NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """spent: by each recurrence, stopped and failed runs included, shape (recurrences,). regret: that over the expected
    cost of the best batch size and cap for it, less 1; of what goes wrong with runs only what a choice adds to it.
    again: runs beyond the first of a recurrence. missed: recurrences that never reached their target. over: by how much
    of the least expected cost that of the batch size is above it which most of the last recurrences took."""

    spent: Floats
    regret: Floats
    again: int
    missed: int
    over: float


def play(case: Case, rule: str, seed: int, recurrences: int) -> Story:
    """The story of a seed. What happens to the runs is drawn apart from what the rule draws."""
    job = Job(case.workload, case.price, case.drift, recurrences, capped=case.capped)
    chance, own = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    chooser = rule_named(rule, job, case.price, own, capped=case.capped, drifts=case.drift != "none")
    troubles = Troubles(case.trouble, job, seed)
    spent, counted, again, missed, taken = np.zeros(recurrences), np.zeros(recurrences), 0, 0, list[int]()
    for number in range(recurrences):
        for tries in range(_MOST_TRIES):
            again += tries > 0
            batch, plan, most = chooser.next()
            run = troubles.befall(number, batch, job.run(number, batch, plan, most, chance), most)
            chooser.tell(batch, run)
            spent[number] += run.cost
            counted[number] += run.counts
            if run.outcome is Outcome.REACHED:
                break
        else:
            missed += 1
        taken.append(batch)
    mostly = int(np.bincount(taken[-_LAST:]).argmax())
    over = float(job.costs[-1][mostly] / job.oracle[-1]) - 1
    return Story(
        spent=spent, regret=(counted / job.oracle - 1) / troubles.stretch, again=again, missed=missed, over=over
    )
