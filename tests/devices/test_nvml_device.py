"""The NVML device on an emulated library: which sources it uses, and what it makes of readings."""

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from autocap.devices.nvml.card import EnergyTrace, PowerQuery, PowerTrace
from autocap.devices.nvml.library import open_library
from autocap.devices.nvml.probe import probe_sensor
from autocap.devices.nvml.state import NvmlError
from autocap.errors import DeviceError, DeviceUnavailable, LimitRefused
from autocap.testing.devices import DeviceContract, DeviceUnderTest
from autocap.testing.nvml import Episode, Fault, Limits, Trouble, machine
from tests.doubles.nvml_stand import PROFILE, one_card, stand

LOST, TIMEOUT, UNKNOWN = 15, 10, 999


class TestOneNvmlGpu(DeviceContract):
    machine = machine(PROFILE)

    @contextmanager
    def make(self) -> Iterator[DeviceUnderTest]:
        with stand(self.machine) as made:
            device = made.device()
            yield DeviceUnderTest(device, device.limits(), made.clock.now, made.advance)


class TestThreeNvmlGpus(TestOneNvmlGpu):
    machine = machine(PROFILE, gpus=3, arrivals_mw=[200_000 + 4_123 * gpu for gpu in range(3)])


class TestAnOldDriverWithoutFields(TestOneNvmlGpu):
    _missing = ("nvmlDeviceGetFieldValues", "nvmlDeviceGetCurrentClocksEventReasons")
    machine = one_card(missing=_missing, instant_scope=None)


class TestASampleBuffer(TestOneNvmlGpu):
    machine = one_card(instant_scope=None, samples_buffer=True, sensor="v100")


class TestMeasuredStamps(TestOneNvmlGpu):
    machine = one_card(measured_stamps=True)


MODULE = "GPU 0 reports the power of its whole module, CPU included"


@pytest.mark.parametrize(
    ("changes", "source", "notes"),
    [
        ({}, PowerQuery.INSTANT, ()),
        ({"instant_scope": 1}, PowerQuery.MODULE, (MODULE,)),
        ({"instant_scope": None, "samples_buffer": True}, PowerQuery.SAMPLES, ()),
        ({"instant_scope": None}, PowerQuery.USAGE, ()),
        ({"missing": ("nvmlDeviceGetFieldValues",)}, PowerQuery.USAGE, ()),
    ],
    ids=str,
)
def test_power_comes_from_the_best_source_that_answers(changes, source, notes) -> None:
    with stand(one_card(**changes)) as made:
        device = made.device()
    assert (device.probes[0].source, device.notes()) == (source, notes)
    if changes == {"instant_scope": None}:  # its window is not known: taken for the slow average
        assert (device.sensor.window_s, device.sensor.settle_s) == (1.0, 2.0)


@pytest.mark.slow
def test_a_sensor_that_reads_zero_when_it_is_opened_is_used_once_it_reads_more() -> None:
    with stand(one_card(episodes=(Episode(trouble=Trouble.ZERO, until_s=1.0),))) as made:
        device = made.device()
        assert device.probes[0].source is PowerQuery.INSTANT
        assert device.read()[0].power_w is not None


def test_a_gpu_without_any_power_reading_is_refused() -> None:
    missing = ("nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage", "nvmlDeviceGetSamples")
    none = pytest.raises(DeviceUnavailable, match=r"GPU 0 offers no power reading at all.*--gpus")
    with stand(one_card(missing=missing)) as made, none:
        made.device()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sensor", "update_s"), [("v100", 0.020), ("turing", 0.101), ("a100", 0.100), ("rtx-4090", 0.100)]
)
def test_the_refresh_period_is_measured(sensor, update_s) -> None:
    with stand(one_card(sensor=sensor)) as made:
        (probe,) = probe_sensor(made.library, [made.uuid()], made.clock)
        assert probe.update_s == pytest.approx(update_s, rel=0.05)
        sensor = made.device().sensor
        assert (sensor.update_s, sensor.counter_s) == (pytest.approx(update_s, rel=0.05), pytest.approx(0.1, rel=0.01))


@pytest.mark.slow
def test_where_power_stands_still_the_usual_refresh_period_is_assumed() -> None:
    with stand(one_card(episodes=(Episode(trouble=Trouble.STUCK),))) as made:
        device = made.device()
        assert device.probes[0].update_s is None
        assert device.sensor.update_s == 0.1


def test_a_wall_clock_that_is_set_moves_no_stamp_beyond_the_present() -> None:
    ahead_s = 0.0
    with stand(one_card(measured_stamps=True), lambda: ahead_s) as made:
        device, before_s = made.device(), 0.0
        for ahead_s in (0.0, 3600.0, -3600.0, 0.3, 0.0):  # noqa: B007  the clock above reads it
            (reading,) = made.series(device, 0.2, every_s=0.2)
            assert before_s <= reading.t_s <= made.clock.now()
            before_s = reading.t_s


@pytest.mark.parametrize(
    ("changes", "watched_s"),
    [
        ({"sensor": "v100"}, 1.0),
        ({"sensor": "a100"}, 1.0),
        ({"sensor": "v100", "missing": ("nvmlDeviceGetTotalEnergyConsumption",)}, 1.0),
        ({"sensor": "v100", "energy_gain": 1.1}, 2.0),  # in doubt: looked at for longer, and kept
        ({"sensor": "average-1s"}, 4.0),  # an average that rises still, beside a counter: seen once more
    ],
)
def test_a_probe_takes_no_longer_than_its_findings_need(changes, watched_s) -> None:
    with stand(one_card(**changes)) as made:
        assert made.device().probes[0].counter_trouble is None
        assert made.clock.now() == pytest.approx(watched_s, abs=0.02)


@pytest.mark.slow
def test_the_time_of_a_probe_is_bounded() -> None:
    with stand(one_card(energy_gain=0.5)) as made:
        made.device()
        assert made.clock.now() < 3 * 2.0 + 0.1


def test_a_pending_signal_ends_the_probe_and_is_left_to_whoever_waits_for_it() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    try:
        signal.raise_signal(signal.SIGUSR1)
        with stand() as made:
            device = made.device()
            assert made.clock.now() == 0.0
            assert (device.sensor.update_s, device.notes()) == (0.1, ())
        assert signal.SIGUSR1 in signal.sigpending()
    finally:
        signal.sigtimedwait([signal.SIGUSR1], 0)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR1])


@pytest.mark.slow
def test_the_energy_counter_is_used_where_it_agrees_with_power_and_without_one_there_is_nothing_to_say() -> None:
    with stand() as made:
        device = made.device()
        assert device.probes[0].counter_trouble is None
        readings = made.series(device, 20.0)
        mean_w = (readings[-1].energy_j - readings[0].energy_j) / 19.95
        assert mean_w == pytest.approx(np.mean([reading.power_w for reading in readings]), rel=0.02)
        assert device.notes() == ()
    with stand(one_card(energy_counter=False)) as made:
        device = made.device()
        assert device.read()[0].energy_j is None
        assert not device.probes[0].has_counter
        assert device.notes() == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gain", "said"),
    [
        (0.57, "the energy counter of GPU 0 counts .*so it is not used"),
        (1.4, "the energy counter of GPU 0 counts .*so it is not used"),
        (0.0, "does not move although power is drawn"),
    ],
)
def test_a_counter_that_disagrees_or_stands_still_is_dropped_with_a_warning(gain, said) -> None:
    with stand(one_card(energy_gain=gain)) as made:
        device = made.device()
        assert device.read()[0].energy_j is None
        (note,) = device.notes()
        assert re.search(said, note)


@pytest.mark.parametrize("sensor", ["v100", "turing", "a100", "h100", "average-1s"])
@pytest.mark.parametrize("seed", range(4))
def test_a_counter_off_by_an_ordinary_gain_error_is_kept(sensor, seed) -> None:
    with stand(one_card(energy_gain=1.06, sensor=sensor, seed=seed)) as made:
        assert made.device().probes[0].counter_trouble is None


@pytest.mark.slow
def test_a_repeat_keeps_the_stamp_of_the_reading_it_repeats() -> None:
    with stand(one_card(sensor="turing")) as made:
        readings = made.series(made.device(), 10.0, every_s=0.01)
    stamps = {reading.t_s for reading in readings}
    assert len(stamps) == pytest.approx(10.0 / 0.101, abs=2)
    for stamp_s in stamps:
        assert len({reading.power_w for reading in readings if reading.t_s == stamp_s}) == 1


@pytest.mark.slow
def test_a_driver_s_own_stamps_are_kept_on_the_run_s_clock() -> None:
    with stand(one_card(measured_stamps=True, sensor="turing")) as made:
        device, late_s = made.device(), []
        for _ in range(100):
            (reading,) = made.series(device, 0.03, every_s=0.03)
            late_s.append(made.clock.now() - reading.t_s)
    assert min(late_s) >= 0.0
    assert 0.07 < max(late_s) < 0.12


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (Trouble.ZERO, "the power sensor of GPU 0 reads 0 W; such readings are left out, as gaps"),
        (Trouble.MISSING, "the power sensor of GPU 0 gives no power reading; such readings are left out, as gaps"),
    ],
)
@pytest.mark.parametrize("source", [{}, {"instant_scope": None}], ids=["field", "usage"])
def test_zero_and_missing_readings_are_gaps_with_one_warning(trouble, said, source) -> None:
    with stand(one_card(episodes=(Episode(trouble=trouble, from_s=3.0, until_s=3.5),), **source)) as made:
        device = made.device()
        readings = made.series(device, 2.0)
        assert sum(reading.power_w is None for reading in readings) == pytest.approx(10, abs=1)
        assert all(reading.power_w != 0 for reading in readings)
        notes = device.notes()
        assert said in notes
        assert len(notes) == (2 if trouble is Trouble.MISSING else 1)  # the code that came instead is said as well
        assert device.notes() == ()


@pytest.mark.slow
@pytest.mark.parametrize("counter", [True, False])
def test_a_stuck_sensor_is_a_gap_until_it_moves_again(counter) -> None:
    trouble = Episode(trouble=Trouble.STUCK, from_s=3.0, until_s=13.0)
    with stand(one_card(episodes=(trouble,), energy_counter=counter)) as made:
        device = made.device()
        made.request(150_000)  # so that the stuck reading is wrong
        readings = made.series(device, 14.0)
        missing = [reading.power_w is None for reading in readings]
        assert 60 < sum(missing) < 120
        assert not missing[-1]
        (note,) = device.notes()
        assert "it is stuck" in note


@pytest.mark.slow
def test_a_constant_reading_that_the_counter_confirms_is_no_stuck_one() -> None:
    flat = one_card(energy_counter=True, start_s=1e9, episodes=(Episode(trouble=Trouble.STUCK),))
    with stand(flat) as made:
        readings = made.series(made.device(), 20.0)
        assert all(reading.power_w is not None for reading in readings)


def test_thermal_slowdown_and_power_brake_mark_a_reading_as_throttled() -> None:
    spells = (Episode(trouble=Trouble.THERMAL, from_s=3, until_s=4), Episode(trouble=Trouble.POWER_BRAKE, from_s=5))
    with stand(one_card(episodes=spells)) as made:
        device = made.device()
        seen = [(made.advance(0.5), device.read()[0].throttled)[1] for _ in range(8)]
    assert seen == [False, True, True, False, False, True, True, True]


def test_clocks_utilisation_and_the_binding_cap_are_read() -> None:
    with stand() as made:
        device = made.device()
        free = device.read()[0]
        made.request(120_000)
        made.advance(1.0)
        capped = device.read()[0]
    assert (free.cap_binding, capped.cap_binding) == (False, True)
    assert (free.utilisation, capped.requested_w, capped.enforced_w) == (0.97, 120.0, 120.0)
    assert free.temperature_c == 61.0
    assert capped.sm_clock_hz < free.sm_clock_hz == 1.77e9


@pytest.mark.slow
@pytest.mark.parametrize("code", [LOST, 16])
def test_a_lost_gpu_ends_reading_with_what_to_do(code) -> None:
    with stand(machine(PROFILE, gpus=2)) as made:
        device = made.device()
        device.read()
        made.fail(Fault(code=code, gpu=1, times=None))
        failed = r"reading the .* of GPU 1 failed with (GPU_IS_LOST|RESET_REQUIRED)"
        with pytest.raises(NvmlError, match=failed) as lost:
            device.read()
    assert lost.value.lost
    assert isinstance(lost.value, DeviceError)


@pytest.mark.slow
@pytest.mark.parametrize("code", [TIMEOUT, UNKNOWN, 777])
def test_any_other_failure_of_any_call_is_a_gap_at_most(code) -> None:
    with stand() as made:
        device = made.device()
        for after in range(8):
            made.fail(Fault(code=code, after=after, times=3))
            made.series(device, 0.5)
            (last,) = device.read()
            assert last.power_w is not None
            assert last.energy_j is not None
        assert all("failed with" in note or "left out" in note for note in device.notes())


def test_energy_is_held_where_the_counter_does_not_answer_once() -> None:
    with stand() as made:
        device = made.device()
        before = device.read()[0].energy_j
        made.fail(Fault(code=TIMEOUT, function="nvmlDeviceGetTotalEnergyConsumption"))
        made.advance(0.5)
        assert device.read()[0].energy_j == before
        assert device.read()[0].energy_j > before


def test_devices_that_are_observed_have_no_setter() -> None:
    with stand() as made:
        device = made.device(observe=True)
        with pytest.raises(DeviceError, match="no limits to set; leave out --observe"):
            device.limits()


@pytest.mark.parametrize("code", [TIMEOUT, 4, LOST])
def test_whether_a_gpu_is_busy_is_not_known_where_that_cannot_be_read(code) -> None:
    with stand(machine(PROFILE)) as made:
        assert made.library.is_busy(made.uuid(0)) is True
        made.fail(Fault(code=code, function="nvmlDeviceGetUtilizationRates", times=None))
        assert made.library.is_busy(made.uuid(0)) is None


def test_a_gpu_whose_limits_may_not_be_read_is_no_laptop_and_the_ways_out_are_named() -> None:
    hidden = Fault(code=4, function="nvmlDeviceGetPowerManagementLimitConstraints", times=None)
    with stand(replace(machine(PROFILE), faults=(hidden,))) as made:
        refusal = made.device().refusal
    assert refusal is not None
    assert refusal.startswith("the driver does not let us read which power limits GPU 0 (")
    assert "run autocap with sudo" in refusal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"mig": True}, "GPU 0 .* is split into MIG instances, which share one power limit; switch MIG off"),
        ({"limits": Limits.UNSUPPORTED}, "GPU 0 .* has no power limit to set, as on many laptops .only the 260 W"),
        (
            {"limits": Limits.UNSUPPORTED, "virtual": True, "denied": ("nvmlDeviceGetVirtualizationMode",)},
            "no power limit to set, as on many laptops and virtual GPUs .only the 260 W",
        ),
        ({"limits": Limits.UNSUPPORTED, "virtual": True}, "GPU 0 .* is a virtual GPU, whose power limit belongs"),
        ({"min_mw": 260_000}, "GPU 0 .* accepts no limit but 260 W"),
    ],
    ids=["mig", "laptop", "untold", "virtual", "one limit"],
)
def test_gpus_that_take_no_limit_say_why_and_can_be_observed(changes, why) -> None:
    with stand(one_card(**changes)) as made:
        device = made.device()
        assert device.refusal is not None
        with pytest.raises(LimitRefused, match=why):
            device.limits()
        (reading,) = made.device(observe=True).read()
        assert reading.power_w is not None
        assert reading.enforced_w == 260.0


@pytest.mark.slow
def test_persistence_that_is_off_is_said_before_anything_is_set() -> None:
    made_of = machine(PROFILE, gpus=2)
    with stand(made_of.with_card(1, replace(made_of.cards[1], persistence=False))) as made:
        (note,) = made.device().notes()
        assert note.startswith("persistence mode is off on GPU 1: once no program uses it, the driver may unload")
        assert made.device(observe=True).notes() == ()


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("fields", [False, True])
def test_less_that_is_enforced_than_was_requested_is_said_and_both_are_read(later: bool, fields: bool) -> None:
    with stand(one_card(ceiling_mw=None if later else 210_000, limit_fields=fields)) as made:
        device = made.device()
        at_once = device.notes()
        made.change(ceiling_mw=210_000)
        reading = made.series(device, 2.0)[-1]
        assert (reading.requested_w, reading.enforced_w) == (260.0, 210.0)
        (note,) = device.notes() if later else at_once
        assert "holds GPU 0 at 210 W, although 260 W is requested" in note


def test_the_inventory_tells_what_each_gpu_is() -> None:
    made_of = machine(PROFILE, gpus=2, arrivals_mw=[237_123, 199_999])
    with stand(made_of) as made:
        first, second = made.library.inventory()
    assert (first.index, first.minor_number, first.mig, first.obstacle) == (0, 0, False, None)
    assert (second.requested_w, second.enforced_w, second.default_w) == (199.999, 199.999, 260.0)
    assert (first.persistence, first.driver) == (True, "575.57.08")
    assert first.name == "Quadro RTX 6000 (emulated NVML)"
    assert (first.cap_range.min_w, first.cap_range.max_w) == (100.0, 260.0)


def test_a_gpu_that_cannot_be_opened_is_left_out_and_named() -> None:
    with stand(machine(PROFILE, gpus=2)) as made:
        made.fail(Fault(code=LOST, gpu=0, times=None))
        assert [gpu.index for gpu in made.library.inventory()] == [1]
        (why,) = made.library.unreadable
        assert "GPU 0 failed with GPU_IS_LOST" in why
        with pytest.raises(DeviceUnavailable, match=r"GPU GPU-00000000.* cannot be opened; there are GPU-00000001"):
            made.device(gpus=[0])


@pytest.mark.parametrize("missing", [(), ("nvmlDeviceGetComputeRunningProcesses_v3",)])
def test_compute_processes_are_listed_by_gpu(missing) -> None:
    made_of = machine(PROFILE, gpus=3)
    made_of = replace(made_of, job_pid=4711, job_gpus=(0, 1), missing=missing)
    with stand(made_of.with_card(1, replace(made_of.cards[1], pids=(17, 18)))) as made:
        pids = [made.library.compute_pids(made.uuid(gpu)) for gpu in range(3)]
    assert pids == ([(4711,), (4711, 17, 18), ()] if not missing else [None] * 3)


def test_without_a_driver_the_library_says_what_to_install() -> None:
    with pytest.raises(DeviceUnavailable, match=r"no NVIDIA GPU can be used: .*libnvidia-ml.so.1 is missing; install"):
        stand(replace(machine(PROFILE), has_driver=False)).__enter__()


@pytest.mark.parametrize(("code", "name"), [(9, "DRIVER_NOT_LOADED"), (18, "LIB_RM_VERSION_MISMATCH"), (4, "NO_PERM")])
def test_a_driver_that_does_not_work_is_named(code, name) -> None:
    fault = Fault(code=code, function="nvmlInitWithFlags", times=None)
    with pytest.raises(DeviceUnavailable, match=f"opening NVML failed with {name}"), stand(one_card(faults=(fault,))):
        pass


def test_closing_the_library_twice_is_allowed() -> None:
    with stand() as made:
        made.library.close()
        again = open_library()
        again.close()


@pytest.mark.slow
def test_readings_are_of_the_gpus_asked_for_in_that_order() -> None:
    with stand(machine(PROFILE, gpus=3, arrivals_mw=[200_001, 200_002, 200_003])) as made:
        device = made.device(gpus=[2, 0])
        assert [gpu.index for gpu in device.gpus] == [2, 0]
        assert [reading.requested_w for reading in device.read()] == [200.003, 200.001]


def test_a_call_that_takes_seconds_is_no_counter_and_no_sensor_that_is_stuck() -> None:
    counter, sensor = EnergyTrace(), PowerTrace(0.1)
    counter.expect(0.0)
    for t_s in (0.1, 0.2, 6.3, 6.4, 6.5):  # what was read just before such a call may be read again just after it
        assert counter.take(t_s, 100.0, 50.0) == 100.0
        assert sensor.take(t_s, 50.0, energy_j=None, busy=True)[1] == 50.0
    for tick in range(60):
        t_s = 7.0 + tick / 10
        counted_j = counter.take(t_s, 100.0, 50.0)
        _, power_w = sensor.take(t_s, 50.0, energy_j=None, busy=True)
    assert (counted_j, power_w) == (None, None)
