from functools import partial
from typing import ClassVar

import pytest

from autocap.metrics import Metric
from autocap.strategies.linear import Linear
from autocap.testing.curves import BUMPY, CLIFF, FALLING, GRID, PHYSICAL, RISING, measured, search
from autocap.testing.strategies import ENERGY, StrategyContract
from tests.doubles.searches import built, searched

linear = partial(built, Linear)


scan = partial(searched, Linear)


class TestContract(StrategyContract):
    strategy = Linear


class TestContractWithEveryOption(StrategyContract):
    strategy = Linear
    options: ClassVar[dict[str, object]] = {"step": 20, "direction": "up", "patience": 3}


@pytest.mark.parametrize(
    ("options", "asks"),
    [
        ({}, tuple(reversed(GRID))),
        ({"direction": "up"}, tuple(GRID)),
        ({"step": 45.0}, (260.0, 215.0, 170.0, 125.0, 100.0)),  # caps are left out, but neither end
    ],
)
def test_it_scans_the_whole_grid_downwards_unless_told_otherwise(options, asks) -> None:
    assert scan(CLIFF, **options).asks == asks


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
