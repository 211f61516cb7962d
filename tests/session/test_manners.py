"""Whole jobs on machines with the manners of docs/nvml.md that no other test has: a cap is kept, or the reason is the
true one, and the limits found are back."""

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autocap import events
from autocap.devices.model import profiles
from autocap.testing.nvml import Fault, Limits, again
from autocap.testing.nvml.machine import Change
from bench.faults.virtual import ARRIVALS_MW, QUICK, Report, Stage, play, usual
from bench.machines.drawn import GETTERS

PRODUCT = Path(__file__).resolve().parents[2] / "autocap"
# Those without which a GPU cannot be tuned are not among them: its UUID, and the range of its limits.
POWER_AND_LIMITS = (
    "nvmlDeviceGetFieldValues",
    "nvmlDeviceGetPowerUsage",
    "nvmlDeviceGetPowerManagementLimit",
    "nvmlDeviceGetPowerManagementDefaultLimit",
    "nvmlDeviceGetEnforcedPowerLimit",
)


def both(**changes: object) -> Callable[[Stage], None]:
    return lambda stage: [stage.card(gpu, **changes) for gpu in (0, 1)] and None


def nothing(stage: Stage) -> None:
    """The machine is as it is."""


def kept(report: Report) -> float:
    assert (report.raised, report.hung, report.left_behind) == (None, None, ())
    assert report.limits_mw == ARRIVALS_MW
    assert report.kept_w is not None, report.said
    return report.kept_w


def test_nothing_but_the_power_limit_is_ever_set() -> None:
    paths = [path for path in PRODUCT.rglob("*.py") if "testing" not in path.parts]
    words = {word for path in paths for word in re.findall(r"nvmlDevice(?:Set|Reset)\w+", path.read_text())}
    assert words == {"nvmlDeviceSetPowerManagementLimit"}  # no persistence mode, no clocks, no reset, no second version


@pytest.mark.slow
def test_a_range_that_ends_high_is_searched_as_far_as_it_goes() -> None:
    report = play(usual(), both(min_mw=200_000), tune=replace(QUICK, caps_w=(200.0, 230.0, 260.0)))
    assert kept(report) == 200.0
    assert report.said[0] == (
        "GPU 0 takes no limit below 200 W, 67 % of its highest; "
        "where a job would do best with less, no cap reaches that"
    )


@pytest.mark.slow
@pytest.mark.parametrize("names", [GETTERS, *((name,) for name in POWER_AND_LIMITS)], ids=lambda names: names[0])
def test_getters_that_may_not_be_called_cost_no_tuning(names: tuple[str, ...]) -> None:
    report = play(usual(), both(denied=names))
    assert kept(report) == 150.0
    untold = "the driver does not tell who computes on GPU 0, 1, so whether the job has it to itself is not known"
    split = (
        "the driver does not tell whether MIG splits GPU 0, 1: where it does, a limit acts on all instances, also on "
        "others' jobs; pass --observe then"
    )
    assert report.said == ((split, untold) if names == GETTERS else ()) + ("the job ended",)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (
            {"limits": Limits.UNSUPPORTED},
            "has no power limit to set, as on many laptops .only the 287.123 W enforced",
        ),
        ({"mig": True}, "is split into MIG instances, which share one power limit; switch MIG off"),
    ],
    ids=["laptop", "mig"],
)
def test_cards_whose_limit_is_not_to_be_set_leave_the_job_untuned_for_that_reason(changes, why: str) -> None:
    report = play(usual(), both(**changes))
    assert re.search(f"the job runs untuned: GPU 0 .* {why}", report.said[0])
    assert (report.sets, report.status) == ((), 0)


@pytest.mark.slow
def test_without_the_permission_to_set_a_limit_nothing_begins_and_the_ways_out_are_named() -> None:
    report = play(usual(), both(limits=Limits.REFUSED))
    assert report.said[0].startswith("the job runs untuned: cap 287.123 W on GPU 0 was not permitted")
    assert all(way in report.said[0] for way in ("sudo", "helper", "--cap-add SYS_ADMIN", "--observe"))
    assert (report.sets, report.status) == ((), 0)


@pytest.mark.slow
def test_without_persistence_nvml_stays_open_as_the_limits_would_go_with_its_last_client() -> None:
    report = play(usual(), both(persistence=False))
    assert kept(report) == 150.0
    first, last = report.said
    assert first.startswith("persistence mode is off on GPU 0, 1: once no program uses it, the driver may unload")
    assert last == "the job ended"


@pytest.mark.slow
@pytest.mark.parametrize("t_s", [4.0, 12.0])
def test_limits_that_fall_back_to_the_default_end_the_tuning_and_stay_there(t_s: float) -> None:
    default_mw = usual().cards[0].default_mw
    report = play(
        replace(usual(), changes=tuple(Change(t_s=t_s, gpu=gpu, limit_mw=default_mw) for gpu in (0, 1))), nothing
    )
    assert report.limits_mw == (default_mw, default_mw)
    assert "the default, as after a reload of the driver or a reset of the GPU, unless somebody" in report.said[-1]
    assert not [one for one in report.sets if one[0] > t_s + 2.0]
    assert report.ended


@pytest.mark.slow
def test_a_board_that_keeps_to_a_part_of_its_limit_is_tuned_by_what_caps_do() -> None:
    report = play(usual(), both(acts_share=0.7))
    assert kept(report) <= 215.0
    measured = [one.measurement for one in report.events if isinstance(one, events.BaselineMeasured)]
    assert [one.cap_binding for one in measured] == [True]  # though the draw is far below the limit
    assert not any("outside autocap" in text for text in report.said)


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["linear", "model"])
def test_a_cap_is_said_to_cost_what_it_costs_where_a_stretch_of_caps_is_one_setting(strategy: str) -> None:
    tune = replace(QUICK, caps_w=(200.0, 225.0, 235.0, 250.0), target_stderr=0.02)
    report = play(
        replace(usual(), iterations=900),
        both(plateau_mw=(170_000, 230_000)),
        tune=tune,
        strategy=strategy,
        sample_hz=None,
    )
    assert kept(report) in (200.0, 225.0)
    profile = profiles.load(usual().profile)
    (decided,) = [one.measurement for one in report.events if isinstance(one, events.Decided)]
    assert decided is not None
    true_j = 2 * float(profile.power_w(170.0) * profile.time_s(170.0))
    assert decided.energy_per_iteration_j == pytest.approx(true_j, rel=0.01)


@pytest.mark.slow
def test_peaks_above_the_limit_are_not_taken_for_a_limit_that_does_not_hold() -> None:
    report = play(usual(), both(peaks_share=0.03))
    assert kept(report) == 150.0
    assert report.said == ("the job ended",)


@pytest.mark.slow
@pytest.mark.parametrize("from_s", [4.0, 12.0])
def test_an_agent_that_sets_its_number_again_and_again_is_never_fought(from_s: float) -> None:
    agent = again(0, 222_000, from_s=from_s, every_s=3.0, until_s=200.0)
    report = play(replace(usual(), changes=agent), nothing)
    assert report.limits_mw == (222_000, ARRIVALS_MW[1])
    assert "somebody else has changed it" in report.said[-1]
    assert len([t_s for t_s, gpu, _ in report.sets if gpu == 0 and t_s > from_s + 3.0]) == 0
    assert report.ended


@pytest.mark.slow
def test_a_counter_that_begins_anew_is_left_for_the_readings_of_power() -> None:
    report = play(usual(), both(counter_wraps_mj=5_500_000))
    assert kept(report) == 150.0
    assert any(re.search(r"energy counter of GPU \d went back .* is not used", text) for text in report.said)


@pytest.mark.slow
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


@pytest.mark.slow
def test_an_agent_that_is_known_to_set_limits_is_named_once_somebody_has(tmp_path: Path) -> None:
    sleep = shutil.which("sleep")
    assert sleep is not None
    (tmp_path / "lact").symlink_to(sleep)
    with subprocess.Popen([tmp_path / "lact", "60"]) as agent:
        try:
            report = play(replace(usual(), changes=again(0, 222_000, from_s=4.0, every_s=3.0, until_s=40.0)), nothing)
        finally:
            agent.kill()
    assert any(f"LACT (lact) (PID {agent.pid})" in text and "may have set it" in text for text in report.said)


@pytest.mark.slow
def test_without_an_energy_counter_power_is_added_up() -> None:
    with_counter, without = (play(usual(), both(energy_counter=there), sample_hz=None) for there in (True, False))
    assert kept(without) == 150.0
    (there,), (added,) = (
        [one.measurement for one in report.events if isinstance(one, events.BaselineMeasured)]
        for report in (with_counter, without)
    )
    assert added.energy_per_iteration_j == pytest.approx(there.energy_per_iteration_j, rel=0.02)


@pytest.mark.slow
def test_once_the_jobs_gpus_are_known_no_lists_of_processes_are_asked_for() -> None:
    lists = Fault(code=0, function="nvmlDeviceGetComputeRunningProcesses_v3", times=None, from_s=3.0)
    stages: list[Stage] = []
    report = play(replace(usual(), faults=(lists,)), stages.append)
    assert kept(report) == 150.0
    assert not stages[0].library.met(lists)
