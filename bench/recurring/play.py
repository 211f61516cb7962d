"""One story: a job recurs so many times under a rule, each time until its target is reached."""

from dataclasses import dataclass

import numpy as np

from autocap.plugins.recur.policy import Outcome
from bench.recurring.job import Job
from bench.recurring.rules import rule_named
from bench.recurring.troubles import NONE, Troubles
from bench.recurring.workloads import Price, Workload
from bench.strategies.curves import Floats

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
