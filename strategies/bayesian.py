"""Bayesian optimisation with Optuna: a model of the cost over the caps says where to look next.

The model sees one value a cap: the pooled cost of its trials, so that a cap that is proposed again is a re-measurement
and sharpens what the model sees. Where it names a cap a third time it is asked once more (TPE, which draws at random, a
few times), having been told again what that cap costs; then the search is over: it has no better idea. The
baseline counts as a trial where its limit is on the grid. Its draw is where the start-up caps begin, if the driver says
that the limit does not bind: above it nothing changes.

It steps down with care, as a cliff at the low end costs more than all else: at most a quarter of the grid's width below
the lowest cap tried, and not below one that is already worse than the best by two sigma.

A slowdown limit: nothing is tried below a cap that surely breaks it, and a cap that may break it enters the model at no
less than the baseline's cost. A failed cap is not tried again. Of a warm start's history only the cheapest cap is used,
as the first trial. The same seed gives the same search.
"""

import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import ClassVar

from autocap.errors import UsageError
from autocap.job.blas_threads import one_thread
from autocap.records import Trial
from autocap.strategies.base import STRIDE, Strategy
from autocap.strategies.options import Option

with one_thread():  # scipy comes with it
    import optuna
    from optuna.distributions import IntDistribution
    from optuna.samplers import BaseSampler, GPSampler, TPESampler

_HAS_TORCH = find_spec("torch") is not None
if _HAS_TORCH:
    # What the Gaussian process stands on. On one thread: its matrices are tiny, and beside a job that keeps the CPUs
    # busy more threads only wait for each other.
    import_module("torch").set_num_threads(1)

_DRAWS = {True: 2, False: 8}  # whether a Gaussian process: proposals until one names a cap that is not settled


class Bayesian(Strategy):
    """Asks Optuna's sampler for caps until it has no better idea. Raises UsageError for `gp` without torch."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option(
            name="sampler",
            kind=str,
            default="auto",
            meaning="gp (needs torch), tpe, or auto: gp where torch is installed",
            choices=("auto", "gp", "tpe"),
        ),
        Option(name="trials", kind=int, default=15, meaning="most caps that are tried", minimum=1),
        Option(name="startup", kind=int, default=2, meaning="caps tried before the model is asked", minimum=1),
        Option(
            name="patience",
            kind=int,
            default=3,
            meaning="stop after so many caps in a row that did not improve the best",
            minimum=1,
        ),
    )

    def _set_up(self) -> None:
        if self.options["sampler"] == "gp" and not _HAS_TORCH:
            raise UsageError("strategy bayesian with sampler=gp needs torch; pip install torch, or pass sampler=tpe")
        self._gp = _HAS_TORCH and self.options["sampler"] != "tpe"
        self._seed = int(self.rng.integers(2**31))
        self._proposed: tuple[int, float | None] = (-1, None)  # after how many trials, and what
        self._idle = 0  # new caps in a row that did not improve the best

    def tell(self, trial: Trial) -> None:
        """Take in a trial, and whether it was an improvement."""
        new, before = not self.tried(trial.setting), self.best()
        super().tell(trial)
        found, best = self.findings.get(trial.setting), self.best()
        improved = found is not None and found is best and (before is None or before.beyond(found, sigmas=1))
        if new:
            self._idle = 0 if improved else self._idle + 1

    def _next(self) -> float | None:
        fresh = [setting for setting in self._startup() if not self.tried(setting)]
        if fresh:
            return fresh[0]
        if len({trial.setting for trial in self._trials}) >= self._whole("trials") or self._idle >= self._whole(
            "patience"
        ):
            return None
        told = len(self._trials)
        if self._proposed[0] != told:
            self._proposed = told, self._proposal(told)
        return self._proposed[1]

    def _startup(self) -> Iterator[float]:
        """The caps to begin with, in order: the history's cheapest, then even steps down from the draw."""
        before_w = self._cheapest_before()
        if before_w is not None:
            yield before_w
        top_w, count = self._draw_w(), self._whole("startup")
        spread_w = min((top_w - self.grid[0]) / (count + 1), STRIDE * (self.grid[-1] - self.grid[0]))
        slow_w = self._slow_w()
        for step in range(1, count + 1):
            setting = self.grid.nearest(top_w - step * spread_w)
            if setting > slow_w:
                yield setting

    def _floor(self) -> int | None:
        """The place of the lowest cap to try: no leap, and above all that are too slow. `None` where there is none."""
        floor = sum(setting <= self._slow_w() for setting in self.grid)
        if self.findings:
            floor = max(floor, self.grid.index(self._step_down(min(self.findings))))
        return floor if floor < len(self.grid) else None

    def _proposal(self, told: int) -> float | None:
        """The model's next cap; `None` when all that it names is known well."""
        floor = self._floor()
        if floor is None:
            return None
        places = {self.grid.index(setting): cost for setting, cost in self._costs().items()}
        sampler = _sampler(self._gp, self._seed + told)
        for place in _proposed(sampler, places, floor, len(self.grid) - 1, draws=_DRAWS[self._gp]):
            setting = self.grid[place]
            finding = self.findings.get(setting)
            if not self.tried(setting) or (finding is not None and finding.complete and not finding.repeated):
                return setting
        return None

    def _costs(self) -> dict[float, float]:
        """What the model is to see, by cap."""
        costs = {
            finding.setting: finding.cost if finding.allowed else max(1.0, finding.cost)
            for finding in self.findings.values()
        }
        arrival_w = self.baseline.setting[0]
        if arrival_w in self.grid:
            costs.setdefault(arrival_w, 1.0)
        return costs


def _sampler(gp: bool, seed: int) -> BaseSampler:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that a sampler is experimental is no news to the user of a cap
        return GPSampler(seed=seed, n_startup_trials=1) if gp else TPESampler(seed=seed, n_startup_trials=1)


def _proposed(sampler: BaseSampler, costs: Mapping[int, float], low: int, high: int, draws: int) -> Iterator[int]:
    """Places from low to high that a sampler proposes, which is told what those of `costs` from low on cost, and told
    that again of each that it proposes. What it is not told it would take for running, which multiplies its work."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="minimize", sampler=sampler)
    # A whole number and no category: neighbouring caps cost much the same, which a category would not show.
    space = {"place": IntDistribution(low, high)}
    for place, cost in sorted(costs.items()):
        if place >= low:
            study.add_trial(
                optuna.trial.create_trial(params={"place": place}, distributions=space, value=cost)  # type: ignore[arg-type]
            )
    for _ in range(draws):
        trial = study.ask()
        place = trial.suggest_int("place", low, high)
        yield place
        if place in costs:
            study.tell(trial, costs[place])
        else:
            study.tell(trial, state=optuna.trial.TrialState.FAIL)


# A sampler's first answer imports hundreds of modules and starts what computes for it: on a busy machine that takes
# longer than the watchdog waits for a sign of life before it puts the limit back. So each gives one now, when the
# strategy is chosen and no cap is set.
for _gp in (False, True) if _HAS_TORCH else (False,):
    list(_proposed(_sampler(_gp, seed=0), {0: 1.0, 2: 0.9, 4: 1.0}, 0, 4, draws=1))
