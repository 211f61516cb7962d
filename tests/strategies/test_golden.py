from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autocap.metrics import Metric
from autocap.records import Measurement, Trial, TrialState
from autocap.strategies.golden import Golden
from autocap.strategies.grid import CapGrid
from autocap.strategies.options import OptionScalar
from autocap.strategies.registry import option_values
from autocap.testing.curves import (
    CLIFF,
    FALLING,
    FLAT,
    GRID,
    PHYSICAL,
    RISING,
    Curve,
    Search,
    measured,
    search,
    trial_of,
)
from autocap.testing.strategies import EDP, EDS, ENERGY, StrategyContract


def golden(
    metric: Metric,
    baseline: Measurement,
    grid: CapGrid = GRID,
    history: Sequence[Trial] = (),
    **options: OptionScalar,
) -> Golden:
    values = option_values(Golden, []) | options
    rng = np.random.default_rng(0)
    return Golden(grid=grid, metric=metric, baseline=baseline, rng=rng, history=history, options=values)


def divide(curve: Curve, metric: Metric = ENERGY, noise: float = 0.0, seed: int = 0, **options: OptionScalar) -> Search:
    baseline = measured(curve, GRID[-1], stated=noise / 2)
    return search(golden(metric, baseline, **options), curve, metric, baseline, noise, seed=seed)


def told(cap_w: float, cost: float, stderr: float) -> Trial:
    return Trial(
        cap_w=cap_w, state=TrialState.COMPLETE, cost=cost, cost_stderr=stderr, measurement=measured(FLAT, cap_w)
    )


class TestContract(StrategyContract):
    def make(
        self, grid: CapGrid, metric: Metric, baseline: Measurement, seed: int = 0, history: Sequence[Trial] = ()
    ) -> Golden:
        return golden(metric, baseline, grid, history)


@pytest.mark.parametrize("metric", [ENERGY, EDP, EDS], ids=lambda metric: metric.name)
@pytest.mark.parametrize("curve", PHYSICAL, ids=lambda curve: curve.name)
def test_without_noise_it_finds_the_valley_and_measures_no_cap_twice(curve: Curve, metric: Metric) -> None:
    found = divide(curve, metric)
    assert len(found.asks) == len(set(found.asks)) <= 12
    assert curve.regret(metric, found.kept_w or GRID[-1]) < 1e-3


def test_it_reaches_either_end_of_the_grid() -> None:
    assert divide(FALLING).kept_w == 100.0
    assert divide(RISING).kept_w == 260.0


def test_the_first_two_probes_divide_the_grid_by_the_golden_ratio() -> None:
    first, second = divide(CLIFF).asks[:2]
    assert (first - 100) / 160 == pytest.approx(0.618, abs=0.02)
    assert (second - 100) / 160 == pytest.approx(0.382, abs=0.02)


def test_where_the_limit_does_not_bind_it_divides_what_lies_below_the_draw() -> None:
    curve = next(curve for curve in PHYSICAL if curve.name == "compute-bound, low draw")
    baseline = replace(measured(curve, GRID[-1]), cap_binding=False)
    found = search(golden(ENERGY, baseline), curve, ENERGY, baseline)
    assert max(found.asks) <= 190.0
    assert curve.regret(ENERGY, found.kept_w or GRID[-1]) < 1e-3
    assert len(found.asks) < len(divide(curve).asks)


def test_a_best_cap_at_the_draw_sends_it_above_the_draw() -> None:
    baseline = replace(measured(RISING, GRID[-1]), power_w=150.0, cap_binding=False)
    found = search(golden(ENERGY, baseline), RISING, ENERGY, baseline)
    assert found.asks[0] <= 150.0
    assert found.kept_w == 260.0


def test_where_every_cap_below_the_draw_fails_it_goes_above_the_draw() -> None:
    baseline = replace(measured(CLIFF, GRID[-1]), power_w=120.0, cap_binding=False)
    found = search(golden(ENERGY, baseline), CLIFF, ENERGY, baseline, fails=lambda cap_w, count: cap_w <= 120.0)
    assert found.kept_w == 125.0


def test_a_side_is_given_up_only_after_both_caps_that_hide_it_were_measured_again() -> None:
    strategy = golden(ENERGY, measured(FLAT, GRID[-1]))
    for cap_w, cost in [(165.0, 0.97), (170.0, 0.90), (180.0, 0.905), (185.0, 0.97)]:
        strategy.tell(told(cap_w, cost, 0.02))
    assert strategy.ask() == 170.0
    strategy.tell(told(170.0, 0.90, 0.003))
    assert strategy.ask() == 180.0
    strategy.tell(told(180.0, 0.88, 0.003))
    assert strategy.ask() == 175.0


def test_a_wider_tolerance_takes_fewer_probes() -> None:
    assert len(divide(CLIFF, tolerance=30.0).asks) < len(divide(CLIFF).asks)


def test_a_fine_grid_is_searched_to_the_tolerance_only() -> None:
    grid = CapGrid.stepped(100, 260, 0.5)
    baseline = measured(CLIFF, 260.0)
    found = search(golden(ENERGY, baseline, grid), CLIFF, ENERGY, baseline)
    assert len(found.asks) <= 14
    assert abs((found.kept_w or GRID[-1]) - 125) < 5


def test_two_first_probes_on_a_plateau_do_not_hide_the_valley() -> None:
    plateau = next(curve for curve in PHYSICAL if curve.name == "draws little")
    for seed in range(10):
        found = divide(plateau, noise=0.005, seed=seed)
        assert plateau.regret(ENERGY, found.kept_w or GRID[-1]) < 0.03


def test_a_flat_curve_does_not_send_it_over_the_whole_grid() -> None:
    for seed in range(10):
        assert len(set(divide(FLAT, noise=0.005, seed=seed).asks)) < len(GRID) / 2


def test_a_cap_that_fails_is_passed_over_for_its_neighbours() -> None:
    baseline = measured(CLIFF, GRID[-1])
    best_w = min(GRID, key=lambda cap_w: CLIFF.cost(ENERGY, cap_w))
    found = search(golden(ENERGY, baseline), CLIFF, ENERGY, baseline, fails=lambda cap_w, count: cap_w == best_w)
    assert 0 < abs(found.kept_w - best_w) <= 10


def test_a_slowdown_limit_moves_it_up_to_the_lowest_cap_allowed() -> None:
    curve, metric = PHYSICAL[2], Metric(name="energy", max_slowdown=0.05)
    found = divide(curve, metric)
    allowed = [cap_w for cap_w in GRID if curve.time_s(cap_w) / curve.time_s(GRID[-1]) <= 1.05]
    assert found.kept_w == min(allowed)
    first_too_slow = next(i for i, cap_w in enumerate(found.asks) if cap_w not in allowed)
    assert all(cap_w > found.asks[first_too_slow] for cap_w in found.asks[first_too_slow + 1 :])


def test_a_warm_start_begins_at_the_cheapest_cap_of_its_history() -> None:
    baseline = measured(CLIFF, GRID[-1])
    history = [trial_of(ENERGY, measured(CLIFF, cap_w), baseline) for cap_w in (240.0, 133.0, 180.0)]
    assert golden(ENERGY, baseline, history=history).ask() == 135.0


@pytest.mark.parametrize("metric", [ENERGY, EDP, EDS], ids=lambda metric: metric.name)
def test_half_a_percent_of_noise_costs_little_and_few_probes(metric: Metric) -> None:
    searches = [(curve, divide(curve, metric, noise=0.005, seed=seed)) for curve in PHYSICAL for seed in range(8)]
    regrets = [curve.regret(metric, found.kept_w or GRID[-1]) for curve, found in searches]
    assert np.mean(regrets) < 0.004
    assert max(regrets) < 0.03
    assert np.mean([len(set(found.asks)) for _, found in searches]) < len(GRID) / 3


class TestContractWhereTheLimitDoesNotBind(StrategyContract):
    def make(
        self, grid: CapGrid, metric: Metric, baseline: Measurement, seed: int = 0, history: Sequence[Trial] = ()
    ) -> Golden:
        return golden(metric, replace(baseline, cap_binding=False), grid, history)


@pytest.mark.parametrize("curve", PHYSICAL[:6], ids=lambda curve: curve.name)
def test_it_takes_about_as_many_trials_as_it_expects(curve: Curve) -> None:
    expected = golden(EDS, measured(curve, GRID[-1])).expected_trials
    assert abs(expected - len(divide(curve, EDS).asks)) <= 4
