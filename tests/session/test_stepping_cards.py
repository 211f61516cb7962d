"""Whole jobs on cards that take limits in steps, or on a driver that ignores a set now and then, in virtual time."""

from collections.abc import Callable

import pytest

from autocap.testing.nvml import Steps, Way
from bench.faults.stage import ARRIVALS_MW, Stage
from bench.faults.virtual import play, usual


def both_cards(**changes: object) -> Callable[[Stage], None]:
    def inject(stage: Stage) -> None:
        for gpu in (0, 1):
            stage.card(gpu, **changes)

    return inject


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
