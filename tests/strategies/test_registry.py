from importlib import import_module
from pathlib import Path

import pytest

from autocap.errors import StrategyError, UsageError
from autocap.strategies.golden import Golden
from autocap.strategies.linear import Linear
from autocap.strategies.registry import BUILTIN, find, option_values
from tests.doubles.curves import CLIFF, GRID, measured
from tests.strategies.contract import ENERGY, StrategyContract


def test_every_built_in_strategy_is_found_and_documents_its_options() -> None:
    for name in BUILTIN:
        table = getattr(find(name), "OPTIONS", ())
        assert table or BUILTIN[name].startswith("autocap.strategies.baselines:")
        assert all(option.meaning for option in table)


def test_every_built_in_strategy_is_put_through_the_contract_suite() -> None:
    for path in Path(__file__).parent.glob("test_*.py"):
        if "StrategyContract" in path.read_text():
            import_module(f"{__package__}.{path.stem}")
    suites = [StrategyContract]
    for suite in suites:
        suites += suite.__subclasses__()
    collected = [suite for suite in suites if suite.__name__.startswith("Test")]
    under_test = {type(suite().make(GRID, ENERGY, measured(CLIFF, GRID[-1]))) for suite in collected}
    assert {find(name) for name in BUILTIN} <= under_test


def test_a_strategy_is_found_by_module_and_class() -> None:
    assert find("autocap.strategies.golden:Golden") is Golden


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        UsageError, match="unknown strategy 'tabu'; choose one of bandit, bayesian, fixed, golden, linear, model"
    ):
        find("tabu")


@pytest.mark.parametrize("reference", ["no.such.module:Class", "autocap.strategies.golden:Silver"])
def test_a_strategy_that_cannot_be_loaded_says_why(reference: str) -> None:
    with pytest.raises(StrategyError, match=f"strategy {reference} cannot be loaded: (ModuleNotFound|Attribute)Error"):
        find(reference)


def test_options_have_their_defaults_and_the_last_of_a_name_counts() -> None:
    assert option_values(Linear, []) == {"step": 0.0, "direction": "down", "patience": 0}
    assert option_values(Linear, [("step", "5"), ("step", "10")])["step"] == 10.0


def test_an_unknown_option_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError, match="unknown strategy option 'steps'; this strategy's options: tolerance"):
        option_values(Golden, [("steps", "5")])
