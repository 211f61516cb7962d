"""What a recurrence of a job costs: epochs of a published run at the caps of a plan, until it ends or is stopped."""

from dataclasses import dataclass

import numpy as np

from autocap.plugins.recur.policy import Outcome
from bench.recurring import drift as drifting
from bench.recurring.caps import Plan
from bench.recurring.workloads import Price, Workload
from bench.strategies.curves import Floats

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
        self.factors = drifting.factors(workload, int(np.argmin(costs)), drift, recurrences)
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
