"""What goes wrong with the runs of a job that comes again, made up:

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
from dataclasses import replace

import numpy as np

from autocap.plugins.recur.policy import Outcome
from bench.recurring.job import Job, Run

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
