"""How soon the next sample is needed, and what it is worth to take fewer."""

from dataclasses import replace

import pytest

from autocap import events
from autocap.clock import VirtualClock
from autocap.config import TuneConfig
from autocap.controller.intake import Pace
from autocap.devices.model import profiles
from autocap.devices.model.sensor import PRESETS
from autocap.measurement.metering import Metering
from autocap.measurement.window import Window
from autocap.metrics import Metric
from autocap.progress import BestProgress, SpeedProgress, StepProgress
from autocap.progress.period.progress import PeriodProgress
from autocap.records import Measurement, NodeReading, Reading, Sample, SensorInfo
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob, WorkloadChange
from autocap.testing.simulated.node import SimulatedNode
from bench.simulation.jobs import tune
from tests.doubles.logs import announced

RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
ALEXNET = profiles.load("tesla-v100/alexnet")


def pace(
    update_s: float, *, counter_s: float | None = None, counts: bool = True, node: NodeReading | None = None
) -> Pace:
    made = Pace(SensorInfo(update_s=update_s, window_s=0.01, settle_s=0.5, counter_s=counter_s))
    made.take(Sample(t_s=0.0, readings=(Reading(t_s=0.0, power_w=200.0, energy_j=5.0 if counts else None),), node=node))
    return made


def interval_s(update_s: float, *, held=False, follows_power=False, iteration_s=0.5, **seen) -> float:
    """seen: as `pace` takes it."""
    return pace(update_s, **seen).interval_s(held=held, follows_power=follows_power, iteration_s=iteration_s)


@pytest.mark.parametrize("update_s", [0.02, 0.1])
@pytest.mark.parametrize(("iteration_s", "expected_s"), [(0.0, 0.05), (0.3, 0.05), (3.2, 0.2), (20.0, 0.25)])
def test_counted_energy_and_steps_need_their_edges_alone(update_s, iteration_s, expected_s) -> None:
    assert interval_s(update_s, iteration_s=iteration_s, counter_s=0.1) == pytest.approx(expected_s)


def test_a_slow_sensor_is_looked_at_no_more_often_than_it_was() -> None:
    assert interval_s(0.515, iteration_s=0.1) == 0.2575


@pytest.mark.parametrize(("update_s", "held_s"), [(0.02, 0.8), (0.1, 0.8), (0.515, 0.8), (2.0, 1.0)])
def test_a_cap_that_is_held_is_looked_at_once_in_two_beats(update_s: float, held_s: float) -> None:
    assert interval_s(update_s, held=True) == held_s


def test_power_that_has_to_be_added_up_is_read_whenever_it_is_measured() -> None:
    found_s = [interval_s(update_s, held=held, counts=False) for update_s in (0.02, 0.1) for held in (False, True)]
    assert found_s == [0.02, 0.05, 0.05, 0.1]


def test_a_meter_without_a_counter_is_read_at_every_beat_while_a_cap_is_held() -> None:
    assert interval_s(0.1, held=True, node=NodeReading(t_s=0.0, power_w=400.0, whole=True)) == 0.4


def test_a_period_is_followed_through_every_reading_of_the_sensor() -> None:
    for update_s, expected_s in ((0.02, 0.02), (0.1, 0.05)):
        for held, iteration_s in ((False, 0.0), (False, 3.0), (True, 3.0)):
            assert interval_s(update_s, held=held, follows_power=True, iteration_s=iteration_s) == expected_s


def test_the_power_is_followed_only_as_long_as_a_period_in_it_may_be_needed() -> None:
    sensor = SensorInfo(update_s=0.1, window_s=0.025, settle_s=0.5)
    steps = StepProgress()
    progress = BestProgress(steps, PeriodProgress(sensor), 20.0)
    assert (steps.follows_power, SpeedProgress().follows_power, progress.follows_power) == (False, False, True)
    device = SimulatedDevice(clock := VirtualClock(), SimulatedJob(profile=RESNET50))
    clock.wait_until(2.0)
    progress.marks(Sample(t_s=2.0, readings=device.read(), steps=device.steps(2.0)))
    assert (progress.kind, progress.follows_power) == ("steps", False)


def windows(seed: int, intervals_s: tuple[float, ...], counter_s: float) -> list[Measurement]:
    """The same 12 s of a job, seen so often; the energy counter moves every counter_s seconds."""
    found = []
    for interval_s in intervals_s:
        node = SimulatedNode(sensor=replace(PRESETS["v100"], energy_update_s=counter_s))
        device = SimulatedDevice(clock := VirtualClock(), SimulatedJob(profile=RESNET50, jitter=0.02), node, seed=seed)
        progress, metering, window = StepProgress(), Metering(), Window((260.0,))
        while clock.now() < 20.0:
            clock.wait_until(clock.now() + interval_s)
            sample = Sample(t_s=clock.now(), readings=device.read(), steps=device.steps(clock.now()))
            metered = metering.meter(sample, progress.marks(sample), "steps", (260.0,))
            if clock.now() > 8.0:
                window.add(metered)
        measured = window.measure()
        assert measured is not None
        found.append(measured)
    return found


def test_samples_stay_in_step_with_the_counter_and_else_with_the_sensor() -> None:
    moves = ((0.0198, 5.0, 2.5), (0.0202, 5.0, 2.5), (0.0989, 0.5, 0.5), (0.1035, 0.5, 0.5))
    for moves_s, by_counter, by_sensor in moves:
        assert interval_s(0.1, iteration_s=0.1, counter_s=moves_s) / moves_s == pytest.approx(by_counter)
        assert interval_s(moves_s, iteration_s=0.1) / moves_s == pytest.approx(by_sensor)


@pytest.mark.slow
@pytest.mark.parametrize("counter_s", [0.02, 0.1, 0.102])
def test_windows_seen_less_often_show_the_same_within_the_errors_that_they_state(counter_s: float) -> None:
    seldom_s = interval_s(0.02, counter_s=counter_s)
    assert seldom_s >= 0.05
    for seed in range(8):
        dense, sparse = windows(seed, (0.02, seldom_s), counter_s)
        time = sparse.period_s / dense.period_s - 1
        energy = sparse.energy_per_iteration_j / dense.energy_per_iteration_j - 1
        assert abs(time) < sparse.period_rel_stderr
        assert abs(energy) < sparse.energy_rel_stderr
        assert sparse.energy_rel_stderr < 0.01


@pytest.mark.slow
def test_a_faster_or_slower_job_of_short_steps_is_noticed_by_a_look_in_two_beats() -> None:
    """A look sees sixteen iterations: that they take longer is no pause."""
    for time in (1.15, 0.85):
        job = SimulatedJob(profile=ALEXNET, jitter=0.02, iterations=6000, change=WorkloadChange(at=4000, time=time))
        outcome = tune(job, TuneConfig(metric=Metric(name="energy")), "golden")
        held_s = announced(outcome, events.Decided)[0].t_s
        anew = [event for event in announced(outcome, events.Warned) if "tuning anew" in event.text]
        assert held_s < anew[0].t_s
        assert "the workload has changed" in anew[0].text
