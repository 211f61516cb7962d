"""Whole jobs on cards that take limits in steps, or on a driver that ignores a set now and then, in virtual time."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from autocap.testing.nvml import Machine, Steps, Way
from bench.faults.virtual import ARRIVALS_MW, Stage, play, usual


def both_cards(**changes: object) -> Callable[[Stage], None]:
    def inject(stage: Stage) -> None:
        for gpu in (0, 1):
            stage.card(gpu, **changes)

    return inject


def cards(**changes: object) -> Machine:
    """The usual two, like that also after the job."""
    return replace(usual(), cards=tuple(replace(card, **changes) for card in usual().cards))


@pytest.mark.parametrize(("lag_s", "way"), [(0.0, Way.DOWN), (0.008, Way.DOWN), (0.008, Way.NEAREST), (0.6, Way.UP)])
def test_tuning_goes_on_at_what_the_cards_take_and_ends_with_a_kept_cap_and_the_limits_found(lag_s, way) -> None:
    firmware = Steps(step_mw=25_000, lag_s=lag_s, way=way, untouched_mw=ARRIVALS_MW)

    report = play(usual(), both_cards(steps=firmware))
    assert report.limits_mw == ARRIVALS_MW
    assert not report.restored_later
    assert report.left_behind == ()
    assert firmware.made_of(round(1000 * report.kept_w)) == 1000 * report.kept_w
    assert report.said[-1] == "the job ended"
    assert report.said[0].endswith("as steps of 25 W would")


@pytest.mark.parametrize(
    ("refuses", "said"),
    [
        (False, "tuning anew: a device takes no limit below 193.7 W: it made that of 185 W"),
        (True, "tuning anew: GPU 0 refuses 185 W, which its driver says it takes"),
    ],
)
def test_a_floor_above_the_range_that_the_driver_states_is_the_ranges_end(refuses: bool, said: str) -> None:
    report = play(usual(), both_cards(floor_mw=193_700, floor_refuses=refuses))
    assert report.said == (said, "the job ended")
    assert report.kept_w == (215.0 if refuses else 193.7)
    assert (report.limits_mw, report.left_behind, report.restored_later) == (ARRIVALS_MW, (), False)


@pytest.mark.parametrize("lag_s", [0.008, 0.5])
def test_a_floor_above_the_range_of_a_card_that_takes_steps_leaves_those_above_it(lag_s: float) -> None:
    firmware = Steps(step_mw=25_000, lag_s=lag_s)
    report = play(cards(arrival_mw=283_570, floor_mw=178_000, floor_refuses=True, steps=firmware), lambda stage: None)
    assert report.kept_w in (200.0, 250.0)
    assert (
        report.said[0] == "tuning anew: GPU 0 takes limits in steps: it made 275 W of 283.57 W, as steps of 25 W would"
    )
    assert "tuning anew: GPU 0 refuses 175 W, which its driver says it takes" in report.said
    assert report.left_behind == ()


def test_a_cap_above_what_something_outside_holds_a_card_at_is_left_out_of_the_search() -> None:
    report = play(usual(), both_cards(ceiling_mw=230_000))
    assert (
        "tuning anew: something outside autocap holds a device at 230 W, so no cap above that is tried" in report.said
    )
    assert report.kept_w == 150.0
    assert report.said[-1] == "the job ended"
    assert (report.limits_mw, report.left_behind, report.restored_later) == (ARRIVALS_MW, (), False)


def test_a_card_that_is_held_lower_from_outside_and_takes_steps_is_tuned_on_them() -> None:
    report = play(cards(ceiling_mw=281_000, steps=Steps(step_mw=25_000, lag_s=0.5)), lambda stage: None)
    assert report.kept_w == 150.0
    assert not any("somebody else" in text for text in report.said)
    assert report.left_behind == ()


@pytest.mark.parametrize("seed", [5, 6])
def test_a_wrong_limit_where_a_card_of_steps_is_asked_once_more_makes_its_step_nobody_elses(seed: int) -> None:
    made = cards(steps=Steps(step_mw=25_000, lag_s=0.5), wrong_share=0.2, wrong_mw=-7_000)
    report = play(replace(made, seed=seed), lambda stage: None)
    assert report.kept_w == 150.0
    assert not any("somebody else" in text for text in report.said)


def test_where_one_of_two_cards_takes_steps_both_get_what_it_takes() -> None:
    report = play(usual(), lambda stage: stage.card(1, steps=Steps(step_mw=25_000, untouched_mw=ARRIVALS_MW)))
    assert report.limits_mw == ARRIVALS_MW
    assert report.kept_w in (150.0, 175.0, 200.0, 225.0, 250.0)
    assert report.said[-1] == "the job ended"


def test_a_driver_that_ignores_every_third_set_ends_no_tuning() -> None:
    report = play(usual(), both_cards(ignored_share=0.33))
    assert report.said == ("the job ended",)
    assert report.kept_w is not None
    assert report.limits_mw == ARRIVALS_MW
    assert not report.restored_later


def test_steps_of_an_unusual_length_and_origin_are_learned_as_well() -> None:
    firmware = Steps(step_mw=50_000, from_mw=12_500, untouched_mw=ARRIVALS_MW)
    report = play(usual(), both_cards(steps=firmware))
    assert report.limits_mw == ARRIVALS_MW
    assert report.kept_w in (162.5, 212.5)
    assert report.left_behind == ()
