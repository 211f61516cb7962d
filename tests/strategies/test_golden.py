from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from autocap.metrics import Metric
from autocap.records import Measurement, Trial, TrialState
from autocap.strategies.golden import Golden
from autocap.strategies.grid import CapGrid
from autocap.testing import curves
from autocap.testing.strategies import EDP, EDS, ENERGY, StrategyContract
from tests.doubles.searches import built, searched

golden = partial(built, Golden)


divide = partial(searched, Golden)


def told(cap_w: float, cost: float, stderr: float) -> Trial:
    shown = curves.measured(curves.FLAT, cap_w)
    return Trial(setting=cap_w, state=TrialState.COMPLETE, cost=cost, cost_stderr=stderr, measurement=shown)


class TestContract(StrategyContract):
    strategy = Golden


@pytest.mark.parametrize("metric", [ENERGY, EDP, EDS], ids=lambda metric: metric.name)
@pytest.mark.parametrize("curve", curves.PHYSICAL, ids=lambda curve: curve.name)
def test_without_noise_it_finds_the_valley_and_measures_no_cap_twice(curve: curves.Curve, metric: Metric) -> None:
    found = divide(curve, metric)
    assert len(found.asks) == len(set(found.asks)) <= 12
    assert curve.regret(metric, found.kept_w or curves.GRID[-1]) < 1e-3


def test_the_first_two_probes_divide_the_grid_by_the_golden_ratio() -> None:
    first, second = divide(curves.CLIFF).asks[:2]
    assert (first - 100) / 160 == pytest.approx(0.618, abs=0.02)
    assert (second - 100) / 160 == pytest.approx(0.382, abs=0.02)


def test_where_the_limit_does_not_bind_it_divides_what_lies_below_the_draw() -> None:
    curve = next(curve for curve in curves.PHYSICAL if curve.name == "compute-bound, low draw")
    baseline = replace(curves.measured(curve, curves.GRID[-1]), cap_binding=False)
    found = curves.search(golden(ENERGY, baseline), curve, ENERGY, baseline)
    assert max(found.asks) <= 190.0
    assert curve.regret(ENERGY, found.kept_w or curves.GRID[-1]) < 1e-3
    assert len(found.asks) < len(divide(curve).asks)


def test_a_best_cap_at_the_draw_sends_it_above_the_draw() -> None:
    baseline = replace(curves.measured(curves.RISING, curves.GRID[-1]), power_w=150.0, cap_binding=False)
    found = curves.search(golden(ENERGY, baseline), curves.RISING, ENERGY, baseline)
    assert found.asks[0] <= 150.0
    assert found.kept_w == 260.0


def test_where_every_cap_below_the_draw_fails_it_goes_above_the_draw() -> None:
    baseline = replace(curves.measured(curves.CLIFF, curves.GRID[-1]), power_w=120.0, cap_binding=False)
    found = curves.search(golden(ENERGY, baseline), curves.CLIFF, ENERGY, baseline, fails=lambda cap_w, _: cap_w <= 120)
    assert found.kept_w == 125.0


def test_a_side_is_given_up_only_after_both_caps_that_hide_it_were_measured_again() -> None:
    strategy = golden(ENERGY, curves.measured(curves.FLAT, curves.GRID[-1]))
    for cap_w, cost in [(165.0, 0.97), (170.0, 0.90), (180.0, 0.905), (185.0, 0.97)]:
        strategy.tell(told(cap_w, cost, 0.02))
    assert strategy.ask() == 170.0
    strategy.tell(told(170.0, 0.90, 0.003))
    assert strategy.ask() == 180.0
    strategy.tell(told(180.0, 0.88, 0.003))
    assert strategy.ask() == 175.0


def test_a_wider_tolerance_takes_fewer_probes() -> None:
    assert len(divide(curves.CLIFF, tolerance=30.0).asks) < len(divide(curves.CLIFF).asks)


def test_a_fine_grid_is_searched_to_the_tolerance_only() -> None:
    grid = CapGrid.stepped(100, 260, 0.5)
    baseline = curves.measured(curves.CLIFF, 260.0)
    found = curves.search(golden(ENERGY, baseline, grid), curves.CLIFF, ENERGY, baseline)
    assert len(found.asks) <= 14
    assert abs((found.kept_w or curves.GRID[-1]) - 125) < 5


def test_two_first_probes_on_a_plateau_do_not_hide_the_valley() -> None:
    plateau = next(curve for curve in curves.PHYSICAL if curve.name == "draws little")
    for seed in range(10):
        found = divide(plateau, noise=0.005, seed=seed)
        assert plateau.regret(ENERGY, found.kept_w or curves.GRID[-1]) < 0.03


def test_a_flat_curve_does_not_send_it_over_the_whole_grid() -> None:
    for seed in range(10):
        assert len(set(divide(curves.FLAT, noise=0.005, seed=seed).asks)) < len(curves.GRID) / 2


def test_a_cap_that_fails_is_passed_over_for_its_neighbours() -> None:
    baseline = curves.measured(curves.CLIFF, curves.GRID[-1])
    best_w = min(curves.GRID, key=lambda cap_w: curves.CLIFF.cost(ENERGY, cap_w))
    fails = {"fails": lambda cap_w, count: cap_w == best_w}
    found = curves.search(golden(ENERGY, baseline), curves.CLIFF, ENERGY, baseline, **fails)
    assert 0 < abs(found.kept_w - best_w) <= 10


def test_a_slowdown_limit_moves_it_up_to_the_lowest_cap_allowed() -> None:
    curve, metric = curves.PHYSICAL[2], Metric(name="energy", max_slowdown=0.05)
    found = divide(curve, metric)
    allowed = [cap_w for cap_w in curves.GRID if curve.time_s(cap_w) / curve.time_s(curves.GRID[-1]) <= 1.05]
    assert found.kept_w == min(allowed)
    first_too_slow = next(i for i, cap_w in enumerate(found.asks) if cap_w not in allowed)
    assert all(cap_w > found.asks[first_too_slow] for cap_w in found.asks[first_too_slow + 1 :])


class TestContractWhereTheLimitDoesNotBind(StrategyContract):
    def make(self, grid: CapGrid, metric: Metric, baseline: Measurement, seed: int = 0, history: Any = ()) -> Golden:
        return golden(metric, replace(baseline, cap_binding=False), grid, history)


@pytest.mark.parametrize("curve", curves.PHYSICAL[:6], ids=lambda curve: curve.name)
def test_it_takes_about_as_many_trials_as_it_expects(curve: curves.Curve) -> None:
    expected = golden(EDS, curves.measured(curve, curves.GRID[-1])).expected_trials
    assert abs(expected - len(divide(curve, EDS).asks)) <= 4
