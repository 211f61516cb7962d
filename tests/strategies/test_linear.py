from collections.abc import Sequence

import numpy as np
import pytest

from autocap.errors import UsageError
from autocap.metrics import Metric
from autocap.records import Measurement, Trial
from autocap.strategies.grid import CapGrid
from autocap.strategies.linear import Linear
from autocap.strategies.options import OptionScalar
from autocap.strategies.registry import option_values
from autocap.testing.curves import BUMPY, CLIFF, FALLING, GRID, PHYSICAL, RISING, Curve, Search, measured, search
from autocap.testing.strategies import EDP, EDS, ENERGY, StrategyContract


def linear(metric: Metric, baseline: Measurement, grid: CapGrid = GRID, **options: OptionScalar) -> Linear:
    values = option_values(Linear, []) | options
    return Linear(grid=grid, metric=metric, baseline=baseline, rng=np.random.default_rng(0), history=(), options=values)


def scan(
    curve: Curve,
    metric: Metric = ENERGY,
    noise: float = 0.0,
    seed: int = 0,
    stated: float | None = None,
    **options: OptionScalar,
) -> Search:
    baseline = measured(curve, GRID[-1], stated=noise / 2)
    return search(linear(metric, baseline, **options), curve, metric, baseline, noise, stated, seed)


class TestContract(StrategyContract):
    def make(
        self, grid: CapGrid, metric: Metric, baseline: Measurement, seed: int = 0, history: Sequence[Trial] = ()
    ) -> Linear:
        return linear(metric, baseline, grid)


class TestContractWithEveryOption(StrategyContract):
    def make(
        self, grid: CapGrid, metric: Metric, baseline: Measurement, seed: int = 0, history: Sequence[Trial] = ()
    ) -> Linear:
        return linear(metric, baseline, grid, step=20.0, direction="up", patience=3)


def test_it_scans_the_whole_grid_downwards() -> None:
    assert scan(CLIFF).asks == tuple(reversed(GRID))


def test_it_scans_upwards_when_told_to() -> None:
    assert scan(CLIFF, direction="up").asks == tuple(GRID)


def test_a_step_leaves_caps_out_but_neither_end() -> None:
    assert scan(CLIFF, step=45.0).asks == (260.0, 215.0, 170.0, 125.0, 100.0)


def test_without_noise_it_finds_the_best_cap_and_repeats_nothing() -> None:
    for curve in (CLIFF, BUMPY, FALLING, RISING):
        found = scan(curve)
        assert curve.regret(ENERGY, found.kept_w or GRID[-1]) == pytest.approx(0, abs=1e-9)
        assert len(found.asks) == len(GRID)


def test_patience_ends_a_scan_that_only_gets_worse() -> None:
    found = scan(RISING, noise=0.005, patience=3)
    assert found.kept_w == 260.0
    assert len(set(found.asks)) < 10


def test_patience_does_not_end_a_scan_that_improves() -> None:
    assert set(scan(FALLING, noise=0.005, patience=3).asks) == set(GRID)


def test_a_downward_scan_ends_at_the_first_cap_that_is_too_slow() -> None:
    curve = PHYSICAL[2]
    found = scan(curve, Metric(name="energy", max_slowdown=0.05))
    too_slow = [cap_w for cap_w in found.asks if curve.time_s(cap_w) / curve.time_s(GRID[-1]) > 1.05]
    assert too_slow == [min(found.asks)]
    assert found.kept_w == min(cap_w for cap_w in found.asks if cap_w not in too_slow)


def test_what_a_slowdown_limit_leaves_undecided_is_measured_again() -> None:
    curve, metric = PHYSICAL[2], Metric(name="energy", max_slowdown=0.05)
    baseline = measured(curve, GRID[-1])
    found = search(linear(metric, baseline), curve, metric, baseline, stated=0.005)
    doubtful = [cap_w for cap_w in GRID if 1.04 < curve.time_s(cap_w) / curve.time_s(GRID[-1]) < 1.05]
    assert doubtful
    assert all(found.asks.count(cap_w) == 2 for cap_w in doubtful)


@pytest.mark.parametrize("metric", [ENERGY, EDP, EDS], ids=lambda metric: metric.name)
def test_half_a_percent_of_noise_costs_less_than_one_percent(metric: Metric) -> None:
    regrets = [
        curve.regret(metric, scan(curve, metric, noise=0.005, seed=seed).kept_w or GRID[-1])
        for curve in PHYSICAL
        for seed in range(4)
    ]
    assert np.mean(regrets) < 0.004
    assert max(regrets) < 0.01


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("step", "-1", "finite number at least 0"),
        ("step", "nan", "finite number at least 0"),
        ("direction", "left", "it takes down, up"),
        ("patience", "2.5", "a whole number"),
        ("stride", "5", "this strategy's options: step, direction, patience"),
    ],
)
def test_bad_options_are_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        option_values(Linear, [(name, text)])
