from dataclasses import replace
from functools import partial

import pytest

from autocap.metrics import Metric
from autocap.records import Measurement
from autocap.strategies.bandit import Bandit
from autocap.strategies.options import OptionScalar
from autocap.testing import curves
from autocap.testing.strategies import EDP, ENERGY, StrategyContract
from tests.doubles.searches import built, searched

NOISE = 0.005


bandit = partial(built, Bandit)


pull = partial(searched, Bandit, noise=NOISE)


def held(curve: curves.Curve, metric: Metric = EDP, **options: OptionScalar) -> tuple[Bandit, Measurement, float]:
    """A bandit whose search is over, its baseline, and the cap that it would keep."""
    baseline = curves.measured(curve, curves.GRID[-1], stated=NOISE / 2)
    strategy = bandit(metric, baseline, **options)
    kept_w = curves.search(strategy, curve, metric, baseline, NOISE).kept_w
    assert kept_w is not None
    return strategy, baseline, kept_w


class TestContract(StrategyContract):
    strategy = Bandit


def test_it_begins_a_quarter_of_the_grid_below_the_draw_when_the_limit_does_not_bind() -> None:
    baseline = replace(curves.measured(curves.CLIFF, curves.GRID[-1]), power_w=200.0)
    assert bandit(ENERGY, baseline).ask() == 220.0
    assert bandit(ENERGY, replace(baseline, cap_binding=False)).ask() == 160.0


def test_it_never_steps_down_by_more_than_a_quarter_of_the_grid() -> None:
    for curve in curves.PHYSICAL:
        lowest_w = curves.GRID[-1]
        for cap_w in pull(curve).asks:
            assert lowest_w - cap_w <= 40.0
            lowest_w = min(lowest_w, cap_w)


def test_arms_above_one_that_did_not_bind_are_not_pulled() -> None:
    baseline = curves.measured(curves.RISING, curves.GRID[-1], stated=NOISE / 2)
    strategy = bandit(ENERGY, baseline)
    first_w = strategy.ask()
    assert first_w == 220.0
    free = replace(curves.measured(curves.RISING, first_w, stated=NOISE), cap_binding=False)
    strategy.tell(curves.trial_of(ENERGY, free, baseline))
    while (cap_w := strategy.ask()) is not None:
        assert cap_w < first_w
        strategy.tell(curves.trial_of(ENERGY, curves.measured(curves.RISING, cap_w, stated=NOISE), baseline))


@pytest.mark.slow
def test_a_larger_gain_is_reached_in_fewer_trials() -> None:
    patient = [len(pull(curve, EDP, gain=0.002).asks) for curve in curves.PHYSICAL]
    hasty = [len(pull(curve, EDP, gain=0.02).asks) for curve in curves.PHYSICAL]
    assert sum(hasty) < 0.8 * sum(patient)


def test_trials_are_bounded() -> None:
    assert len(pull(curves.PHYSICAL[2], EDP, gain=0.0, trials=6).asks) == 6


def test_what_confirms_the_held_cap_leaves_it_held() -> None:
    strategy, baseline, kept_w = held(curves.PHYSICAL[2])
    for _ in range(3):
        strategy.tell(curves.trial_of(EDP, curves.measured(curves.PHYSICAL[2], kept_w, stated=NOISE), baseline))
        assert strategy.ask() is None
        assert strategy.recommend() == kept_w


def test_a_held_cap_that_has_become_dearer_sends_it_on() -> None:
    before = curves.MadeUpCurve(name="valley at 210 W", energy=lambda cap_w: 0.8 + ((cap_w - 210) / 150) ** 2)
    after = curves.MadeUpCurve(name="valley at 160 W", energy=lambda cap_w: 0.8 + ((cap_w - 160) / 150) ** 2)
    strategy, baseline, kept_w = held(before, ENERGY)
    assert abs(kept_w - 210) <= 10
    asks = []
    for _ in range(30):
        cap_w = strategy.ask()
        asks.append(cap_w)
        shown = curves.measured(after, cap_w or strategy.recommend() or kept_w, stated=NOISE)
        strategy.tell(curves.trial_of(ENERGY, shown, baseline))
    assert any(cap_w not in (None, kept_w) for cap_w in asks)
    assert asks[-5:] == [None] * 5
    assert abs((strategy.recommend() or kept_w) - 160) <= 15
