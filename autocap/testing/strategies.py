"""What every strategy must do, also a stranger's: subclass StrategyContract, name the class, and run pytest.

class TestMine(StrategyContract):
    strategy = Mine
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
import pytest

from autocap.metrics import Metric
from autocap.records import Measurement, Trial, TrialState
from autocap.strategies.base import StrategyLike
from autocap.strategies.checked import CheckedStrategy, complaints
from autocap.strategies.grid import CapGrid
from autocap.strategies.options import needs_of, options_of
from autocap.strategies.registry import StrategyFactory, option_values
from autocap.testing.curves import (
    BUMPY,
    CLIFF,
    FALLING,
    FLAT,
    GRID,
    LEVELS,
    MODES,
    OF_LEVELS,
    OF_MODES,
    PHYSICAL,
    RISING,
    Curve,
    Search,
    measured,
    search,
    trial_of,
)

ENERGY = Metric(name="energy")
EDP = Metric(name="edp")
EDS = Metric(name="eds", k=2.0)
BUDGET = Metric(name="energy", max_slowdown=0.05)
CURVES = (FLAT, FALLING, RISING, BUMPY, CLIFF, PHYSICAL[2], PHYSICAL[7])
METRICS = (ENERGY, EDP, EDS, BUDGET)

every_curve = pytest.mark.parametrize("curve", CURVES, ids=lambda curve: curve.name)
every_metric = pytest.mark.parametrize(
    "metric", METRICS, ids=lambda metric: metric.name + (" in a budget" if metric.max_slowdown else "")
)
every_size = pytest.mark.parametrize(
    "grid", [CapGrid((150.0,)), CapGrid((100.0, 260.0)), CapGrid((100.0, 180.0, 260.0))], ids=len
)


class StrategyContract:
    """The suite. strategy: the class under test; options: those with other values than their defaults.

    `make` builds it for a grid, a metric, a baseline, a seed and a history; a suite may have its own.
    """

    strategy: ClassVar[StrategyFactory | None] = None
    options: ClassVar[Mapping[str, object]] = {}

    def make(
        self,
        grid: CapGrid,
        metric: Metric,
        baseline: Measurement,
        seed: int = 0,
        history: Sequence[Trial] = (),
    ) -> StrategyLike:
        factory = self.strategy
        assert factory is not None, "name the class: strategy = Mine"
        assert complaints(factory) == [], "it has the shape of a strategy"
        given = [(name, str(value)) for name, value in self._options_for(grid).items()]
        return factory(
            grid=grid,
            metric=metric,
            baseline=baseline,
            rng=np.random.default_rng(seed),
            history=history,
            options=option_values(factory, given, grid.knob),
        )

    def _options_for(self, grid: CapGrid) -> Mapping[str, object]:
        """Of another knob than the power limit its first setting stands for a cap."""
        caps = {option.name for option in options_of(self.strategy or type(self)) if option.is_cap}
        if grid.knob.is_power_limit:
            return self.options
        return {name: grid.text(grid[0]) if name in caps else value for name, value in self.options.items()}

    def run(
        self,
        curve: Curve,
        metric: Metric = ENERGY,
        grid: CapGrid = GRID,
        seed: int = 0,
        noise: float = 0.005,
        history: Sequence[Trial] = (),
        **how: object,
    ) -> Search:
        baseline = measured(curve, grid[-1], stated=noise / 2)
        strategy = self.make(grid, metric, baseline, seed, history)
        found = search(strategy, curve, metric, baseline, noise, seed=seed, **how)  # type: ignore[arg-type]  # passed on
        self.check(strategy, found, grid)
        return found

    @staticmethod
    def check(strategy: StrategyLike, found: Search, grid: CapGrid) -> None:
        """What holds after any search whatever."""
        assert all(type(setting) is float for setting in found.asks), "a cap is a plain float, not a numpy scalar"
        assert set(found.asks) <= set(grid), "every cap lies on the grid"
        assert len(found.asks) <= 4 * len(grid) + 10, "a search ends"
        assert [strategy.ask() for _ in range(3)] == [None] * 3, "what is over stays over"
        complete = {trial.setting for trial in found.trials if trial.state is TrialState.COMPLETE}
        assert found.kept_w is None or found.kept_w in complete, "only what was measured to the end is recommended"
        assert found.kept_w is None or type(found.kept_w) is float
        assert strategy.recommend() == found.kept_w, "recommending changes nothing"
        checked = CheckedStrategy(lambda: strategy, grid)
        predicted = [one.setting for one in checked.predict()]
        assert len(predicted) == len(set(predicted))
        assert set(predicted) <= set(grid) - {trial.setting for trial in found.trials if trial.cost is not None}, (
            "what was measured is not predicted"
        )
        assert checked.expected_trials is None or checked.expected_trials > 0

    @every_metric
    @every_curve
    def test_it_asks_on_the_grid_ends_and_keeps_what_it_measured(self, curve: Curve, metric: Metric) -> None:
        self.run(curve, metric, seed=METRICS.index(metric))

    @every_curve
    def test_it_needs_no_noise(self, curve: Curve) -> None:
        self.run(curve, noise=0.0)

    @every_curve
    def test_it_survives_noise_of_five_percent(self, curve: Curve) -> None:
        self.run(curve, noise=0.05)

    def test_it_survives_noise_that_is_stated_as_none(self) -> None:
        self.run(FLAT, noise=0.01, stated=0.0)

    @every_metric
    @every_size
    def test_it_works_on_the_smallest_grids(self, grid: CapGrid, metric: Metric) -> None:
        for curve in CURVES:
            self.run(curve, metric, grid)

    def test_the_same_seed_gives_the_same_asks(self) -> None:
        first, second = self.run(CLIFF, EDP, seed=5), self.run(CLIFF, EDP, seed=5)
        assert first.asks == second.asks
        assert first.kept_w == second.kept_w

    def test_a_failed_first_trial_is_survived(self) -> None:
        ask_numbers: list[float] = []

        def first_fails(setting: float, count: int) -> bool:
            ask_numbers.append(setting)
            return len(ask_numbers) == 1

        assert self.run(CLIFF, fails=first_fails).kept_w is not None

    @pytest.mark.parametrize("every", [2, 3])
    def test_a_failed_cap_is_asked_at_most_once_more(self, every: int) -> None:
        broken = set(GRID[::every])
        found = self.run(CLIFF, fails=lambda setting, count: setting in broken)
        assert all(found.asks.count(setting) <= 2 for setting in broken)
        assert found.kept_w not in broken

    def test_a_repeat_that_fails_is_survived(self) -> None:
        found = self.run(FLAT, fails=lambda setting, count: count > 1)
        assert found.kept_w is not None

    @every_size
    def test_it_gives_up_when_every_trial_fails(self, grid: CapGrid) -> None:
        assert self.run(CLIFF, fails=lambda setting, count: True).kept_w is None
        assert self.run(CLIFF, grid=grid, fails=lambda setting, count: True).kept_w is None

    def test_it_recommends_nothing_before_a_trial(self) -> None:
        assert self.make(GRID, ENERGY, measured(CLIFF, GRID[-1])).recommend() is None

    def test_it_recommends_nothing_that_was_only_pruned(self) -> None:
        baseline = measured(CLIFF, GRID[-1])
        strategy = self.make(GRID, ENERGY, baseline)
        asks: list[float] = []
        while len(asks) < 1000 and (setting := strategy.ask()) is not None:
            asks.append(setting)
            trial = trial_of(ENERGY, measured(CLIFF, setting, stated=0.01), baseline)
            strategy.tell(
                Trial(
                    setting=setting,
                    state=TrialState.PRUNED,
                    cost=trial.cost,
                    cost_stderr=trial.cost_stderr,
                    measurement=trial.measurement,
                )
            )
        assert len(asks) == len(set(asks)) <= len(GRID), "a pruned cap is never measured again"
        assert strategy.recommend() is None

    def test_it_goes_on_from_trials_that_another_one_asked_for(self) -> None:
        baseline = measured(CLIFF, GRID[-1])
        strategy, told = self.make(GRID, ENERGY, baseline), (GRID[-3], GRID[len(GRID) // 2])
        for setting in told:
            strategy.tell(trial_of(ENERGY, measured(CLIFF, setting, stated=0.005), baseline))
        assert strategy.recommend() in told, "without a question before, they are trials like any other"
        next_w = strategy.ask()
        assert next_w is None or next_w in GRID

    @pytest.mark.parametrize("limit", [0.01, 0.05, 0.2])
    @every_curve
    def test_a_slowdown_limit_is_kept_whatever_a_cap_would_save(self, curve: Curve, limit: float) -> None:
        metric = Metric(name="energy", max_slowdown=limit)
        for noise, stated in [(0.0, 0.0), (0.0, 0.002)]:
            kept_w = self.run(curve, metric, noise=noise, stated=stated).kept_w
            assert kept_w is None or curve.time_s(kept_w) / curve.time_s(GRID[-1]) <= 1 + limit

    @every_metric
    @pytest.mark.parametrize(("grid", "curve"), [(LEVELS, OF_LEVELS), (MODES, OF_MODES)], ids=["an order", "no order"])
    def test_it_searches_every_knob_that_is_what_it_needs(self, grid: CapGrid, curve: Curve, metric: Metric) -> None:
        made = self.make(GRID, metric, measured(CLIFF, GRID[-1]))
        if not needs_of(self.strategy or type(made)).are_met_by(grid.knob):
            return
        self.run(curve, metric, grid)
        kept = self.run(curve, metric, grid, noise=0.0).kept_w
        slower = 0.0 if kept is None else curve.time_s(kept) / curve.time_s(grid[-1]) - 1
        assert metric.max_slowdown is None or slower <= metric.max_slowdown

    def test_history_is_no_measurement_of_this_run(self) -> None:
        baseline = measured(CLIFF, GRID[-1])
        history = [trial_of(ENERGY, measured(CLIFF, setting, stated=0.005), baseline) for setting in GRID[::4]]
        strategy = self.make(GRID, ENERGY, baseline, history=history)
        assert strategy.recommend() is None
        self.run(CLIFF, history=history)
