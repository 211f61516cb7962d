"""What strategies need of a knob: which of them may search it, and how their options are read for it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autocap.errors import StrategyError, UsageError
from autocap.job import registry as packages
from autocap.knobs import POWER_LIMIT, Knob
from autocap.metrics import Metric
from autocap.strategies import Needs, Strategy
from autocap.strategies.bandit import Bandit
from autocap.strategies.bayesian import Bayesian
from autocap.strategies.checked import CheckedStrategy, complaints
from autocap.strategies.fixed import Fixed
from autocap.strategies.golden import Golden
from autocap.strategies.grid import CapGrid
from autocap.strategies.linear import Linear
from autocap.strategies.options import needs_of
from autocap.strategies.registry import find, option_values, require_knob, required_caps
from autocap.testing.curves import LEVEL, LEVELS, MODE, MODES, OF_LEVELS, OF_MODES, MadeUpCurve, measured, trial_of
from tests.doubles.searches import built, searched

ENERGY = Metric(name="energy")
CLOCK = Knob(name="clock", unit="MHz", values=(800.0, 1000.0, 1200.0))


class Unsaid:
    """A stranger's, of before there was any other knob."""


def test_each_of_ours_says_what_it_needs() -> None:
    names = packages.ours("strategies")
    found = {need: {name for name in names if needs_of(find(name)) is need} for need in Needs}
    assert found[Needs.ANY] == {"linear", "fixed"}
    assert found[Needs.ORDERED] == {"golden", "bayesian", "bandit"}
    assert found[Needs.POWER_LIMIT] == {"model"}
    assert needs_of(Unsaid) is Needs.ORDERED


@pytest.mark.parametrize(
    ("name", "knob", "message", "others"),
    [
        (
            "model",
            LEVEL,
            "reckons in watts, and the knob level is no power limit",
            "golden, linear, bayesian, bandit or fixed",
        ),
        ("model", MODE, "reckons in watts, and the knob mode is no power limit", "linear or fixed"),
        ("golden", MODE, "goes by the order of settings, and those of the knob mode have none", "linear or fixed"),
    ],
)
def test_a_knob_that_a_strategy_cannot_search_is_refused_with_those_that_can(
    name: str, knob: Knob, message: str, others: str
) -> None:
    with pytest.raises(UsageError) as refused:
        require_knob(name, find(name), knob)
    assert str(refused.value) == f"strategy {name} {message}; pass --strategy {others}"


@pytest.mark.parametrize(
    ("name", "knob"), [("model", POWER_LIMIT), ("golden", LEVEL), ("linear", MODE), ("fixed", MODE)]
)
def test_a_knob_that_it_can_search_is_not(name: str, knob: Knob) -> None:
    require_knob(name, find(name), knob)


def test_needs_that_are_none_are_refused_with_the_strategy() -> None:
    kind = type("Odd", (Linear,), {"NEEDS": "everything"})
    assert complaints(kind) == ["its NEEDS is none of autocap.strategies.Needs"]


@pytest.mark.parametrize(
    ("knob", "word", "setting"), [(POWER_LIMIT, "180", 180.0), (MODE, "eager", 3.0), (CLOCK, "1000", 2.0)]
)
def test_a_cap_is_given_by_what_the_knob_calls_it(knob: Knob, word: str, setting: float) -> None:
    values = option_values(Fixed, [("cap", word)], knob)
    assert values == {"cap": setting}
    assert required_caps(Fixed, values) == (setting,)
    assert option_values(Fixed, [("cap", word)], None) == {"cap": word}, "its knob is not known yet"


@pytest.mark.parametrize(
    ("knob", "word", "message"),
    [
        (POWER_LIMIT, "eager", " is 'eager'; it takes a number"),
        (MODE, "fast", ": 'fast' is no setting of the knob mode; choose of eco, calm, eager, wild, odd"),
        (CLOCK, "1100", ": '1100' is no setting of the knob clock; choose of 800, 1000, 1200"),
    ],
)
def test_one_that_it_has_not_is_refused(knob: Knob, word: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        option_values(Fixed, [("cap", word)], knob)
    assert str(refused.value) == f"strategy option cap{message}"


def test_one_that_may_not_be_tried_is_refused() -> None:
    with pytest.raises(UsageError, match="cap=calm, which is not among the 2 settings that may be tried; pass one"):
        built(Fixed, ENERGY, measured(OF_MODES, 5.0), CapGrid([1.0, 5.0], MODE), cap="calm")


def test_five_watts_are_one_place_of_another_knob() -> None:
    assert [option_values(Golden, (), knob)["tolerance"] for knob in (POWER_LIMIT, LEVEL)] == [5.0, 1.0]
    assert option_values(Golden, [("tolerance", "5")], LEVEL)["tolerance"] == 5.0
    assert option_values(Linear, (), MODE)["step"] == 0.0


@pytest.mark.parametrize("kind", [Golden, Bayesian, Bandit, Linear])
@pytest.mark.parametrize("best", [1.0, 4.0, 7.0])
def test_the_best_of_levels_is_found(kind: type[Strategy], best: float) -> None:
    curve = MadeUpCurve(name="a valley", energy=lambda setting: 0.7 + 0.02 * (setting - best) ** 2)
    found = searched(kind, curve, noise=0.005, grid=LEVELS)
    assert found.kept_w == best


@pytest.mark.parametrize("kind", [Golden, Bayesian, Bandit])
def test_a_driver_that_says_of_a_power_limit_that_it_does_not_bind_says_nothing_of_another_knob(
    kind: type[Strategy],
) -> None:
    """Else all levels above the draw, in watts, would count as one."""
    draws = MadeUpCurve(name="draws 2 W", energy=lambda setting: 0.02 + 0.001 * (setting - 6) ** 2)
    baseline = replace(measured(draws, 8.0, stated=0.002), cap_binding=False)
    strategy = built(kind, ENERGY, baseline, LEVELS)
    while (setting := strategy.ask()) is not None:
        found = replace(measured(draws, setting, stated=0.002), cap_binding=False)
        strategy.tell(trial_of(ENERGY, found, baseline))
    assert strategy.recommend() == 6.0


@pytest.mark.parametrize(("most", "kept"), [(None, 3.0), (0.1, 3.0), (0.05, 5.0)])
def test_no_mode_is_skipped_as_another_is_too_slow(most: float | None, kept: float) -> None:
    metric = Metric(name="energy", max_slowdown=most)
    found = searched(Linear, OF_MODES, metric, grid=MODES)
    assert (found.asks[:5], found.kept_w) == ((5.0, 4.0, 3.0, 2.0, 1.0), kept)
    slow = searched(Linear, OF_LEVELS, Metric(name="energy", max_slowdown=0.15), grid=LEVELS)
    assert min(slow.asks) > 1.0, "of levels, those below one that is too slow are"


@pytest.mark.parametrize("ordered", [True, False])
def test_a_mode_is_judged_by_itself_and_a_level_by_those_beside_it_too(ordered: bool) -> None:
    """Among many that are alike, one that looks good by chance is carried by its neighbours where it has any."""
    knob = Knob(name="many", values=tuple(map(float, range(61))), faster="up" if ordered else None)
    grid, rng = CapGrid(knob.settings, knob), np.random.default_rng(1)
    costs: Sequence[float] = 1 + ((np.array(grid) - 20) / 200) ** 2 + 0.01 * rng.standard_normal(61)
    curve = MadeUpCurve(name="noise", energy=lambda setting: 0.8 * costs[int(setting) - 1])
    baseline = measured(MadeUpCurve(name="flat", energy=lambda setting: 1.0), grid[-1], stated=0.01)
    strategy = built(Linear, ENERGY, baseline, grid)
    for setting in grid:
        strategy.tell(trial_of(ENERGY, measured(curve, setting, stated=0.01), baseline))
    luckiest = grid[int(np.argmin(costs))]
    assert (strategy.recommend() == luckiest) is not ordered


class Astray:
    """Asks for what no knob has, and recommends what it never tried."""

    def ask(self) -> float:
        return 9.0

    def tell(self, trial: object) -> None:
        pass

    def recommend(self) -> float:
        return 2.0


def test_what_is_said_of_a_strategy_that_goes_astray_names_settings() -> None:
    strategy = CheckedStrategy(Astray, MODES)
    with pytest.raises(StrategyError, match=r"it asked for 9, which is not on its grid"):
        strategy.ask()
    with pytest.raises(StrategyError, match=r"it recommended calm, which was never measured to the end"):
        strategy.recommend()
    with pytest.raises(StrategyError, match=r"at calm, which is not among the 2 settings of the grid from eco to odd"):
        built(Linear, ENERGY, measured(OF_MODES, 5.0), CapGrid([1.0, 5.0], MODE)).tell(
            trial_of(ENERGY, measured(OF_MODES, 2.0), measured(OF_MODES, 5.0))
        )


def test_a_grid_is_shown_from_end_to_end_in_its_unit() -> None:
    grids = CapGrid([100.0, 260.0]), CapGrid(CLOCK.settings, CLOCK), MODES, LEVELS
    assert [grid.span for grid in grids] == ["100 to 260 W", "800 to 1200 MHz", "eco to odd", "8 to 1"]
