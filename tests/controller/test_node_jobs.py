"""Whole jobs that are tuned by the machine's power, on the simulated device, in virtual time."""

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from autocap import events
from autocap.clock import Clock
from autocap.config import TuneConfig
from autocap.devices.base import PowerSource
from autocap.devices.model import profiles
from autocap.devices.node import ConstantPower
from autocap.metrics import Metric
from autocap.records import Measurement, NodeReading, TrialState
from autocap.testing.simulated.device import SimulatedDevice, SimulatedMeter
from autocap.testing.simulated.job import SimulatedJob
from bench.simulation.jobs import Outcome, tune
from tests.doubles.logs import announced, warnings

PROFILE = profiles.load("quadro-rtx-6000/vgg19")
ENERGY = TuneConfig(metric=Metric(name="energy"))
REST_W = 400.0


class Faulty(SimulatedMeter):
    """Tells nothing from dies_s on, until back_s."""

    dies_s, back_s = 0.0, math.inf

    def read(self) -> NodeReading:
        reading = super().read()
        return replace(reading, power_w=None) if self.dies_s <= reading.t_s < self.back_s else reading


def metered(refresh_s: float = 0.1) -> Callable[[SimulatedDevice, Clock], PowerSource]:
    return lambda device, clock: SimulatedMeter(device, clock, rest_w=REST_W, refresh_s=refresh_s)


def faulty(dies_s: float, back_s: float = math.inf) -> Callable[[SimulatedDevice, Clock], PowerSource]:
    def meter(device: SimulatedDevice, clock: Clock) -> Faulty:
        made = Faulty(device, clock, rest_w=REST_W)
        made.dies_s, made.back_s = dies_s, back_s
        return made

    return meter


def measurements(outcome: Outcome) -> list[Measurement]:
    found = [event.measurement for event in announced(outcome, events.BaselineMeasured)]
    return found + [event.trial.measurement for event in outcome.trials if event.trial.measurement is not None]


def node_w(cap_w: float) -> float:
    return PROFILE.power_w(cap_w) + REST_W


@pytest.mark.slow
@pytest.mark.parametrize(
    "meter",
    [metered(), metered(2.0), lambda device, clock: ConstantPower(REST_W, clock)],
    ids=["fast meter", "slow meter", "constant"],
)
def test_the_node_and_the_gpus_are_measured_as_they_are(meter: Callable[[SimulatedDevice, Clock], PowerSource]) -> None:
    outcome = tune(SimulatedJob(profile=PROFILE), ENERGY, "model", meter=meter, stop_when_held=True)
    found = measurements(outcome)
    assert len(found) >= 3
    for one in found:
        assert one.power_w == pytest.approx(node_w(one.setting[0]), abs=4 * one.power_w * one.power_rel_stderr + 3.0)
        assert one.gpu.power_w == pytest.approx(PROFILE.power_w(one.setting[0]), rel=0.02)


@pytest.mark.slow
def test_what_burns_around_the_gpu_asks_for_a_higher_cap() -> None:
    by_node = tune(SimulatedJob(profile=PROFILE), ENERGY, "model", meter=metered(), stop_when_held=True)
    by_gpu = tune(SimulatedJob(profile=PROFILE), ENERGY, "model", stop_when_held=True)
    best_w = min(by_node.grid, key=lambda cap_w: node_w(cap_w) * PROFILE.time_s(cap_w))
    assert by_node.final_cap_w > by_gpu.final_cap_w + 20.0
    kept = node_w(by_node.final_cap_w) * PROFILE.time_s(by_node.final_cap_w)
    assert kept == pytest.approx(node_w(best_w) * PROFILE.time_s(best_w), rel=0.01)


@pytest.mark.slow
def test_a_meter_that_is_too_slow_for_a_trial_ends_with_the_reason() -> None:
    outcome = tune(SimulatedJob(profile=PROFILE), ENERGY, "model", meter=metered(20.0), end_s=600.0)
    assert measurements(outcome) == []
    assert any(
        "readings of the node's power within 60 s, 8 are needed; pass a larger --trial" in text
        for text in warnings(outcome)
    )


def test_a_gap_costs_a_trial_a_new_window_and_no_number() -> None:
    outcome = tune(SimulatedJob(profile=PROFILE), ENERGY, "model", meter=faulty(25.0, 40.0), stop_when_held=True)
    assert outcome.decided.confirmed
    for one in measurements(outcome):
        assert not (one.start_s < 40.0 and one.start_s + one.duration_s > 25.1)


@pytest.mark.slow
def test_a_meter_that_dies_ends_the_search_at_the_limit_found_on_arrival() -> None:
    job = SimulatedJob(profile=PROFILE, iterations=1000)
    outcome = tune(job, ENERGY, "model", meter=faulty(20.0))
    failed = [event.trial for event in outcome.trials if event.trial.state is TrialState.FAILED]
    assert failed
    assert {trial.reason for trial in failed} == {"for 60 s: the node's power is not known"}
    assert outcome.final_cap_w == 260.0
    tally = announced(outcome, events.Tally)[-1]
    assert tally.counted_s < 0.1 * tally.elapsed_s  # nothing is claimed of what was not read


@pytest.mark.slow
def test_a_meter_that_was_never_heard_is_named_as_the_reason() -> None:
    outcome = tune(SimulatedJob(profile=PROFILE, iterations=400), ENERGY, "model", meter=faulty(0.0))
    assert warnings(outcome) == [
        "no iteration ended without a missing power reading or thermal throttling within 120 s, so nothing is tuned; "
        "see to the sensors and the cooling, or pass a larger --wait if that takes its time"
    ]
