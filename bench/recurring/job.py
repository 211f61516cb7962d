"""What is done about the cap within each run: nothing, Zeus's scan, or autocap's own search.

Zeus tries every limit of the traces, 25 W apart, within the first epoch of the first run with a batch size, and takes
the best for good. Its simulator spreads them over the whole epoch; here five seconds each are enough where that is
less. Autocap's searches are those of the real `model` strategy on the same curve, driven by the controller's own rules
(bench/strategies/curves.py); a later run with that batch size begins from what the earlier one found. A window of
autocap's is five seconds as well, and so is one at the limit found before the search and one after it, for the
confirmation. A window's time has a relative error of 0.5 %, its power 0.2 %.

What a recurrence of a job costs: epochs of a published run at the caps of a plan, until it ends or is stopped.

What goes wrong with the runs of a job that comes again, made up:

crashes    half of all runs are lost, at any moment of theirs
preempted  the machine is taken away at random moments, so often that half of the default's runs are lost: long runs
           are lost more often
memory     the batch sizes beyond one that is at or above the best run out of memory at once; of the others one run in
           twenty does, as where somebody else uses the card
dear       the search for a cap takes 5 to 60 % more than a batch size's first run would; nine in ten of these runs
           can tell how much, each off by a tenth of it
untold     the same, and none can tell
"""

import math
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Protocol

import numpy as np

from autocap.metrics import Metric
from autocap.plugins.recur.policy import Outcome
from autocap.records import Trial
from autocap.strategies import registry
from bench.recurring.workloads import Price, Workload, factors
from bench.simulation.jobs import new_strategy
from bench.strategies.curves import POWER_SHARE, CapCurve, Drive, Floats, drive

WINDOW_S = 5.0
_NOISE = 0.005
_SEARCHES = 8  # of the real strategy for each batch size; a story draws one of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The caps of a run: each of `windows` (a place in the grid, seconds), and then `held` until it ends."""

    windows: tuple[tuple[int, float], ...]
    held: int


class Caps(Protocol):
    """Says how the next run with a batch size, a place, is capped."""

    def plan(self, batch: int) -> Plan: ...


class Uncapped:
    """The limit found on arrival, the highest."""

    def __init__(self, workload: Workload) -> None:
        self._plan = Plan(windows=(), held=len(workload.grid) - 1)

    def plan(self, batch: int) -> Plan:
        return self._plan


class ZeusScan:
    """The published rule: all limits 25 W apart in the first run, their best in every later one."""

    def __init__(self, workload: Workload, price: Price, rng: np.random.Generator) -> None:
        self._workload, self._price, self._rng = workload, price, rng
        self._held: dict[int, int] = {}

    def plan(self, batch: int) -> Plan:
        known = self._held.get(batch)
        if known is not None:
            return Plan(windows=(), held=known)
        curve = self._workload.curves[batch]
        places = [self._workload.grid.index(cap_w) for cap_w in curve.caps_w]
        time_s = np.array(curve.times_s) * (1 + _NOISE * self._rng.standard_normal(len(places)))
        power_w = np.array(curve.powers_w) * (1 + POWER_SHARE * _NOISE * self._rng.standard_normal(len(places)))
        self._held[batch] = places[int(np.argmin((self._price.energy * power_w + self._price.time) * time_s))]
        window_s = min(WINDOW_S, float(np.mean(curve.times_s)) / len(places))
        return Plan(windows=tuple((place, window_s) for place in reversed(places)), held=self._held[batch])


class Searched:
    """Autocap's search in the first run with a batch size, and one that begins from it in every later one."""

    def __init__(self, workload: Workload, price: Price, rng: np.random.Generator) -> None:
        self._workload, self._price = workload, price
        self._which = int(rng.integers(_SEARCHES))
        self._seen: set[int] = set()

    def plan(self, batch: int) -> Plan:
        first, later = _searches(self._workload.curves[batch], self._price, self._which)
        if batch in self._seen:
            return later
        self._seen.add(batch)
        return first


@cache
def _searches(curve: CapCurve, price: Price, which: int) -> tuple[Plan, Plan]:
    """A first search and one that has the first as its history."""
    seed = [which, zlib.crc32(curve.name.encode())]
    first = _search(curve, price.metric, np.random.default_rng([*seed, 0]), ())
    later = _search(curve, price.metric, np.random.default_rng([*seed, 1]), first.trials)
    return _planned(first), _planned(later)


def _search(curve: CapCurve, metric: Metric, rng: np.random.Generator, history: Sequence[Trial]) -> Drive:
    model = new_strategy(registry.find("model"), curve.grid, past=history)
    return drive(model, curve, metric, _NOISE, rng)


def _planned(found: Drive) -> Plan:
    highest = len(found.grid) - 1
    held = found.grid.index(found.final_w)
    tried = [found.grid.index(trial.setting) for trial in found.trials]
    confirmed = [] if held == highest else [highest]
    return Plan(windows=tuple((place, WINDOW_S) for place in (highest, *tried, *confirmed)), held=held)


_JITTER = 0.02  # relative standard deviation of what an epoch costs, from run to run (made up)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One run. cost: in the unit of the price, up to its end. counts: what of that a choice is to be judged by. search:
    what it says that its search for a cap took, `None` where it searched and cannot tell. time_s: without an end before
    its own.
    """

    outcome: Outcome
    cost: float
    counts: float
    time_s: float
    search: float | None = 0.0


class Job:
    """A job that recurs. oracle: the expected cost of each recurrence with the best batch size and cap, shape (n,)."""

    def __init__(self, workload: Workload, price: Price, drift: str, recurrences: int, *, capped: bool) -> None:
        self.workload, self.recurrences = workload, recurrences
        self._per_epoch = workload.per_epoch(price)
        self._time_s = workload.power_and_time[1]
        lowest = self._per_epoch.min(axis=1) if capped else self._per_epoch[:, -1]
        costs = lowest * workload.mean_epochs
        self.factors = factors(workload, int(np.argmin(costs)), drift, recurrences)
        self.costs: Floats = costs * self.factors
        self.oracle: Floats = self.costs.min(axis=1)
        default = workload.default
        best = int(np.argmin(costs))
        self.usual_s = float(workload.mean_epochs[default] * self._time_s[default, -1])  # of the default's run
        self.best_s = float(workload.mean_epochs[best] * self._time_s[best, int(np.argmin(self._per_epoch[best]))])

    def per_epoch(self, batch: int, cap: int) -> float:
        """What an epoch costs with that batch size at that cap, places both."""
        return float(self._per_epoch[batch, cap])

    def run(self, number: int, batch: int, plan: Plan, most: float | None, rng: np.random.Generator) -> Run:
        """The run of that recurrence, stopped as soon as it has cost `most`."""
        runs = self.workload.epochs[batch]
        needed = float(runs[rng.integers(len(runs))]) * float(self.factors[number, batch])
        jitter = 1 + _JITTER * float(rng.standard_normal())
        reaches = needed <= self.workload.max_epochs  # False for NaN
        epochs = needed if reaches else self.workload.max_epochs
        cost, time_s = jitter * self._spent(batch, plan, epochs), epochs * float(self._time_s[batch, plan.held])
        if most is not None and cost > most:
            return Run(outcome=Outcome.STOPPED, cost=most, counts=most, time_s=time_s * most / cost)
        outcome = Outcome.REACHED if reaches else Outcome.FAILED
        return Run(outcome=outcome, cost=cost, counts=cost, time_s=time_s)

    def _spent(self, batch: int, plan: Plan, epochs: float) -> float:
        cost, left = 0.0, epochs
        for cap, window_s in plan.windows:
            done = min(left, window_s / float(self._time_s[batch, cap]))
            cost += done * self.per_epoch(batch, cap)
            left -= done
            if not left > 0:
                return cost
        return cost + left * self.per_epoch(batch, plan.held)


TROUBLES = ("crashes", "preempted", "memory", "dear", "untold")
NONE, ALL = "none", "all"
_LOST = 0.5
_SHORT, _AT_ONCE = 0.05, 0.01  # runs that find too little memory by chance; the share of a run after which that is
_DEAR, _TOLD, OFF = (0.05, 0.6), 0.9, 0.1


class Troubles:
    """Of one story. kind: one of TROUBLES, NONE or ALL. Draws from a generator of its own, so that what else befalls a
    run is what it would have been."""

    def __init__(self, kind: str, job: Job, seed: int) -> None:
        self._kinds = ("crashes", "memory", "dear") if kind == ALL else (kind,)
        self._job, self._rng = job, np.random.default_rng([seed, 2])
        self._searched: set[int] = set()
        best, sizes = int(np.argmin(job.costs)), len(job.workload.batch_sizes)
        least = max(best, job.workload.default)  # the job runs by itself
        self._largest = int(self._rng.integers(least, sizes)) if "memory" in self._kinds else sizes

    def befall(self, number: int, batch: int, run: Run, most: float | None) -> Run:
        """What becomes of a run that would have come to that. most: what it may cost."""
        run = self._searching(batch, run, most)
        lost = self._lost(batch, run)
        if lost is None:
            self._searched.add(batch)
            return run
        outcome, share = lost
        # What a run with the best batch size would have cost by the same moment is nobody's choice. One that would have
        # come cheaper counts below 0, as one that reaches its target does: else chance alone would be regret.
        return replace(
            run, outcome=outcome, cost=share * run.cost, counts=share * (run.counts - float(self._job.oracle[number]))
        )

    @property
    def stretch(self) -> float:
        """How many times as much as without the losses the best batch size costs until its target is reached: each
        chance to be lost comes by itself, so they make a lost run likelier and no longer."""
        kept, share = 1.0, 1.0  # runs that go on to their end; what all runs cost, in the mean
        if "preempted" in self._kinds:
            odds = math.log(2) * self._job.best_s / self._job.usual_s
            kept, share = math.exp(-odds), -math.expm1(-odds) / odds
        if "crashes" in self._kinds:
            kept, share = kept * (1 - _LOST), share * (1 - _LOST) + _LOST * share / 2
        return share / kept

    def _searching(self, batch: int, run: Run, most: float | None) -> Run:
        told = "untold" not in self._kinds
        if batch in self._searched or not ((told and "dear" in self._kinds) or not told):
            return run
        share, chance, off = self._rng.uniform(*_DEAR), self._rng.random(), self._rng.standard_normal()
        took = float(share) * run.cost
        search = took * (1 + OFF * float(off)) if told and chance < _TOLD else None
        run = replace(run, cost=run.cost + took, search=search)
        if most is None or run.cost - (search or 0.0) <= most:
            return run
        return replace(run, outcome=Outcome.STOPPED, cost=most + (search or 0.0), counts=min(run.counts, most))

    def _lost(self, batch: int, run: Run) -> tuple[Outcome, float] | None:
        """As what, and after which share of it; `None` where it goes on to its end."""
        chances, where = self._rng.random(3), float(self._rng.random())
        if "memory" in self._kinds and (batch > self._largest or chances[0] < _SHORT):
            return Outcome.OUT_OF_MEMORY, _AT_ONCE
        if "crashes" in self._kinds and chances[1] < _LOST:
            return Outcome.LOST, where
        if "preempted" in self._kinds:
            usual_s = self._job.usual_s
            share = -math.log(1 - chances[2]) / math.log(2) * usual_s / max(run.time_s, 1e-9)
            return (Outcome.LOST, float(share)) if share < 1 else None
        return None
