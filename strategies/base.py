"""How a search talks to the controller: `ask` for a cap, `tell` a trial, `recommend` what to keep.

A strategy knows no device and no time. A cap that is asked for again is a re-measurement: the controller measures it to
half the target error.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar, Protocol

import numpy as np

from autocap.errors import StrategyError
from autocap.metrics import Metric
from autocap.records import Measurement, Prediction, RelativeCurve, Trial, TrialLength, TrialState
from autocap.strategies.findings import Finding, find_out, smooth
from autocap.strategies.grid import CapGrid
from autocap.strategies.options import Needs, Option, OptionScalar

STRIDE = 1 / 4  # of the grid's width: the longest step down from the lowest cap tried
_WINDOWS = (1 / 8, 1 / 16)  # half-widths of the smoothing windows, shares of the grid's width


class StrategyLike(Protocol):
    """What the controller needs of a strategy; a plug-in need not inherit from Strategy. Of what that has besides,
    `explain`, `predict`, `expect`, `expected_loss`, `expected_trials` and `trial_length` are used of one that has them.
    """

    def ask(self) -> float | None:
        """Where to measure next.

        Returns:
            The next cap to try, watts, on the grid; `None` when the search is over.
        """

    def tell(self, trial: Trial) -> None:
        """Take in what was measured.

        Args:
            trial: The fate of the cap that was asked for last.
        """

    def recommend(self) -> float | None:
        """What to keep.

        Returns:
            A cap that was measured, watts; `None` when no trial succeeded.
        """


class Strategy(ABC):
    """Base of the built-in strategies: keeps the trials, pools repeats, and re-measures before it recommends.

    A subclass says where to look with `_next`. When that is done, every cap whose pooled cost lies within two sigma
    of the best and that was measured only once is asked for again, best first: picking the luckiest of thirty is the
    commonest way to be wrong. What that teaches may send the search on. Among the caps that stay within two sigma
    the one is recommended that its neighbours speak for as well (`smooth`).

    Args:
        grid: The caps it may ask for, watts.
        metric: What is minimised, with the slowdown limit that a kept cap must respect.
        baseline: Measured at the limit found on arrival.
        rng: The same seed gives the same asks.
        history: Earlier trials, oldest first (a warm start); empty otherwise. Their costs are against another run's
            baseline: a hint where to begin.
        options: The value of every option in OPTIONS, by name.
        elsewhere: What other jobs have shown on this card, or this job on others; empty otherwise. Given to those alone
            that say so in ELSEWHERE.

    Attributes:
        OPTIONS: What a user may set.
        NEEDS: Of the knob. Where settings have no order, only what a setting has shown itself speaks for it.
        ELSEWHERE: Whether it makes use of `elsewhere`.
        trial_length: How long trials last, none of them pruned; `None` leaves that to the run's settings.
        findings: What is known of each cap that has a cost, by cap.
        failures: How often each cap failed.
    """

    OPTIONS: ClassVar[tuple[Option, ...]] = ()
    NEEDS: ClassVar[Needs] = Needs.ORDERED
    ELSEWHERE: ClassVar[bool] = False
    trial_length: ClassVar[TrialLength | None] = None

    def __init__(
        self,
        grid: CapGrid,
        metric: Metric,
        baseline: Measurement,
        rng: np.random.Generator,
        history: Sequence[Trial],
        options: Mapping[str, OptionScalar],
        elsewhere: Sequence[RelativeCurve] = (),
    ) -> None:
        self.grid, self.metric, self.baseline, self.rng = grid, metric, baseline, rng
        self.history = tuple(history)
        self.elsewhere = tuple(elsewhere)
        self.options = options
        self.findings: dict[float, Finding] = {}
        self.failures: Counter[float] = Counter()
        self._trials: list[Trial] = []  # of this search, oldest first
        self._tried_w = set[float]()  # their caps
        self._done = False
        self._set_up()

    def _set_up(self) -> None:
        """What a subclass keeps besides; called once, at the end of construction. Raises UsageError for options that
        do not go with the grid or the installation."""
        return

    @property
    def expected_trials(self) -> int | None:
        """How many trials the search is likely to take, repeats left out, for the progress shown of it; `None` where
        nobody can tell. Of a strategy with an option `trials` that is the most."""
        most = self.options.get("trials")
        return most if isinstance(most, int) else None

    def explain(self) -> str | None:
        """What it expects of the cap it recommends, for the log; `None` where it has nothing to say."""
        return None

    def predict(self) -> Sequence[Prediction]:
        """What it expects of caps that were not measured, for the report."""
        return ()

    def expect(self) -> Sequence[Prediction]:
        """The same of those that were measured as well."""
        return self.predict()

    def expected_loss(self) -> tuple[float, float] | None:
        """What keeping the recommended cap is expected to lose, for `bench strategies`.

        Returns:
            How much more it is expected to cost than the best of all, relative to the best, and the standard deviation
            of that; `None` where it does not say.
        """
        return None

    @abstractmethod
    def _next(self) -> float | None:
        """The next cap of the search proper, `None` when it is over; the same again until a trial was told."""

    def ask(self) -> float | None:
        """Where to measure next.

        Returns:
            The next cap to try, watts; `None` when the search is over, and ever after.
        """
        if self._done:
            return None
        setting = self._next()
        if setting is None:
            setting = self._doubtful()
        self._done = setting is None
        return setting

    def tell(self, trial: Trial) -> None:
        """Take in a trial.

        Raises:
            StrategyError: For a cap that is not on the grid.
        """
        if trial.setting not in self.grid:
            where, grid = self.grid.text(trial.setting), self.grid
            told = f"told of a trial at {where}, which is not among the {len(grid)} caps of the grid from {grid.span}"
            raise StrategyError(grid.knob.said(told))
        if trial.state is TrialState.FAILED:
            self.failures[trial.setting] += 1
        self._trials.append(trial)
        self._tried_w.add(trial.setting)
        finding = find_out([one for one in self._trials if one.setting == trial.setting], self.metric, self.baseline)
        if finding is not None:
            self.findings[trial.setting] = finding

    def recommend(self) -> float | None:
        """What to keep.

        Returns:
            The cheapest cap that was measured to the end and is allowed, watts; `None` where there is none. Where
            several cannot be told apart by their own costs (two sigma), the cheapest by smoothed costs.
        """
        best = self.best()
        if best is None:
            return None
        keepable = sorted(self._keepable(), key=lambda finding: finding.setting)
        span_w = self.grid[-1] - self.grid[0]
        settings, own, errors = np.array([(finding.setting, finding.cost, finding.stderr) for finding in keepable]).T
        windows = [share * span_w for share in _WINDOWS] if self.grid.knob.ordered else []
        costs = smooth(settings, own, errors, windows)
        rivals = [
            (cost, finding.setting)
            for cost, finding in zip(costs.tolist(), keepable, strict=True)
            if not finding.beyond(best, sigmas=2)
        ]
        return min(rivals)[1]

    def best(self) -> Finding | None:
        """The finding with the lowest pooled cost of those that may be kept."""
        return min(self._keepable(), key=lambda finding: finding.cost, default=None)

    def _keepable(self) -> list[Finding]:
        return [finding for finding in self.findings.values() if finding.keepable]

    def _cheapest_before(self) -> float | None:
        """The grid's cap nearest to the cheapest of the history, watts; `None` without one."""
        measured = [trial for trial in self.history if trial.state is TrialState.COMPLETE]
        if not measured:
            return None
        return self.grid.nearest(min(measured, key=lambda trial: trial.cost or 0.0).setting)

    def _draw_w(self) -> float:
        """The power above which a cap changes nothing as far as the baseline tells, watts; at most the highest cap.
        Of another knob than the power limit, the highest setting."""
        if self.baseline.cap_binding is not False or not self.grid.knob.is_power_limit:
            return self.grid[-1]
        return min(self.grid[-1], self.baseline.of_gpus().power_w / len(self.baseline.setting))

    def _step_down(self, lowest_w: float) -> float:
        """The lowest cap to try next, watts: a stride below the lowest so far, or none below it where that is already
        worse than the best by two sigma."""
        lowest, best = self.findings.get(lowest_w), self.best()
        rising = lowest is not None and best is not None and lowest.beyond(best, sigmas=2)
        return self.grid.nearest(lowest_w if rising else lowest_w - STRIDE * (self.grid[-1] - self.grid[0]))

    def _slow_w(self) -> float:
        """The highest cap that surely breaks the slowdown limit, watts; 0 where none does."""
        return max((finding.setting for finding in self.findings.values() if finding.forbidden), default=0.0)

    def _number(self, option: str) -> float:
        value = self.options[option]
        assert isinstance(value, int | float)
        return value

    def _whole(self, option: str) -> int:
        value = self.options[option]
        assert isinstance(value, int)
        return value

    def tried(self, setting: float) -> bool:
        """Whether any trial of that cap was told, a failed one included."""
        return setting in self._tried_w

    def _doubtful(self) -> float | None:
        """The next cap to measure again: the likeliest of those that could still be the best; `None` if settled.

        A cap whose slowdown may or may not be within the limit is doubtful too, unless it costs more than the best.
        """
        best = self.best()
        candidates = [
            finding
            for finding in self.findings.values()
            if finding.complete and not finding.forbidden and (best is None or not finding.beyond(best, sigmas=2))
        ]
        if candidates == [best]:
            return None  # no rival: it is the best, however roughly measured
        once = [finding for finding in candidates if not finding.repeated]
        return min(once, key=lambda finding: finding.rank).setting if once else None
