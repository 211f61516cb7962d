"""The plan, row by row, whose first rows docs/how-it-works.md has, and what it never does, whatever is known."""

import ast
import inspect
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from typing import get_args

import pytest

from autocap.controller import steps
from autocap.controller.comparison import Ruling
from autocap.controller.context import Keep
from autocap.controller.plan import Facts, next_step
from autocap.controller.ranking import Confirm, Move, TryOut
from autocap.controller.steps import CeilingMoved, During, Happened, Step
from autocap.controller.tuning import TUNING
from autocap.metrics import Metric
from tests.docs.pages import ROOT
from tests.doubles.feeds import measurement

PAGE = ROOT / "docs" / "how-it-works.md"
HEAD = "| what has happened | what comes next |"
KEEP = Keep(settings=(180.0,), reference=measurement(90.0, 0.5))
CONFIRM = Confirm(setting=180.0, window_error=0.005, metric=Metric(name="cost", moving=True))
ROUGH, DUE, MOVED = Facts(rough=True), Facts(baseline_old=True), Facts(baseline_holds=False)
WRONG, CHANGED = (
    steps.Doubted(setting=180.0, why="it is off"),
    steps.JobSeemsChanged(why="+12 % time", sure=True, then_w=180.0),
)
NO_CAP = steps.Recommended(setting=260.0, is_no_cap=True)
BETTER, SLOW = Ruling.BETTER, Ruling.TOO_SLOW
# What has happened, when that is so, and what is known then; the first of each is what mostly happens.
CASES: list[tuple[Happened, str, Facts, type]] = [
    (steps.RoughBaseline(), "", Facts(), steps.SetUpSearch),
    (steps.RoughBaseline(), "a budget has room for the limit found", Facts(has_room=True), steps.KeepWaiting),
    (
        steps.RoughBaseline(),
        "the strategy's trials have a length of their own",
        Facts(own_length=True),
        steps.KeepWaiting,
    ),
    (steps.Steady(), "", Facts(), steps.BaselineAndSearch),
    (steps.FirstBaselineEnded(), "", Facts(), steps.SetUpSearch),
    (steps.FirstBaselineEnded(failed="no marks"), "it failed", Facts(failed_baselines=1), steps.ResetAndWait),
    (
        steps.FirstBaselineEnded(failed="no marks"),
        "it failed thrice",
        Facts(failed_baselines=TUNING.baseline_most_failed),
        steps.End,
    ),
    (steps.SearchSetUp(), "", Facts(), steps.BeginSearch),
    (steps.SearchSetUp(), "`--observe`", Facts(observes=True), steps.Observe),
    (steps.SearchSetUp(objection="too short"), "it would not pay back", Facts(), steps.End),
    (steps.Asked(setting=180.0), "it named one", Facts(), steps.TryCap),
    (steps.Asked(setting=180.0), "it named one, and the baseline is old", DUE, steps.BaselineAgain),
    (steps.Asked(setting=None), "it has no more", Facts(), steps.AskForBest),
    (steps.Asked(setting=None), "it has no more, and the baseline's limit may not hold", MOVED, steps.KeepByCurve),
    (steps.Asked(setting=None), "it has no more than was decided before", Facts(held_before=KEEP), steps.Hold),
    (steps.TrialEnded(), "", Facts(), steps.AskForCap),
    (steps.TrialEnded(), "several in a row have failed", Facts(is_blind=True), steps.AskForBest),
    (steps.SavingsSpent(setting=180.0), "", Facts(), steps.TryCap),
    (WRONG, "", Facts(), steps.BaselineAgain),
    (WRONG, "the baseline's limit may not hold", MOVED, steps.TryCap),
    (steps.SearchReopened(), "", Facts(), steps.AskForCap),
    (steps.BaselineAgainEnded(then_w=180.0), "before a trial", Facts(), steps.TryCap),
    (steps.BaselineAgainEnded(), "for its own sake", Facts(), steps.AskForCap),
    (steps.BaselineAgainEnded(failed="no marks"), "for its own sake, and it failed", Facts(), steps.KeepNone),
    (replace(CHANGED, sure=False), "seen once", Facts(), steps.BaselineAgain),
    (CHANGED, "seen twice in a row, or by something else", Facts(), steps.BaselineAndSearch),
    (steps.Recommended(setting=180.0), "it named one", Facts(), steps.ConfirmBest),
    (
        steps.Recommended(setting=180.0),
        "it named one that was confirmed",
        Facts(confirmed_w=180.0),
        steps.KeepConfirmed,
    ),
    (steps.Recommended(setting=None), "it has none", Facts(), steps.KeepNone),
    (
        steps.Recommended(setting=260.0, is_no_cap=True),
        "it named the limit that holds without one",
        Facts(),
        steps.KeepNone,
    ),
    (steps.Recommended(setting=None), "it has none, and the baseline is rough", ROUGH, steps.BaselineAgain),
    (steps.WindowEnded(), "", Facts(), steps.NextWindow),
    (steps.Judged(ruling=BETTER, why="energy 0.8"), "the cap is better", Facts(), steps.KeepConfirmed),
    (steps.Judged(ruling=SLOW, why="+9 % time"), "it is not", Facts(), steps.KeepNone),
    (steps.Judged(ruling=SLOW, why="+9 %", runner_up_w=200.0), "a higher cap may be", Facts(), steps.ConfirmBest),
    (steps.Decided(decision=KEEP), "", Facts(), steps.Hold),
    (steps.Decided(decision=KEEP, balances=True), "`--per-gpu`", Facts(), steps.BalanceGpus),
    (steps.EndNear(), "", Facts(), steps.KeepUnconfirmed),
    (steps.CheckDue(), "", Facts(), steps.Check),
    (steps.ValueMoved(wanted=Move(setting=180.0)), "one that is known", Facts(), Move),
    (steps.ValueMoved(wanted=CONFIRM), "one that was never confirmed", Facts(), Confirm),
    (steps.ValueMoved(wanted=TryOut(setting=180.0)), "one that nobody knows", Facts(), steps.BaselineAgain),
    (steps.ValueMoved(wanted=None), "while one is confirmed that is not", Facts(), steps.HoldAsBefore),
    (CeilingMoved(during=During.HOLD), "", Facts(), steps.HoldWithin),
    (CeilingMoved(during=During.TRIAL), "what is under way may go on", Facts(), steps.Continue),
    (CeilingMoved(during=During.TRIAL, allowed=False), "it may not", Facts(), steps.AskForCap),
    (CeilingMoved(during=During.BASELINE), "while the baseline is measured", Facts(), steps.RestartAtNewLimits),
    (
        CeilingMoved(during=During.HOLD),
        "the limit found may hold, and was never measured",
        Facts(lacks_baseline=True),
        steps.BaselineAndSearch,
    ),
    (steps.CountedAnew(), "", Facts(), steps.ResetAndWait),
    (steps.GridChanged(during=During.TRIAL, why="steps of 25 W"), "", Facts(), steps.BaselineAndSearch),
    (steps.Failed(why="no marks"), "", Facts(), steps.End),
]


def _says(what: type) -> str:
    """The first sentence of what a class stands for."""
    return " ".join((inspect.getdoc(what) or "").split()).partition(".")[0]


def _rows() -> Iterator[str]:
    before = None
    for happened, _, _, expected in CASES:
        if type(happened) is not before:
            yield f"| {_says(type(happened))} | {_says(expected)} |"
        before = type(happened)


@pytest.mark.parametrize(("happened", "facts", "expected"), [(one, facts, what) for one, _, facts, what in CASES])
def test_what_comes_next(happened: Happened, facts: Facts, expected: type) -> None:
    assert type(next_step(facts, happened)) is expected


def test_the_page_has_the_same_table() -> None:
    lines = PAGE.read_text().splitlines()
    start = lines.index(HEAD) + 2
    table = list(_rows())
    assert lines[start : start + len(table)] == table
    assert not lines[start + len(table)].startswith("|")


def test_all_that_may_happen_and_all_there_is_to_do_is_in_it() -> None:
    assert {type(happened) for happened, _, _, _ in CASES} == set(get_args(Happened))
    assert {expected for _, _, _, expected in CASES} == set(get_args(Step))


@pytest.mark.parametrize(
    ("during", "allowed", "holds", "expected"),
    [
        (During.TRIAL, True, False, steps.Continue),
        (During.TRIAL, False, True, steps.AskForCap),
        (During.SAVING_UP, True, False, steps.TryCap),
        (During.SAVING_UP, False, True, steps.AskForCap),
        (During.BASELINE_BEFORE_TRIAL, True, True, steps.Continue),
        (During.BASELINE_BEFORE_TRIAL, True, False, steps.TryCap),
        (During.BASELINE_BEFORE_TRIAL, False, True, steps.AskForCap),
        (During.BASELINE_ALONE, True, True, steps.Continue),
        (During.BASELINE_ALONE, True, False, steps.AskForCap),
        (During.CONFIRMATION, True, True, steps.Continue),
        (During.CONFIRMATION, True, False, steps.AskForCap),
        (During.CONFIRMATION, False, True, steps.AskForCap),
        (During.PER_GPU, True, False, steps.Continue),
        (During.PER_GPU, False, True, steps.KeepByCurve),
        (During.WAIT, True, True, steps.RestartAtNewLimits),
        (During.NOTHING, True, True, steps.RestartAtNewLimits),
    ],
)
def test_what_a_moved_ceiling_leaves_of_what_is_under_way(
    during: During, allowed: bool, holds: bool, expected: type
) -> None:
    step = next_step(Facts(baseline_holds=holds), CeilingMoved(during=during, setting=180.0, allowed=allowed))
    assert type(step) is expected


def test_a_baseline_goes_on_under_a_ceiling_that_leaves_its_limits_as_they_are() -> None:
    moved = CeilingMoved(during=During.BASELINE, other_limits=False)
    assert isinstance(next_step(Facts(), moved), steps.Continue)


def test_a_search_that_ended_by_its_curve_goes_on_where_the_ceiling_has_risen() -> None:
    assert isinstance(next_step(Facts(), CeilingMoved(during=During.HOLD, may_search_on=True)), steps.AskForCap)


def test_where_other_caps_may_be_asked_for_a_trial_that_has_not_begun_is_asked_for_anew() -> None:
    moved = CeilingMoved(during=During.SAVING_UP, setting=180.0, other_grid=True)
    assert isinstance(next_step(Facts(), moved), steps.AskForCap)


def test_a_trial_is_announced_once_however_often_it_waits_for_savings() -> None:
    assert next_step(Facts(), steps.Asked(setting=180.0)) == steps.TryCap(setting=180.0)
    again = steps.TryCap(setting=180.0, announced=True)
    assert next_step(Facts(), steps.SavingsSpent(setting=180.0)) == again
    assert next_step(Facts(), CeilingMoved(during=During.SAVING_UP, setting=180.0)) == again


def test_the_baseline_of_a_search_is_rough_only_where_it_was_a_first_look() -> None:
    assert next_step(Facts(), steps.RoughBaseline()) == steps.SetUpSearch(rough=True)
    assert next_step(Facts(), steps.FirstBaselineEnded()) == steps.SetUpSearch(rough=False)


@pytest.mark.parametrize(
    ("facts", "unsure"),
    [(Facts(), False), (Facts(is_blind=True), True), (Facts(has_slowdown_limit=True), True)],
)
def test_where_caps_were_left_out_a_later_search_may_find_one(facts: Facts, unsure: bool) -> None:
    step = next_step(facts, steps.Recommended(setting=None))
    assert isinstance(step, steps.KeepNone)
    assert step.unsure is unsure


def test_what_is_already_the_best_is_named() -> None:
    found, given = (next_step(Facts(is_bound=bound, is_blind=True), NO_CAP) for bound in (False, True))
    assert found == steps.KeepNone(why="the limit found on arrival is already the best", unsure=False)
    assert given == steps.KeepNone(why="what the budget gives is already the best", unsure=False)


FLAGS = (
    "rough",
    "baseline_holds",
    "baseline_old",
    "lacks_baseline",
    "has_room",
    "observes",
    "own_length",
    "has_slowdown_limit",
)


def _always() -> Iterator[tuple[Facts, Happened, Step]]:
    """All that may happen, whatever is known."""
    ceilings = [
        CeilingMoved(during=during, setting=180.0, allowed=allowed, other_grid=other, may_search_on=other)
        for during, allowed, other in product(During, (False, True), (False, True))
    ]
    for flags in product((False, True), repeat=len(FLAGS)):
        facts = Facts(**dict(zip(FLAGS, flags, strict=True)))
        for happened in (*(one for one, _, _, _ in CASES), *ceilings):
            yield facts, happened, next_step(facts, happened)


def test_a_baseline_whose_limit_may_not_hold_is_not_measured_again_nor_compared_with() -> None:
    for facts, happened, step in _always():
        if not facts.baseline_holds and not isinstance(
            happened, steps.BaselineAgainEnded | steps.Judged | steps.Recommended
        ):
            assert not isinstance(step, steps.BaselineAgain | steps.ConfirmBest | steps.AskForBest), happened


def test_by_a_rough_baseline_nothing_is_given_up_for_good() -> None:
    for facts, happened, step in _always():
        if facts.rough and isinstance(step, steps.KeepNone):
            assert step.unsure, happened


def test_who_only_observes_begins_no_search() -> None:
    for facts, _, step in _always():
        if facts.observes:
            assert not isinstance(step, steps.BeginSearch)


def test_a_baseline_that_others_depend_on_is_never_rough() -> None:
    for facts, _, step in _always():
        if facts.has_room or facts.own_length:
            assert step != steps.SetUpSearch(rough=True)


def test_a_trial_that_a_ceiling_forbids_does_not_go_on() -> None:
    for _, happened, step in _always():
        if isinstance(happened, CeilingMoved) and not happened.allowed and happened.during is During.TRIAL:
            assert isinstance(step, steps.AskForCap | steps.BaselineAndSearch)


@pytest.mark.slow
def test_the_controller_alone_asks_for_the_plan_and_one_module_has_the_baseline_measured() -> None:
    callers: dict[str, set[str]] = {"next_step": set(), "start_baseline": set()}
    for path in (ROOT / "autocap").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", None) or getattr(node.func, "attr", None)
                callers.get(str(name), set()).add(path.stem)
    assert callers == {"next_step": {"controller"}, "start_baseline": {"waiting"}}
