"""The simulated device against the profile that it plays, and against its own truth."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from autocap.clock import VirtualClock
from autocap.devices.base import Device, LimitPort
from autocap.devices.model.profiles import load
from autocap.devices.model.sensor import SensorModel
from autocap.records import Reading
from autocap.testing.devices import DeviceContract, DeviceUnderTest
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import DEEP, NEARLY_FLAT, SHALLOW, Phase, SimulatedJob
from autocap.testing.simulated.node import LimitChange, SimulatedNode

PROFILE = load("quadro-rtx-6000/resnet50")
STEADY = SimulatedJob(profile=PROFILE, jitter=0.0)
SHARP = SensorModel(update_s=0.02, window_s=0.02, update_jitter=0.0, noise=0.0)


class Stand:
    """A simulated device with its clock and limits at hand."""

    def __init__(self, job: SimulatedJob = STEADY, node: SimulatedNode | None = None, seed: int = 1) -> None:
        self.clock = VirtualClock()
        self.device = SimulatedDevice(self.clock, job, node, seed=seed)
        self.limits = self.device.limits()

    def advance(self, seconds: float) -> float:
        self.clock.wait_until(self.clock.now() + seconds)
        return self.clock.now()

    def set_limit(self, cap_w: float, gpu: int = 0) -> None:
        self.limits.set_limit_w(self.device.gpus[gpu].uuid, cap_w)

    def series(self, seconds: float, every_s: float = 0.05) -> list[Reading]:
        """Readings of the first GPU, in steps of time."""
        readings = []
        for _ in range(round(seconds / every_s)):
            self.advance(every_s)
            readings.append(self.device.read()[0])
        return readings


class TestOneSimulatedGpu(DeviceContract):
    node = SimulatedNode()

    @contextmanager
    def make(self) -> Iterator[DeviceUnderTest]:
        stand = Stand(SimulatedJob(profile=PROFILE), self.node)
        device: Device = stand.device
        limits: LimitPort = stand.limits
        yield DeviceUnderTest(device, limits, stand.clock.now, stand.advance)


class TestFourSimulatedGpus(TestOneSimulatedGpu):
    node = SimulatedNode(gpus=4, efficiency_spread=0.03, sensor_gain_spread=0.02)


@pytest.mark.parametrize("cap_w", [260.0, 200.0, 150.0, 110.0])
@pytest.mark.parametrize("waveform", [DEEP, SHALLOW, NEARLY_FLAT], ids=["deep", "shallow", "nearly flat"])
def test_period_and_power_at_a_cap_are_the_profiles(cap_w: float, waveform: tuple[Phase, ...]) -> None:
    stand = Stand(SimulatedJob(profile=PROFILE, jitter=0.02, waveform=waveform))
    stand.set_limit(cap_w)
    start_s = stand.advance(2.0)
    end_s = stand.advance(400 * PROFILE.time_s(cap_w))
    iterations = stand.device.true_iterations(start_s, end_s)
    (energy_j,) = stand.device.true_energy_j(start_s, end_s)
    assert (end_s - start_s) / iterations == pytest.approx(PROFILE.time_s(cap_w), rel=4 * 0.02 / 400**0.5)
    assert energy_j / (end_s - start_s) == pytest.approx(PROFILE.power_w(cap_w), rel=0.002)


@pytest.mark.slow
def test_readings_and_counter_agree_with_the_true_energy() -> None:
    stand = Stand(SimulatedJob(profile=PROFILE), SimulatedNode(sensor=SHARP))
    start_s, before = stand.clock.now(), stand.device.read()[0]
    readings = stand.series(200.0, every_s=0.02)
    (true_j,) = stand.device.true_energy_j(start_s, stand.clock.now())
    read_w = np.mean([reading.power_w for reading in readings])
    counted_j = (readings[-1].energy_j or 0.0) - (before.energy_j or 0.0)
    assert read_w * 200.0 == pytest.approx(true_j, rel=0.002)
    assert counted_j == pytest.approx(true_j, rel=0.002)


def test_the_step_counter_gives_the_exact_end_of_the_last_iteration_at_any_time_that_has_passed() -> None:
    stand = Stand()
    period_s = PROFILE.time_s(260.0)
    stand.advance(100.3 * period_s)
    assert stand.device.steps(0.9 * period_s) is None
    for t_s, count in ((4.5 * period_s, 4), (stand.clock.now(), 100)):
        reading = stand.device.steps(t_s)
        assert (reading.count, reading.t_s) == (count, pytest.approx(count * period_s))


def test_steps_are_the_true_iterations_across_changes_of_the_cap() -> None:
    stand = Stand(SimulatedJob(profile=PROFILE, jitter=0.05, jitter_correlation=0.7))
    for cap_w in (150.0, 260.0, 110.0, 200.0):
        stand.set_limit(cap_w)
        stand.advance(7.7)
        reading = stand.device.steps(stand.clock.now())
        assert reading.t_s <= stand.clock.now()
        assert stand.device.true_iterations(0.0, reading.t_s) == pytest.approx(reading.count, abs=1e-6)


def test_an_iteration_that_a_cap_change_cuts_keeps_what_it_has_done() -> None:
    stand = Stand(node=SimulatedNode(call_s=(0.0, 0.0), lag_s=(0.0, 0.0)))
    fast_s, slow_s = PROFILE.time_s(260.0), PROFILE.time_s(110.0)
    stand.advance(3.25 * fast_s)
    stand.set_limit(110.0)
    stand.advance(2.0)
    reading = stand.device.steps(3.25 * fast_s + 0.75 * slow_s + 0.03)
    assert (reading.count, reading.t_s) == (4, pytest.approx(3.25 * fast_s + 0.75 * slow_s, abs=0.025))


def test_jitter_is_what_was_asked_for_and_so_is_its_correlation() -> None:
    stand = Stand(SimulatedJob(profile=PROFILE, jitter=0.06, jitter_correlation=0.8))
    stand.advance(2000.0)
    ends_s = np.array([stand.device.steps(t_s).t_s for t_s in np.arange(2.0, 2000.0, 0.2)])  # type: ignore[union-attr]  # after the first step
    periods_s = np.diff(np.unique(ends_s))
    assert np.std(periods_s) / np.mean(periods_s) == pytest.approx(0.06, rel=0.1)
    assert np.corrcoef(periods_s[1:], periods_s[:-1])[0, 1] == pytest.approx(0.8, abs=0.05)


def test_a_new_limit_takes_a_call_and_a_lag_to_hold() -> None:
    node = SimulatedNode(sensor=SHARP, call_s=(0.015, 0.015), lag_s=(0.2, 0.2))
    stand = Stand(SimulatedJob(profile=PROFILE, jitter=0.0, waveform=NEARLY_FLAT), node)
    before_s = stand.advance(3.0)
    stand.set_limit(130.0)
    assert stand.clock.now() == pytest.approx(before_s + 0.015)
    assert stand.device.read()[0].enforced_w == 130.0
    power_w = [reading.power_w or 0.0 for reading in stand.series(0.4, every_s=0.02)]
    assert power_w[0] > 0.9 * PROFILE.power_w(260.0)
    assert power_w[5] == pytest.approx((PROFILE.power_w(260.0) + PROFILE.power_w(130.0)) / 2, rel=0.15)
    assert power_w[-1] == pytest.approx(PROFILE.power_w(130.0), rel=0.01)


def test_low_caps_flatten_the_waveform_but_not_its_mean() -> None:
    stand = Stand(node=SimulatedNode(sensor=SHARP))
    stand.advance(2.0)
    free_w = [reading.power_w or 0.0 for reading in stand.series(20.0, every_s=0.02)]
    stand.set_limit(120.0)
    stand.advance(2.0)
    held_w = [reading.power_w or 0.0 for reading in stand.series(20.0, every_s=0.02)]
    assert max(held_w) <= 1.06 * 120.0
    assert max(free_w) > 1.1 * np.mean(free_w)


def test_somebody_else_sets_the_limit_at_the_given_time() -> None:
    stand = Stand(node=SimulatedNode(changes=(LimitChange(t_s=5.0, cap_w=180.0),)))
    stand.advance(4.99)
    assert stand.device.read()[0].requested_w == 260.0
    stand.advance(0.01)
    assert stand.device.read()[0].requested_w == 180.0
    assert stand.limits.requested_w(stand.device.gpus[0].uuid) == 180.0
    start_s = stand.advance(1.0)
    end_s = stand.advance(100.0)
    assert 100.0 / stand.device.true_iterations(start_s, end_s) == pytest.approx(PROFILE.time_s(180.0), rel=0.001)


def test_a_change_by_somebody_else_is_not_missed_while_our_own_call_lasts() -> None:
    stand = Stand(node=SimulatedNode(call_s=(0.02, 0.02), changes=(LimitChange(t_s=5.01, cap_w=180.0, gpu=1),), gpus=2))
    stand.advance(5.0)
    stand.set_limit(200.0)
    assert [reading.requested_w for reading in stand.device.read()] == [200.0, 180.0]


def test_a_job_with_an_end_stops_there_and_its_gpus_go_idle() -> None:
    stand = Stand(SimulatedJob(profile=PROFILE, jitter=0.0, iterations=7), SimulatedNode(sensor=SHARP))
    period_s = PROFILE.time_s(260.0)
    stand.advance(6.9 * period_s)
    assert not stand.device.job_ended
    stand.advance(0.2 * period_s)
    assert stand.device.job_ended
    stand.advance(60.0)
    reading = stand.device.steps(stand.clock.now())
    assert (reading.count, reading.t_s) == (7, pytest.approx(7 * period_s))
    assert stand.device.read()[0].power_w == pytest.approx(PROFILE.idle_w)


def test_stalls_take_time_at_idle_power() -> None:
    stand = Stand(SimulatedJob(profile=PROFILE, jitter=0.0, stall_chance=0.3, stall_s=0.4))
    end_s = stand.advance(1000.0)
    iterations = stand.device.true_iterations(0.0, end_s)
    assert 1000.0 / iterations == pytest.approx(PROFILE.time_s(260.0) + 0.3 * 0.4, rel=0.03)
    (energy_j,) = stand.device.true_energy_j(0.0, end_s)
    busy_s = iterations * PROFILE.time_s(260.0)
    assert energy_j == pytest.approx(busy_s * PROFILE.power_w(260.0) + (1000.0 - busy_s) * PROFILE.idle_w, rel=0.005)


def test_the_slowest_gpu_sets_the_pace_and_the_others_wait() -> None:
    stand = Stand(node=SimulatedNode(gpus=2))
    stand.set_limit(120.0, gpu=1)
    start_s = stand.advance(2.0)
    end_s = stand.advance(200.0)
    assert 200.0 / stand.device.true_iterations(start_s, end_s) == pytest.approx(PROFILE.time_s(120.0), rel=0.001)
    waiting_j, busy_j = stand.device.true_energy_j(start_s, end_s)
    assert busy_j / 200.0 == pytest.approx(PROFILE.power_w(120.0), rel=0.002)
    assert PROFILE.idle_w < waiting_j / 200.0 < PROFILE.power_w(260.0)


def test_the_same_seed_gives_the_same_readings_and_another_gives_others() -> None:
    job = SimulatedJob(profile=PROFILE, jitter=0.03)
    runs = []
    for seed in (3, 3, 4):
        stand = Stand(job, SimulatedNode(gpus=2, efficiency_spread=0.02), seed=seed)
        first = [reading.power_w for reading in stand.series(5.0)]
        stand.set_limit(150.0)
        runs.append([*first, *(reading.power_w for reading in stand.series(5.0))])
    assert runs[0] == runs[1]
    assert runs[0] != runs[2]


@pytest.mark.parametrize("every_s", [0.013, 0.9])
def test_when_it_is_read_changes_nothing(every_s: float) -> None:
    job = SimulatedJob(profile=PROFILE, jitter=0.03, jitter_correlation=0.5, stall_chance=0.05)
    often, never = (Stand(job, SimulatedNode(leakage=0.03, utilisation=True)) for _ in range(2))
    for cap_w in (150.0, 260.0, 120.0):
        for t_s in np.arange(often.clock.now(), often.clock.now() + 20.0, every_s):
            often.clock.wait_until(float(t_s))
            often.device.read()
            often.device.steps(float(t_s))
        never.clock.wait_until(often.clock.now())
        often.set_limit(cap_w)
        never.set_limit(cap_w)
    assert often.device.read()[0].power_w == pytest.approx(never.device.read()[0].power_w, rel=1e-9)
    assert often.device.read()[0].utilisation == never.device.read()[0].utilisation
    end_s = often.clock.now()
    assert often.device.true_energy_j(0.0, end_s) == pytest.approx(never.device.true_energy_j(0.0, end_s), rel=1e-9)
    assert often.device.true_iterations(0.0, end_s) == pytest.approx(never.device.true_iterations(0.0, end_s), rel=1e-9)


@pytest.mark.parametrize("cap_w", [260.0, 150.0])
def test_utilisation_is_the_share_of_time_in_which_the_card_does_not_wait_for_the_host(cap_w: float) -> None:
    node = SimulatedNode(sensor=SHARP, utilisation=True, limit_w=cap_w)
    waits, busy = Phase(share=0.25, power=0.4), Phase(share=0.75, power=1.2)
    readings = Stand(SimulatedJob(profile=PROFILE, waveform=(waits, busy)), node).series(120.0)
    shown = np.array([reading.utilisation for reading in readings], dtype=np.float64)
    assert np.mean(shown) == pytest.approx(0.75, abs=0.02)
    assert np.ptp(shown) > 0.2  # a sixth of a second is less than an iteration
    np.testing.assert_allclose(shown, np.round(shown, 2), atol=1e-12)
