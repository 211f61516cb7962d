import sys
from importlib import import_module
from pathlib import Path

import pytest

from autocap.errors import StrategyError, UsageError
from autocap.job.registry import ours
from autocap.strategies.golden import Golden
from autocap.strategies.linear import Linear
from autocap.strategies.options import options_of
from autocap.strategies.registry import find, option_values
from autocap.testing.curves import CLIFF, GRID, measured
from autocap.testing.strategies import ENERGY, StrategyContract


def test_every_built_in_strategy_is_found_and_documents_its_options() -> None:
    for name in ours("strategies"):
        table = options_of(find(name))
        assert table
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
    assert {find(name) for name in ours("strategies")} <= under_test


def test_a_strategy_is_found_by_module_and_class() -> None:
    assert find("autocap.strategies.golden:Golden") is Golden


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    known = "model, golden, linear, bayesian, bandit, fixed"
    with pytest.raises(UsageError, match=f"unknown strategy 'tabu'; choose one of {known}"):
        find("tabu")


@pytest.mark.parametrize("reference", ["no.such.module:Class", "autocap.strategies.golden:Silver"])
def test_a_strategy_that_cannot_be_loaded_says_why(reference: str) -> None:
    with pytest.raises(StrategyError, match=f"strategy {reference} cannot be loaded: (ModuleNotFound|Attribute)Error"):
        find(reference)


CALL = "(self, grid, metric, baseline, rng, history, options)"
METHODS = "def ask(self): pass\ndef tell(self, trial): pass\ndef recommend(self): pass"
SHAPE = (
    "it is built with the keywords grid, metric, baseline, rng, history, options and has ask(), tell(trial) and "
    "recommend(), as `autocap help strategies` shows"
)


def mine(monkeypatch: pytest.MonkeyPatch, folder: Path, body: str, call: str = CALL) -> str:
    """A strategy of a user's in the current directory, by name."""
    name = f"mine_{abs(hash((body, call)))}"
    lines = [f"def __init__{call}: pass", *body.splitlines()]
    (folder / f"{name}.py").write_text("class Mine:\n" + "".join(f"    {line}\n" for line in lines))
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry not in ("", str(folder))])
    return f"{name}:Mine"


@pytest.mark.parametrize(
    ("body", "call", "lacks"),
    [
        (METHODS, "(self)", "it takes no keyword grid, metric, baseline, rng, history, options"),
        (METHODS, "(self, caps, **others)", "it cannot be built without caps"),
        (METHODS, "(self, grid, metric, baseline, rng, history)", "it takes no keyword options"),
        (METHODS, "(self, grid, /, **others)", "it cannot be built without grid"),
        ("def ask(self): pass", CALL, "it has no tell(), recommend()"),
        ("", "(self, grid)", "it takes no keyword metric, baseline, rng, history, options, and it has no ask(), "
         "tell(), recommend()"),
        (METHODS.replace("tell(self, trial)", "tell(self)"), CALL, "its tell cannot be called as tell(trial)"),
        (METHODS.replace("ask(self)", "ask(self, trials)"), CALL, "its ask cannot be called as ask()"),
        (METHODS + "\nrecommend = 150.0", CALL, "its recommend is no method"),
        (METHODS + "\nOPTIONS = {'stride': 8}", CALL, "its OPTIONS is no tuple of autocap.strategies.Option"),
    ],
)  # fmt: skip
def test_a_class_that_is_no_strategy_is_refused_before_the_job_starts_with_what_it_lacks(
    body: str, call: str, lacks: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = mine(monkeypatch, tmp_path, body, call)
    with pytest.raises(StrategyError) as raised:
        find(name)
    assert str(raised.value) == f"strategy {name} cannot be used: {lacks}; {SHAPE}"


def test_a_subclass_that_says_no_next_cap_is_refused() -> None:
    with pytest.raises(
        StrategyError, match=r"autocap\.strategies\.base:Strategy cannot be used: it has no _next\(\); it is"
    ):
        find("autocap.strategies.base:Strategy")


@pytest.mark.parametrize(
    ("body", "call"),
    [
        (METHODS, CALL),
        (METHODS, "(self, **given)"),
        (METHODS, "(self, *, grid, metric, baseline, rng, history, options, more=1)"),
        ("def __getattr__(self, name): return getattr(self.inner, name)", CALL),
        ("ask: object\ntell: object\nrecommend: object", CALL),
        (METHODS.replace("def ask(self)", "@staticmethod\ndef ask()"), CALL),
        (METHODS.replace("tell(self, trial)", "tell(self, *trials)"), CALL),
    ],
)
def test_whatever_may_have_the_shape_of_a_strategy_is_taken_from_the_current_directory(
    body: str, call: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert find(mine(monkeypatch, tmp_path, body, call)).__name__ == "Mine"  # type: ignore[attr-defined]
    assert sys.path[0] != str(tmp_path)  # nothing of ours is looked for there first


def test_a_module_of_the_current_directory_finds_what_lies_beside_it_later_too(monkeypatch, tmp_path) -> None:
    (tmp_path / "lies_beside_it.py").write_text("")
    body = METHODS.replace("recommend(self): pass", "recommend(self):\n    import lies_beside_it\n    return 150.0")
    strategy = find(mine(monkeypatch, tmp_path, body))
    assert strategy(grid=GRID, metric=ENERGY, baseline=None, rng=None, history=(), options={}).recommend() == 150.0  # type: ignore[arg-type]


def test_options_have_their_defaults_and_the_last_of_a_name_counts() -> None:
    assert option_values(Linear, []) == {"step": 0.0, "direction": "down", "patience": 0}
    assert option_values(Linear, [("step", "5"), ("step", "10")])["step"] == 10.0


@pytest.mark.parametrize(
    ("name", "option", "text", "message"),
    [
        ("golden", "steps", "5", "unknown strategy option 'steps'; this strategy's options: tolerance"),
        ("bayesian", "sampler", "grid", "strategy option sampler is 'grid'; it takes auto, gp, tpe"),
        ("linear", "step", "-1", "finite number at least 0"),
        ("linear", "step", "nan", "finite number at least 0"),
        ("linear", "direction", "left", "it takes down, up"),
        ("linear", "patience", "2.5", "a whole number"),
        ("linear", "stride", "5", "this strategy's options: step, direction, patience"),
    ],
)
def test_an_unknown_option_and_a_bad_value_are_refused_with_what_it_takes(name, option, text, message) -> None:
    with pytest.raises(UsageError, match=message):
        option_values(find(name), [(option, text)])
