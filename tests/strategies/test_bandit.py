from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autocap.metrics import Metric
from autocap.records import Measurement, Trial
from autocap.strategies.bandit import Bandit
from autocap.strategies.grid import CapGrid
from autocap.strategies.options import OptionScalar
from autocap.strategies.registry import option_values
from autocap.testing.curves import (
    CLIFF,
    FALLING,
    GRID,
    PHYSICAL,
    RISING,
    Curve,
    MadeUpCurve,
    Search,
    measured,
    search,
    trial_of,
)
from autocap.testing.strategies import EDP, EDS, ENERGY, StrategyContract

NOISE = 0.005


def bandit(
    metric: Metric,
    baseline: Measurement,
    grid: CapGrid = GRID,
    history: Sequence[Trial] = (),
    **options: OptionScalar,
) -> Bandit:
    values = option_values(Bandit, []) | options
    rng = np.random.default_rng(0)
    return Bandit(grid=grid, metric=metric, baseline=baseline, rng=rng, history=history, options=values)


def pull(curve: Curve, metric: Metric = ENERGY, noise: float = NOISE, seed: int = 0, **options: OptionScalar) -> Search:
    baseline = measured(curve, GRID[-1], stated=noise / 2)
    return search(bandit(metric, baseline, **options), curve, metric, baseline, noise, seed=seed)


def held(curve: Curve, metric: Metric = EDP, **options: OptionScalar) -> tuple[Bandit, Measurement, float]:
    """A bandit whose search is over, its baseline, and the cap that it would keep."""
    baseline = measured(curve, GRID[-1], stated=NOISE / 2)
    strategy = bandit(metric, baseline, **options)
    kept_w = search(strategy, curve, metric, baseline, NOISE).kept_w
    assert kept_w is not None
    return strategy, baseline, kept_w


class TestContract(StrategyContract):
    def make(
        self, grid: CapGrid, metric: Metric, baseline: Measurement, seed: int = 0, history: Sequence[Trial] = ()
    ) -> Bandit:
        return bandit(metric, baseline, grid, history)


@pytest.mark.parametrize("metric", [ENERGY, EDP, EDS], ids=lambda metric: metric.name)
def test_half_a_percent_of_noise_costs_little_and_few_trials(metric: Metric) -> None:
    searches = [(curve, pull(curve, metric, seed=seed)) for curve in PHYSICAL for seed in range(2)]
    regrets = [curve.regret(metric, found.kept_w or GRID[-1]) for curve, found in searches]
    assert np.mean(regrets) < 0.004
    assert max(regrets) < 0.05
    assert np.mean([len(found.asks) for _, found in searches]) < 10


def test_it_reaches_either_end_of_the_grid() -> None:
    assert pull(FALLING).kept_w == 100.0
    assert pull(RISING).kept_w == 260.0


def test_it_begins_a_quarter_of_the_grid_below_the_draw_when_the_limit_does_not_bind() -> None:
    baseline = replace(measured(CLIFF, GRID[-1]), power_w=200.0)
    assert bandit(ENERGY, baseline).ask() == 220.0
    assert bandit(ENERGY, replace(baseline, cap_binding=False)).ask() == 160.0


def test_it_never_steps_down_by_more_than_a_quarter_of_the_grid() -> None:
    for curve in PHYSICAL:
        lowest_w = GRID[-1]
        for cap_w in pull(curve).asks:
            assert lowest_w - cap_w <= 40.0
            lowest_w = min(lowest_w, cap_w)


def test_arms_above_one_that_did_not_bind_are_not_pulled() -> None:
    baseline = measured(RISING, GRID[-1], stated=NOISE / 2)
    strategy = bandit(ENERGY, baseline)
    first_w = strategy.ask()
    assert first_w == 220.0
    free = replace(measured(RISING, first_w, stated=NOISE), cap_binding=False)
    strategy.tell(trial_of(ENERGY, free, baseline))
    while (cap_w := strategy.ask()) is not None:
        assert cap_w < first_w
        strategy.tell(trial_of(ENERGY, measured(RISING, cap_w, stated=NOISE), baseline))


def test_a_larger_gain_is_reached_in_fewer_trials() -> None:
    patient = [len(pull(curve, EDP, gain=0.002).asks) for curve in PHYSICAL]
    hasty = [len(pull(curve, EDP, gain=0.02).asks) for curve in PHYSICAL]
    assert sum(hasty) < 0.8 * sum(patient)


def test_trials_are_bounded() -> None:
    assert len(pull(PHYSICAL[2], EDP, gain=0.0, trials=6).asks) == 6


def test_what_confirms_the_held_cap_leaves_it_held() -> None:
    strategy, baseline, kept_w = held(PHYSICAL[2])
    for _ in range(3):
        strategy.tell(trial_of(EDP, measured(PHYSICAL[2], kept_w, stated=NOISE), baseline))
        assert strategy.ask() is None
        assert strategy.recommend() == kept_w


def test_a_held_cap_that_has_become_dearer_sends_it_on() -> None:
    before = MadeUpCurve(name="valley at 210 W", energy=lambda cap_w: 0.8 + ((cap_w - 210) / 150) ** 2)
    after = MadeUpCurve(name="valley at 160 W", energy=lambda cap_w: 0.8 + ((cap_w - 160) / 150) ** 2)
    strategy, baseline, kept_w = held(before, ENERGY)
    assert abs(kept_w - 210) <= 10
    asks = []
    for _ in range(30):
        cap_w = strategy.ask()
        asks.append(cap_w)
        shown = measured(after, cap_w or strategy.recommend() or kept_w, stated=NOISE)
        strategy.tell(trial_of(ENERGY, shown, baseline))
    assert any(cap_w not in (None, kept_w) for cap_w in asks)
    assert asks[-5:] == [None] * 5
    assert abs((strategy.recommend() or kept_w) - 160) <= 15


def test_a_warm_start_begins_at_the_cheapest_cap_of_its_history() -> None:
    baseline = measured(CLIFF, GRID[-1])
    history = [trial_of(ENERGY, measured(CLIFF, cap_w), baseline) for cap_w in (240.0, 133.0, 180.0)]
    assert bandit(ENERGY, baseline, history=history).ask() == 135.0
