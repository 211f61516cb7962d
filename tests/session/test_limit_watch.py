"""Somebody else changes a limit that we hold: seen in the readings, and we step aside."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.config.values import MOST_CAPS
from autocap.devices.model import profiles
from autocap.errors import DeviceError
from autocap.events import State
from autocap.knobs import POWER_LIMIT, Knob
from autocap.metrics import Metric
from autocap.records import CapRange, GpuInfo, Reading
from autocap.session.limit_watch import LimitWatch
from autocap.session.search_space import cap_grid, common_range, settings_known
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.simulated.node import LimitChange, SimulatedNode
from bench.simulation.jobs import tune
from tests.doubles.logs import announced, warnings

RANGE = CapRange(min_w=100.0, max_w=400.0, default_w=300.0)
GPUS = tuple(GpuInfo(index=i, uuid=f"GPU-{i}", name="H100", cap_range=RANGE) for i in range(2))
PROFILE = profiles.load("quadro-rtx-6000/resnet50")


def at(t_s: float, *requested_w: float | None) -> Sequence[Reading]:
    return [Reading(t_s=t_s, power_w=200.0, requested_w=limit_w) for limit_w in requested_w]


def test_a_limit_that_is_back_at_the_next_sample_was_put_back_by_our_own_watchdog() -> None:
    watch = LimitWatch(GPUS)
    for _ in range(3):
        assert watch.change(at(0.0, 300.0, 300.0), (200.0, 200.0)) is None
        assert watch.change(at(0.0, 200.0, 200.0), (200.0, 200.0)) is None


def test_what_a_device_rounds_or_does_not_tell_is_no_change() -> None:
    watch = LimitWatch(GPUS)
    for _ in range(3):
        assert watch.change(at(0.0, 200.125, None), (200.0, 200.0)) is None


def test_what_a_card_makes_of_a_limit_soon_after_it_was_set_is_learned_and_never_somebody_elses() -> None:
    watch, caps_w = LimitWatch(GPUS, (251.0, 251.0)), (170.0, 170.0)
    assert watch.change(at(0.0, 251.0, 251.0), (251.0, 251.0)) is None
    assert watch.change(at(1.0, 170.0, 170.0), caps_w) is None
    assert watch.change(at(1.1, 150.0, 150.0), caps_w) is None
    assert watch.taken_in_steps() is None
    assert watch.change(at(1.2, 150.0, 150.0), caps_w) is None
    assert watch.taken_in_steps() == ("GPU 0 takes limits in steps: it made 150 W of 170 W, as steps of 25 W would")
    assert watch.taken_in_steps() is None
    assert [one.made_of(190.0) for one in watch.steps] == [175.0, 175.0]
    for t_s in (5.0, 6.0, 7.0):  # it is known by now
        assert watch.change(at(t_s, 150.0, 150.0), caps_w) is None


def test_what_a_step_would_explain_is_somebody_elses_once_the_card_has_had_its_time() -> None:
    watch, caps_w = LimitWatch(GPUS, (251.0, 251.0)), (170.0, 170.0)
    for tenth in range(40):
        assert watch.change(at(0.1 * tenth, 170.0, 170.0), caps_w) is None
    assert watch.change(at(4.0, 170.0, 150.0), caps_w) is None
    said = "the limit of GPU 1 is 150 W, where 170 W should be: somebody else has changed it, and it stays"
    assert watch.change(at(4.1, 170.0, 150.0), caps_w) == said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("t_s", "state", "allowed"),
    [
        (5.0, State.BASELINE, 1.0),  # the baseline is measured at first only beside a limit on slowdown
        (4.0, State.SEARCHING, None),
        (12.0, State.CONFIRMING, None),
        (60.0, State.HOLDING, None),
    ],
)
def test_when_somebody_sets_a_limit_we_set_none_any_more_and_go_on_measuring(t_s, state, allowed) -> None:
    node = SimulatedNode(gpus=2, changes=(LimitChange(t_s=t_s, cap_w=111.0, gpu=1),))
    config = TuneConfig(metric=Metric(name="energy", max_slowdown=allowed), target_stderr=0.005, trial_s=20.0)
    fixed = (("cap", "180"),)
    outcome = tune(SimulatedJob(profile=PROFILE), config, "fixed", options=fixed, node=node, end_s=90.0)
    entered = [event for event in announced(outcome, events.StateEntered) if event.t_s <= t_s]
    assert entered[-1].state is state
    assert not [event for event in announced(outcome, events.CapSet) if event.t_s > t_s + 1.0]
    (warning,) = warnings(outcome)
    assert "the limit of GPU 1 is 111 W, where" in warning
    assert warning.endswith("somebody else has changed it, and it stays")
    assert outcome.device.limits().requested_w(outcome.device.gpus[0].uuid) == 260.0
    assert outcome.device.limits().requested_w(outcome.device.gpus[1].uuid) == 111.0
    tally = outcome.log.events[-1]
    assert isinstance(tally, events.Tally)
    assert np.isclose(tally.since_s + tally.elapsed_s, 90.0, atol=1.0)


def test_another_knob_is_watched_by_its_own_values_whatever_the_power_limit_does() -> None:
    watch = LimitWatch(
        GPUS[:1], (), Knob(name="mode", values=(0, 1, 2), labels=("quiet", "even", "eager"), faster=None)
    )

    def seen(t_s: float, value: float | None, limit_w: float = 200.0) -> str | None:
        return watch.change([Reading(t_s=t_s, power_w=100.0, requested_w=limit_w, knob_value=value)], (2.0,))

    assert [seen(1.0, 1.0), seen(2.0, None), seen(3.0, 1.0, 150.0), seen(4.0, 2.0)] == [None] * 4
    said = "the mode of GPU 0 is eager, where even should be: somebody else has changed it, and it stays"
    assert seen(5.0, 2.0) == said


def gpu(index: int = 0, low: float = 100.0, high: float = 260.0) -> GpuInfo:
    return GpuInfo(
        index=index, uuid=f"GPU-{index}", name="GPU", cap_range=CapRange(min_w=low, max_w=high, default_w=high)
    )


def config(**given: object) -> TuneConfig:
    return TuneConfig(metric=Metric(name="energy"), **given)  # type: ignore[arg-type]  # a test's shorthand


def test_the_grid_spans_the_device_in_steps_of_5_w() -> None:
    grid = cap_grid(config(), [gpu()], [260.0])
    assert len(grid) == 33
    assert (grid[0], grid[-1], grid[1] - grid[0]) == (100.0, 260.0, 5.0)


def test_nothing_above_the_limit_found_on_arrival_is_tried_unless_asked_for() -> None:
    assert cap_grid(config(), [gpu()], [200.0])[-1] == 200.0
    assert cap_grid(config(max_cap_w=260.0), [gpu()], [200.0])[-1] == 260.0


def test_several_gpus_share_the_caps_that_all_of_them_take() -> None:
    grid = cap_grid(config(), [gpu(0, 100, 260), gpu(1, 150, 300)], [260.0, 220.0])
    assert (grid[0], grid[-1]) == (150.0, 220.0)
    with pytest.raises(DeviceError, match="no common cap: GPU 1 starts at 300 W and GPU 0 ends at 260 W"):
        common_range([gpu(0, 100, 260), gpu(1, 300, 400)])


def test_a_gpu_that_arrives_below_what_another_one_takes_is_not_raised_unasked() -> None:
    gpus = [gpu(0, 100, 260), gpu(1, 150, 300)]
    with pytest.raises(DeviceError, match="the lowest cap that all GPUs take, 150 W, is above the 120 W limit fou"):
        cap_grid(config(), gpus, [120.0, 300.0])
    assert cap_grid(config(max_cap_w=200.0), gpus, [120.0, 300.0])[0] == 150.0


def test_listed_caps_the_lowest_off_the_step_and_one_that_the_strategy_names_are_on_the_grid() -> None:
    assert cap_grid(config(caps_w=(120.0, 133.0)), [gpu()], [260.0]) == (120.0, 133.0)
    assert cap_grid(config(min_cap_w=112.0, step_w=50.0), [gpu()], [260.0]) == (112.0, 160.0, 210.0, 260.0)
    assert 137.0 in cap_grid(config(), [gpu()], [260.0], required_w=[137.0])


@pytest.mark.parametrize(
    ("given", "required_w", "message"),
    [
        ({"caps_w": (90.0,)}, [], "--caps 90 W is below the 100 W minimum of GPU 0; pass --caps 100 or more"),
        ({"min_cap_w": 250.0}, [], "--min-cap 250 W is above the 240 W limit found on arrival; pass --max-cap to"),
        ({"min_cap_w": 150.0}, [140.0], "the strategy is to use 140 W, outside 150 to 260 W"),
        ({"step_w": 5e-324}, [], "a step of 4.94066e-324 W makes inf caps between 100 and 240 W"),
        (
            {"step_w": 0.07},
            [],
            "makes 2000 caps between 100 and 240 W, and at most 2000 can be searched; pass --cap-st",
        ),
        ({"step_w": 0.07}, [], "pass --cap-step 0.071 or more"),
    ],
)
def test_bounds_outside_the_device_are_refused(given: dict[str, object], required_w: list[float], message: str) -> None:
    with pytest.raises(DeviceError, match=re.escape(message)):
        cap_grid(config(**given), [gpu()], [240.0], required_w)


def test_the_step_that_the_refusal_names_is_taken() -> None:
    assert len(cap_grid(config(step_w=0.071), [gpu()], [240.0], [100.05])) <= MOST_CAPS + 1


def test_a_limit_that_cannot_be_read_is_named_by_its_devices_index_and_kind() -> None:
    assert settings_known([gpu(2), gpu(5)], POWER_LIMIT, [260.0, 240.0]) == (260.0, 240.0)
    with pytest.raises(DeviceError, match="the limit of GPU 5 cannot be read, so it could not be put back; not tuned"):
        settings_known([gpu(2), gpu(5)], POWER_LIMIT, [260.0, None])
    package = replace(gpu(1), noun="package")
    with pytest.raises(DeviceError, match="the limit of package 1 cannot be read"):
        settings_known([gpu(0), package], POWER_LIMIT, [260.0, None])
