"""One story: a job recurs so many times under a rule, each time until its target is reached."""

from dataclasses import dataclass

import numpy as np

from autocap.recur.policy import Outcome
from bench.recurring.job import Job
from bench.recurring.rules import rule_named
from bench.recurring.workloads import Price, Workload
from bench.strategies.curves import Floats

_MOST_TRIES = 20  # as in the published simulator


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """What recurs, and how. drift: one of DRIFTS. capped: whether caps are tuned within the runs."""

    workload: Workload
    price: Price
    drift: str
    capped: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """spent: by each recurrence, stopped and failed runs included, shape (recurrences,). regret: that over the expected
    cost of the best batch size and cap for it, less 1. again: runs beyond the first of a recurrence. missed:
    recurrences that never reached their target."""

    spent: Floats
    regret: Floats
    again: int
    missed: int


def play(case: Case, rule: str, seed: int, recurrences: int) -> Story:
    """The story of a seed. What happens to the runs is drawn apart from what the rule draws."""
    job = Job(case.workload, case.price, case.drift, recurrences, capped=case.capped)
    chance, own = np.random.default_rng([seed, 0]), np.random.default_rng([seed, 1])
    chooser = rule_named(rule, job, case.price, own, capped=case.capped, drifts=case.drift != "none")
    spent, again, missed = np.zeros(recurrences), 0, 0
    for number in range(recurrences):
        for tries in range(_MOST_TRIES):
            again += tries > 0
            batch, plan, most = chooser.next()
            run = job.run(number, batch, plan, most, chance)
            chooser.tell(batch, run)
            spent[number] += run.cost
            if run.outcome is Outcome.REACHED:
                break
        else:
            missed += 1
    return Story(spent=spent, regret=spent / job.oracle - 1, again=again, missed=missed)
