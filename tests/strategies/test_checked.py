"""A strategy at arm's length: what it lacks, and what it may not answer."""

import re

import pytest

from autocap.errors import StrategyError
from autocap.records import Trial
from autocap.strategies.checked import CheckedStrategy
from autocap.strategies.grid import CapGrid
from tests.doubles.feeds import measurement, prediction, trial_of

GRID = CapGrid((150.0, 200.0))


class Bare:
    """What a stranger's must have, and no more."""

    asks: object = 150

    def ask(self):
        return self.asks

    def tell(self, trial: Trial) -> None:
        pass

    def recommend(self) -> float | None:
        return 150


class Gifted(Bare):
    trial_length = None
    expected_trials = 3.0

    def predict(self):
        return [prediction(200.0, 0.9, 1.1)]


def test_what_a_strategy_lacks_is_as_the_base_class_has_it() -> None:
    bare, gifted = CheckedStrategy(Bare, GRID), CheckedStrategy(Gifted, GRID)
    assert (bare.explain(), bare.predict(), bare.expect(), bare.expected_loss()) == (None, (), (), None)
    assert (bare.expected_trials, bare.trial_length, gifted.expected_trials) == (None, None, 3)
    assert gifted.expect() == gifted.predict() == (prediction(200.0, 0.9, 1.1),)


def test_what_is_no_cap_of_its_grid_or_was_not_measured_is_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = CheckedStrategy(Bare, GRID)
    assert strategy.ask() == 150.0
    with pytest.raises(StrategyError, match=re.escape("the strategy failed: it recommended 150 W, which was never")):
        strategy.recommend()
    strategy.tell(trial_of(measurement(cap_w=150.0)))
    assert strategy.recommend() == 150.0
    monkeypatch.setattr(Bare, "asks", "much")
    with pytest.raises(StrategyError, match="the strategy failed: it asked for 'much' W, which is not on its grid"):
        strategy.ask()
    with pytest.raises(StrategyError, match="the strategy failed: ZeroDivisionError: division by zero"):
        CheckedStrategy(lambda: 1 / 0, GRID)  # type: ignore[arg-type,return-value]
