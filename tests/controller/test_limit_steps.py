"""Devices that take limits in steps: the search goes on among the caps that they take, in every state."""

from collections.abc import Sequence

import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.controller import Controller
from autocap.controller.context import Action, Announce, SetCaps
from autocap.events import State
from autocap.metrics import Metric
from autocap.progress import StepProgress
from autocap.records import SensorInfo
from autocap.strategies import registry
from autocap.strategies.grid import CapGrid
from bench.simulation.strategies import new_strategy
from tests.doubles.feeds import samples

FOUND_W = 250.0
WHY = "GPU 0 takes limits in steps: it made 150 W of 170 W, as steps of 25 W would"


def controller(strategy: str, caps_w: Sequence[float], **options: float) -> Controller:
    given, whole = [(name, f"{value:g}") for name, value in options.items()], CapGrid(caps_w)
    return Controller(
        config=TuneConfig(metric=Metric(name="energy"), target_stderr=0.3, trial_s=4.0),
        sensor=SensorInfo(update_s=0.1, window_s=0.0, settle_s=0.0),
        original_w=(FOUND_W,),
        grid=whole,
        progress=StepProgress(),
        new_strategy=new_strategy(registry.find(strategy), whole, options=given),
    )


def steps_of_25(caps_w: Sequence[float]) -> tuple[float, ...]:
    return tuple(sorted({25.0 * (cap_w // 25) for cap_w in caps_w if 25.0 * (cap_w // 25) >= min(caps_w)}))


def caps(actions: Sequence[Action]) -> list[float]:
    return [action.settings[0] for action in actions if isinstance(action, SetCaps)]


def said(actions: Sequence[Action]) -> list[str]:
    found = [action.event for action in actions if isinstance(action, Announce)]
    return [event.text for event in found if isinstance(event, events.Warned)]


def test_a_trial_of_a_cap_that_is_not_taken_as_it_is_counts_for_nothing_and_the_search_goes_on_among_steps() -> None:
    made = controller("linear", (130.0, 170.0, 210.0, 250.0))
    before: list[Action] = []
    after: list[Action] = []
    for sample in samples(seconds=60.0):
        actions = made.feed(sample)
        if after:
            after += actions
            continue
        before += actions
        if caps(before)[-1:] == [210.0]:  # under way
            after += made.stepped(sample.t_s, steps_of_25, WHY)
            assert made.state is State.BASELINE
    assert said(after)[0] == f"tuning anew: {WHY}"
    assert caps(after)[0] == FOUND_W
    assert set(caps(after)) == {FOUND_W, 150.0, 200.0}
    trials = [action.event for action in after if isinstance(action, Announce)]
    assert {one.trial.setting for one in trials if isinstance(one, events.TrialEnded)} == {150.0, 200.0, 250.0}


def test_a_cap_that_an_option_names_is_the_step_below_it() -> None:
    made = controller("fixed", (130.0, 170.0, 210.0, 250.0), cap=170.0)
    found = []
    for sample in samples(seconds=60.0):
        found += made.feed(sample)
        if caps(found)[-1:] == [170.0]:
            found += made.stepped(sample.t_s, steps_of_25, WHY)
    assert caps(found)[:3] == [170.0, FOUND_W, 150.0]


@pytest.mark.parametrize("seconds", [0.0, 0.3])
def test_before_a_cap_is_asked_for_the_search_is_only_one_among_other_caps(seconds: float) -> None:
    made = controller("linear", (130.0, 170.0, 210.0, 250.0))
    found: list[Action] = []
    for number, sample in enumerate(samples(seconds=60.0)):
        found += made.feed(sample)
        if number == round(20 * seconds):
            found += made.stepped(sample.t_s, steps_of_25, WHY)
    assert set(caps(found)) == {FOUND_W, 150.0, 200.0}


def test_where_no_cap_is_taken_as_it_is_the_tuning_ends_with_the_reason() -> None:
    made = controller("linear", (160.0, 170.0))
    actions = made.stepped(0.0, steps_of_25, WHY)
    why = f"{WHY}; of the caps from 160 to 170 W that leaves none, so pass other --caps or bounds"
    assert made.ended_because == why
    assert made.ended_because in said(actions)
    assert made.settings == (FOUND_W,)


def test_what_changes_no_cap_that_may_be_asked_for_is_only_said() -> None:
    made = controller("linear", (125.0, 150.0, 200.0))
    assert said(made.stepped(0.0, steps_of_25, WHY)) == [WHY]


def test_steps_that_were_taken_for_others_at_first_leave_out_no_cap_for_good() -> None:
    made = controller("linear", (125.0, 150.0, 175.0, 200.0))
    found: list[Action] = []
    for number, sample in enumerate(samples(seconds=60.0)):
        found += made.feed(sample)
        if number == 3:
            found += made.stepped(sample.t_s, lambda caps_w: tuple(cap_w for cap_w in caps_w if cap_w % 50 == 25), WHY)
            found += made.stepped(sample.t_s, steps_of_25, WHY)
    assert set(caps(found)) == {FOUND_W, 125.0, 150.0, 175.0, 200.0}
