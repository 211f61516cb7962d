import re
from dataclasses import replace

import pytest

from autocap.errors import StrategyError, UsageError
from autocap.metrics import Metric
from autocap.records import Trial, TrialState
from autocap.strategies.base import Strategy
from autocap.strategies.grid import CapGrid
from autocap.strategies.options import Option
from autocap.testing.curves import FLAT, measured
from autocap.testing.strategies import ENERGY, StrategyContract
from tests.doubles.searches import built

GRID = CapGrid((100.0, 150.0, 200.0, 250.0))
BASELINE = measured(FLAT, 250.0)


class InOrder(Strategy):
    """The least a strategy can be: every cap once, lowest first."""

    def _next(self) -> float | None:
        return next((cap_w for cap_w in self.grid if not self.tried(cap_w)), None)


def in_order(metric: Metric = ENERGY, grid: CapGrid = GRID) -> InOrder:
    return built(InOrder, metric, BASELINE, grid)


def trial(
    cap_w: float, cost: float, stderr: float = 0.01, state: TrialState = TrialState.COMPLETE, slowdown: float = 1.0
) -> Trial:
    measurement = replace(measured(FLAT, cap_w), period_s=BASELINE.period_s * slowdown)
    return Trial(setting=cap_w, state=state, cost=cost, cost_stderr=stderr, measurement=measurement)


def failed(cap_w: float) -> Trial:
    return Trial(setting=cap_w, state=TrialState.FAILED, reason="no progress")


def told(*trials: Trial, metric: Metric = ENERGY) -> InOrder:
    strategy = in_order(metric)
    for one in trials:
        strategy.tell(one)
    return strategy


class TestContract(StrategyContract):
    strategy = InOrder


def test_a_question_asked_twice_has_the_same_answer() -> None:
    strategy = in_order()
    assert strategy.ask() == strategy.ask() == 100.0


@pytest.mark.parametrize(
    ("costs", "again", "kept_w"),
    [
        ((0.92, 0.90, 0.95), {150.0: 0.90, 100.0: 0.91}, 150.0),
        ((0.927, 0.90, 0.99), {150.0: 0.90}, 150.0),  # a rival that falls behind is left alone
        ((0.91, 0.89, 0.99), {150.0: 0.93, 100.0: 0.91}, 100.0),  # a lucky first trial does not win
    ],
)
def test_rivals_within_two_sigma_are_measured_again_the_best_first(costs, again, kept_w) -> None:
    strategy = told(*map(trial, (100.0, 150.0, 200.0), costs), trial(250.0, 1.0))
    for cap_w, cost in again.items():
        assert strategy.ask() == cap_w
        strategy.tell(trial(cap_w, cost, 0.005))
    assert strategy.ask() is None
    assert strategy.recommend() == kept_w


def test_a_best_cap_without_rivals_is_not_measured_again() -> None:
    assert told(trial(100.0, 0.8), trial(150.0, 0.9), trial(200.0, 0.95), trial(250.0, 1.0)).ask() is None


def test_a_repeat_that_fails_or_is_pruned_is_not_repeated() -> None:
    start = (trial(100.0, 0.91), trial(150.0, 0.90), trial(200.0, 0.99), trial(250.0, 1.0))
    pruned = trial(100.0, 0.95, 0.005, TrialState.PRUNED)
    strategy = told(*start, failed(150.0), pruned)
    assert strategy.ask() is None
    assert strategy.recommend() == 150.0


def test_a_slow_cap_is_not_kept_however_cheap() -> None:
    metric = Metric(name="energy", max_slowdown=0.05)
    strategy = told(trial(100.0, 0.7, slowdown=1.2), trial(150.0, 0.9, slowdown=1.04), metric=metric)
    assert strategy.recommend() == 150.0


def test_what_comes_after_the_end_changes_nothing_about_the_end() -> None:
    strategy = told(*(trial(cap_w, 0.8 + cap_w / 1000) for cap_w in GRID))
    while (cap_w := strategy.ask()) is not None:
        strategy.tell(trial(cap_w, 0.8 + cap_w / 1000, 0.001))
    strategy.tell(trial(250.0, 0.5))
    assert strategy.ask() is None


def test_among_caps_that_noise_hides_the_neighbours_decide() -> None:
    grid = CapGrid.stepped(100, 260, 5)
    strategy = in_order(grid=grid)
    for cap_w in grid:
        luck = -0.02 if cap_w == 200.0 else 0.0
        strategy.tell(trial(cap_w, 0.9 + ((cap_w - 180) / 200) ** 2 + luck, 0.01))
    best = strategy.best()
    assert best.setting == 200.0
    assert strategy.recommend() in (175.0, 180.0, 185.0, 190.0)


def test_a_trial_off_the_grid_is_refused() -> None:
    with pytest.raises(StrategyError, match=re.escape("a trial at 123 W, which is not among the 4 caps of the grid")):
        told(trial(123.0, 0.9))


def test_a_stepped_grid_holds_both_ends_as_plain_floats() -> None:
    grid = CapGrid.stepped(102, 120, 5)
    assert grid == (102.0, 105.0, 110.0, 115.0, 120.0)
    assert all(type(cap_w) is float for cap_w in grid)
    assert (grid[0], grid[-1], grid[1:3], len(grid)) == (102.0, 120.0, (105.0, 110.0), 5)


def test_the_nearest_cap_is_the_lower_of_two_equally_close() -> None:
    assert (GRID.nearest(125.0), GRID.nearest(126.0), GRID.nearest(999.0)) == (100.0, 150.0, 250.0)


@pytest.mark.parametrize("caps_w", [(), (150.0, 100.0), (100.0, 100.0)])
def test_a_grid_is_ascending_distinct_and_not_empty(caps_w: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="ascending, distinct and not empty"):
        CapGrid(caps_w)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [(int, "3", 3), (float, "2.5", 2.5), (bool, "Yes", True), (bool, "0", False), (str, "a", "a")],
)
def test_an_option_is_read_as_its_kind(kind: type[int], text: str, value: object) -> None:
    parsed = Option(name="x", kind=kind, default=None, meaning="a test").parse(text)
    assert parsed == value
    assert type(parsed) is type(value)


@pytest.mark.parametrize(
    ("kind", "limits", "text", "message"),
    [
        (int, {}, "1.5", "strategy option x is '1.5'; it takes a whole number"),
        (float, {}, "inf", "it takes a finite number"),
        (float, {}, "1e10", "takes a finite number at most 1000000000"),
        (float, {}, "1_0", "strategy option x is '1_0'; it takes a number"),
        (int, {}, "9" * 5000, "(5000 characters); it takes a whole number"),
        (int, {}, "٣", "strategy option x is '٣'; it takes a whole number"),
        (float, {"minimum": 0, "maximum": 2}, "3", "at least 0 at most 2"),
        (bool, {}, "maybe", "it takes true or false"),
        (str, {"choices": ("a", "b")}, "c", "it takes a, b"),
    ],
)
def test_an_option_that_cannot_be_read_says_what_it_takes(kind, limits, text, message) -> None:
    option = Option(name="x", kind=kind, default=kind(1), meaning="m", **limits)
    with pytest.raises(UsageError, match=re.escape(message)):
        option.parse(text)
