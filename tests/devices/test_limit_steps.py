"""What a card makes of limits: learned from what it made of ours, and nothing that its steps do not explain."""

import pytest

from autocap.devices.limit_steps import LimitSteps, is_likely_step, may_be_made, on_steps


@pytest.mark.parametrize(
    ("asked_w", "there_w"),
    [
        (170.0, 150.0),  # down to the step below
        (170.0, 175.0),  # up, or to the nearest
        (163.0, 162.5),
        (170.0, 151.007),  # steps that are counted from the limit found
    ],
)
def test_what_lies_between_a_limit_and_the_next_step_may_be_the_cards(asked_w: float, there_w: float) -> None:
    assert may_be_made(251.007, asked_w, there_w)
    assert LimitSteps(251.007).explains(asked_w, there_w)


@pytest.mark.parametrize("there_w", [111.0, 230.0, 215.432, 170.4, 100.0, 251.007])
def test_what_is_too_far_away_or_no_round_number_is_somebody_elses(there_w: float) -> None:
    assert not may_be_made(251.007, 170.0, there_w)


@pytest.mark.parametrize(
    ("there_w", "likely"), [(150.0, True), (180.0, True), (151.007, True), (168.25, False), (211.0, False)]
)
def test_who_cannot_ask_again_believes_in_steps_of_a_usual_length_alone(there_w: float, likely: bool) -> None:
    assert is_likely_step(251.007, 170.0, there_w) is likely


@pytest.mark.parametrize("step_w", [1.0, 5.0, 12.5, 25.0, 30.0, 37.5, 45.0])
@pytest.mark.parametrize("from_w", [0.0, 7.5, 251.007])
def test_steps_of_any_length_from_anywhere_are_learned_from_a_few_limits(step_w: float, from_w: float) -> None:
    steps, caps_w = LimitSteps(251.007), tuple(100.0 + 5 * number for number in range(31))
    for _ in range(8):
        ask_w = next((cap_w for cap_w in on_steps(caps_w, [steps]) if (cap_w - from_w) % step_w > 0.01), None)
        if ask_w is None:
            break
        steps.learn(ask_w, from_w + (ask_w - from_w) // step_w * step_w)
    learned = on_steps(caps_w, [steps])
    assert learned
    assert all(min((cap_w - from_w) % step_w, -(cap_w - from_w) % step_w) < 0.02 for cap_w in learned)


def test_what_was_learned_rules_out_other_steps() -> None:
    steps = LimitSteps(251.0)
    assert steps.step_w is None
    assert steps.made_of(170.0) == 170.0
    steps.learn(170.0, 150.0)
    assert (steps.step_w, steps.made_of(199.0)) == (25.0, 175.0)
    assert steps.explains(199.0, 175.0)
    assert steps.explains(199.0, 200.0)  # to the nearest of 50 W
    assert not steps.explains(199.0, 140.0)
    steps.learn(199.0, 150.0)
    assert steps.step_w == 50.0
    with pytest.raises(ValueError, match="no step explains 175 W where 199 W was asked"):
        steps.learn(199.0, 175.0)


def test_only_caps_remain_that_every_card_takes_as_they_are_inside_of_those_asked_for() -> None:
    coarse, fine, free = LimitSteps(None), LimitSteps(None), LimitSteps(None)
    coarse.learn(170.0, 150.0)
    fine.learn(163.0, 160.0)
    assert on_steps((130.0, 170.0, 200.0, 230.0), [coarse, free]) == (150.0, 200.0, 225.0)
    assert on_steps((130.0, 170.0, 200.0, 230.0), [coarse, fine]) == (150.0, 200.0, 225.0)
    assert on_steps((160.0, 174.0), [coarse]) == ()
    assert on_steps((130.0, 170.0), [free]) == (130.0, 170.0)


def test_steps_that_are_counted_from_zero_are_likelier_than_shorter_ones_from_what_is_there() -> None:
    steps = LimitSteps(283.57)
    steps.learn(283.57, 275.0)
    assert (steps.step_w, steps.made_of(205.0)) == (25.0, 200.0)


def test_once_a_short_step_was_too_short_the_usual_one_is_next() -> None:
    steps = LimitSteps(300.0)
    steps.learn(201.0, 200.0)
    assert steps.step_w == 2.0
    steps.learn(202.0, 200.0)
    assert steps.step_w == 25.0
    steps.learn(225.0, 220.0)
    assert steps.step_w == 10.0
