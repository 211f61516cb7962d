import re
from collections.abc import Sequence

import numpy as np
import pytest

from autocap.errors import UsageError
from autocap.metrics import Metric
from autocap.records import Measurement, Trial
from autocap.strategies.fixed import Fixed
from autocap.strategies.grid import CapGrid
from autocap.strategies.registry import option_values
from autocap.testing.curves import CLIFF, GRID, measured, search
from autocap.testing.strategies import BUDGET, ENERGY, StrategyContract

BASELINE = measured(CLIFF, GRID[-1])


def fixed(cap_w: float | None, metric: Metric = ENERGY, grid: CapGrid = GRID) -> Fixed:
    rng = np.random.default_rng(0)
    return Fixed(grid=grid, metric=metric, baseline=BASELINE, rng=rng, history=(), options={"cap": cap_w})


class TestContract(StrategyContract):
    def make(
        self, grid: CapGrid, metric: Metric, baseline: Measurement, seed: int = 0, history: Sequence[Trial] = ()
    ) -> Fixed:
        rng, cap_w = np.random.default_rng(seed), grid[len(grid) // 2]
        return Fixed(grid=grid, metric=metric, baseline=baseline, rng=rng, history=history, options={"cap": cap_w})


def test_it_measures_its_cap_once_and_keeps_it() -> None:
    found = search(fixed(200.0), CLIFF, ENERGY, BASELINE, noise=0.005)
    assert (found.asks, found.kept_w) == ((200.0,), 200.0)


def test_it_does_not_keep_a_cap_that_is_too_slow() -> None:
    found = search(fixed(130.0, BUDGET), CLIFF, BUDGET, BASELINE)
    assert (found.asks, found.kept_w) == ((130.0,), None)


def test_it_tries_again_after_one_failure_and_gives_up_after_two() -> None:
    once = search(fixed(200.0), CLIFF, ENERGY, BASELINE, fails=lambda cap_w, count: count == 1)
    assert (once.asks, once.kept_w) == ((200.0, 200.0), 200.0)
    always = search(fixed(200.0), CLIFF, ENERGY, BASELINE, fails=lambda cap_w, count: True)
    assert (always.asks, always.kept_w) == ((200.0, 200.0), None)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (lambda: fixed(None), "strategy fixed needs --strategy-option cap=W"),
        (
            lambda: option_values(Fixed, []),
            "needs the option cap (the cap, watts, or another knob's setting); pass --strategy-option cap=",
        ),
        (lambda: fixed(90.0), "cap=90 W, which is not among the 33 caps that may be tried, 100 to"),
        (lambda: fixed(201.0), "pass cap=200, or allow it with --caps 201"),
    ],
)
def test_a_cap_must_be_given_and_one_off_the_grid_is_refused_with_what_may_be_given(given, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        given()


def test_its_option_is_read_as_watts() -> None:
    assert option_values(Fixed, [("cap", "187.5")]) == {"cap": 187.5}
