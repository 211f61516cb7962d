import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import pytest

from autocap.metrics import Metric
from autocap.records import Measurement, Trial
from autocap.strategies.grid import CapGrid
from autocap.strategies.options import OptionScalar
from autocap.testing.curves import CLIFF, FALLING, FLAT, GRID, PHYSICAL, Curve, Search, measured, search, trial_of
from autocap.testing.strategies import EDP, EDS, ENERGY, StrategyContract
from tests.doubles.searches import built

if TYPE_CHECKING:  # it loads torch, which would cost every process that collects the tests two seconds
    from autocap.strategies.bayesian import Bayesian

NOISE = 0.005
needs_torch = pytest.mark.skipif(find_spec("torch") is None, reason="the Gaussian process needs torch")


def bayesian(metric: Metric, baseline: Measurement, **given: Any) -> "Bayesian":
    from autocap.strategies.bayesian import Bayesian

    return built(Bayesian, metric, baseline, **given)


def optimise(curve: Curve, metric: Metric = ENERGY, seed: int = 0, **options: OptionScalar) -> Search:
    baseline = measured(curve, GRID[-1], stated=NOISE / 2)
    return search(bayesian(metric, baseline, seed=seed, **options), curve, metric, baseline, NOISE, seed=seed)


class TestContractWithTrees(StrategyContract):
    def make(
        self, grid: CapGrid, metric: Metric, baseline: Measurement, seed: int = 0, history: Sequence[Trial] = ()
    ) -> "Bayesian":
        return bayesian(metric, baseline, grid=grid, history=history, seed=seed, sampler="tpe")


@pytest.mark.slow
@needs_torch
@pytest.mark.parametrize("metric", [EDP, Metric(name="energy", max_slowdown=0.05)], ids=["edp", "energy in a budget"])
@pytest.mark.parametrize("curve", [CLIFF, PHYSICAL[2]], ids=lambda curve: curve.name)
def test_a_gaussian_process_meets_the_contract_too(curve: Curve, metric: Metric) -> None:
    baseline = measured(curve, GRID[-1], stated=NOISE / 2)
    strategy = bayesian(metric, baseline, sampler="gp")
    found = search(strategy, curve, metric, baseline, NOISE, fails=lambda cap_w, count: cap_w == 150.0)
    StrategyContract.check(strategy, found, GRID)
    assert found.kept_w is not None
    again = bayesian(metric, baseline, sampler="gp")
    assert search(again, curve, metric, baseline, NOISE, fails=lambda w, n: w == 150.0).asks == found.asks


@pytest.mark.parametrize("sampler", ["tpe", pytest.param("gp", marks=needs_torch)])
@pytest.mark.parametrize("metric", [ENERGY, EDP, EDS], ids=lambda metric: metric.name)
def test_half_a_percent_of_noise_costs_little_and_few_caps(metric: Metric, sampler: str) -> None:
    found = optimise(PHYSICAL[2], metric, sampler=sampler)
    assert PHYSICAL[2].regret(metric, found.kept_w or GRID[-1]) < 0.02
    assert len(set(found.asks)) <= 10


def test_a_search_has_at_most_the_trials_that_it_was_given() -> None:
    found = optimise(PHYSICAL[2], sampler="tpe", trials=4, patience=99)
    assert len(set(found.asks)) == 4


def test_it_stops_when_caps_in_a_row_bring_no_improvement() -> None:
    for seed in range(3):
        assert len(set(optimise(FLAT, seed=seed, sampler="tpe", patience=2, trials=30).asks)) <= 6


def test_no_cap_is_measured_more_than_twice() -> None:
    for curve in (FLAT, FALLING, PHYSICAL[2]):
        asks = optimise(curve, sampler="tpe").asks
        assert max(map(asks.count, asks)) <= 2


def test_it_begins_with_even_steps_down_from_the_draw() -> None:
    baseline = replace(measured(CLIFF, GRID[-1]), power_w=190.0)
    asks = search(bayesian(ENERGY, baseline, sampler="tpe"), CLIFF, ENERGY, baseline, limit=2).asks
    assert asks == (220.0, 180.0)
    free = replace(baseline, cap_binding=False)
    assert search(bayesian(ENERGY, free, sampler="tpe"), CLIFF, ENERGY, free, limit=2).asks == (160.0, 130.0)


@pytest.mark.slow
def test_it_never_leaps_below_the_lowest_cap_tried() -> None:
    for curve in PHYSICAL:
        asks = optimise(curve, sampler="tpe").asks
        for index, cap_w in enumerate(asks[2:], start=2):
            assert min(asks[:index]) - cap_w <= 40.0


def test_nothing_is_tried_below_a_cap_that_is_surely_too_slow() -> None:
    curve, metric = PHYSICAL[2], Metric(name="energy", max_slowdown=0.02)
    baseline = measured(curve, GRID[-1], stated=NOISE / 2)
    strategy = bayesian(metric, baseline, sampler="tpe")
    strategy.tell(trial_of(metric, measured(curve, 180.0, stated=NOISE), baseline))
    asks = search(strategy, curve, metric, baseline, NOISE).asks
    assert asks
    assert min(asks) > 180.0


@pytest.mark.slow
def test_all_that_takes_long_is_done_before_the_first_question() -> None:
    """A controller that is silent for long is taken for hung. A process of its own: here all is imported already."""
    code = """
import sys
from tests.strategies.test_bayesian import CLIFF, ENERGY, GRID, bayesian, measured, trial_of
baseline = measured(CLIFF, GRID[-1], stated=0.003)
strategies = [bayesian(ENERGY, baseline, sampler=sampler) for sampler in ("auto", "tpe")]
before = set(sys.modules)
for strategy in strategies:
    for _ in range(3):
        cap_w = strategy.ask()
        strategy.tell(trial_of(ENERGY, measured(CLIFF, cap_w, stated=0.005), baseline))
print(len(set(sys.modules) - before))
"""
    done = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=True)
    assert done.stdout == "0\n"
