"""Whole jobs on machines with the manners of docs/nvml.md that no other test has: a cap is kept, or the reason is the
true one, and the limits found are back."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.testing.nvml import Fault, again
from bench.faults.stage import ARRIVALS_MW, Stage
from bench.faults.virtual import QUICK, Report, play, usual
from bench.machines.drawn import GETTERS

NVML = Path(__file__).resolve().parents[2] / "autocap" / "devices" / "nvml"


def both(**changes: object) -> Callable[[Stage], None]:
    return lambda stage: [stage.card(gpu, **changes) for gpu in (0, 1)] and None


def kept(report: Report) -> float:
    assert (report.raised, report.hung, report.left_behind) == (None, None, ())
    assert report.limits_mw == ARRIVALS_MW
    assert report.kept_w is not None, report.said
    return report.kept_w


def test_nothing_but_the_power_limit_is_ever_set() -> None:
    words = {word for path in NVML.glob("*.py") for word in re.findall(r"nvmlDevice(?:Set|Reset)\w+", path.read_text())}
    assert words == {"nvmlDeviceSetPowerManagementLimit"}  # no persistence mode, no clocks, no reset, no second version


def test_a_range_that_ends_high_is_searched_as_far_as_it_goes() -> None:
    report = play(usual(), both(min_mw=200_000), tune=replace(QUICK, caps_w=(200.0, 230.0, 260.0)))
    assert kept(report) == 200.0
    assert report.said[0] == (
        "GPU 0 takes no limit below 200 W, 67 % of its highest; "
        "where a job would do best with less, no cap reaches that"
    )


@pytest.mark.parametrize("name", GETTERS)
def test_a_getter_that_may_not_be_called_costs_no_tuning(name: str) -> None:
    assert kept(play(usual(), both(denied=(name,)))) == 150.0


def test_a_board_that_keeps_to_a_part_of_its_limit_is_tuned_by_what_caps_do() -> None:
    report = play(usual(), both(acts_share=0.7))
    assert kept(report) <= 215.0
    assert not any("outside autocap" in text for text in report.said)


def test_caps_that_are_the_same_setting_are_no_trouble() -> None:
    assert kept(play(usual(), both(plateau_mw=(170_000, 230_000)))) == 150.0


def test_peaks_above_the_limit_are_not_taken_for_a_limit_that_does_not_hold() -> None:
    report = play(usual(), both(peaks_share=0.03))
    assert kept(report) == 150.0
    assert report.said == ("the job ended",)


def test_a_driver_that_takes_seconds_to_open_is_waited_for() -> None:
    slow = Fault(code=0, function="nvmlInitWithFlags", times=None, delay_s=4.0)
    report = play(replace(usual(), iterations=800, faults=(slow,)), lambda stage: None)
    assert kept(report) == 150.0


@pytest.mark.parametrize("from_s", [4.0, 12.0])
def test_an_agent_that_sets_its_number_again_and_again_is_never_fought(from_s: float) -> None:
    agent = again(0, 222_000, from_s=from_s, every_s=3.0, until_s=200.0)
    report = play(replace(usual(), changes=agent), lambda stage: None)
    assert report.limits_mw == (222_000, ARRIVALS_MW[1])
    assert "somebody else has changed it" in report.said[-1]
    assert len([t_s for t_s, gpu, _ in report.sets if gpu == 0 and t_s > from_s + 3.0]) == 0
    assert report.ended


def test_a_counter_that_begins_anew_is_left_for_the_readings_of_power() -> None:
    report = play(usual(), both(counter_wraps_mj=5_500_000))
    assert kept(report) == 150.0
    assert any(re.search(r"energy counter of GPU \d went back .* is not used", text) for text in report.said)


@pytest.mark.parametrize("strategy", ["linear", "golden"])
def test_where_something_outside_holds_the_cards_lower_no_cap_above_that_is_tried(strategy: str) -> None:
    report = play(usual(), both(ceiling_mw=210_000), strategy=strategy)
    assert kept(report) in (150.0, 185.0)
    held = "something outside autocap holds GPU {} at 210 W, although {} W is requested; caps above that change nothing"
    assert report.said == (
        held.format(0, 287.123),
        held.format(1, 291.007),
        "tuning anew: something outside autocap holds a device at 210 W, so no cap above that is tried",
        "the job ended",
    )
