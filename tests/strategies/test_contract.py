"""The suite itself: what it is given, and that it finds what is wrong."""

from typing import ClassVar

import pytest

from autocap.records import Trial
from autocap.strategies import Strategy
from autocap.strategies.linear import Linear
from autocap.testing import StrategyContract
from autocap.testing.curves import CLIFF, FLAT, GRID, measured
from autocap.testing.strategies import ENERGY


class OfLinear(StrategyContract):
    strategy = Linear
    options: ClassVar[dict[str, object]] = {"step": 40}


class Careless(Linear):
    """Recommends what it has never measured."""

    def recommend(self) -> float | None:
        return GRID[0]


class Endless:
    def __init__(self, **given: object) -> None:
        pass

    def ask(self) -> float | None:
        return 150.0

    def tell(self, trial: Trial) -> None:
        pass

    def recommend(self) -> float | None:
        return None


def test_a_class_is_built_with_its_defaults_and_the_options_that_are_given() -> None:
    made = OfLinear().make(GRID, ENERGY, measured(FLAT, GRID[-1]))
    assert isinstance(made, Strategy)
    assert made.options == {"step": 40.0, "direction": "down", "patience": 0}


@pytest.mark.parametrize(
    ("kind", "message"), [(Careless, "only what was measured to the end is recommended"), (Endless, "a search ends")]
)
def test_a_strategy_that_breaks_the_contract_fails_with_what_it_breaks(kind: type, message: str) -> None:
    suite = type("Suite", (StrategyContract,), {"strategy": kind, "options": {"step": 40} if kind is Careless else {}})
    with pytest.raises(AssertionError, match=message):
        suite().run(CLIFF)
