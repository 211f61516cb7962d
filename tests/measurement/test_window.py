from dataclasses import replace

import numpy as np
import pytest

from autocap.measurement.batches import Clocks, batch_errors, pool, student_factor
from autocap.measurement.energy import EnergyMeter
from autocap.measurement.steadiness import SteadinessWatch
from autocap.measurement.window import Floats, Window
from autocap.progress import Mark, StepProgress
from autocap.records import NodeReading, Reading, Sample, StepReading
from tests.doubles.feeds import Meter, measurement, metered, samples


def collect(window: Window, **job: float) -> Window:
    for one in metered(samples(**job), StepProgress()):  # type: ignore[arg-type]
        window.add(one)
    return window


def at_200_w(t_s: float) -> Sample:
    return Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=200.0),))


def test_a_constant_job_is_measured_exactly() -> None:
    found = collect(Window((200.0,)), seconds=20.0, period_s=0.5, power_w=200.0).measure()
    assert (found.period_s, found.energy_per_iteration_j) == (pytest.approx(0.5), pytest.approx(100.0))
    assert found.power_w == pytest.approx(200.0)
    assert found.iterations == 39  # the first mark only begins the window
    assert found.energy_rel_stderr == pytest.approx(0.0, abs=1e-9)


def test_too_few_iterations_give_no_measurement() -> None:
    assert collect(Window((200.0,)), seconds=4.4, period_s=0.5).measure() is None
    assert collect(Window((200.0,)), seconds=4.6, period_s=0.5).measure() is not None


def test_constant_power_is_integrated_up_to_both_ends_although_the_sensor_repeats_itself() -> None:
    meter = EnergyMeter()
    for i in range(201):  # the sensor never refreshes: 300 W for 20 s is 6000 J all the same
        meter.add(Sample(t_s=0.1 * i, readings=(Reading(t_s=0.0, power_w=300.0),)))
    assert meter.energy_j == pytest.approx(6000.0)


def test_a_missing_reading_is_a_gap_and_breaks_the_window() -> None:
    window = collect(Window((200.0,)), seconds=10.0)
    window.add(Meter().of(Sample(t_s=10.05, readings=(Reading(t_s=10.05, power_w=None),))))
    found = window.measure()
    assert not found.valid
    assert found.reason == "a power reading is missing"


def counted(*shown: tuple[Reading, ...]) -> Window:
    """A window of a job whose devices show these readings in turn, sample by sample of 0.1 s with a step each."""
    window, progress, meter = Window((200.0,) * len(shown[0])), StepProgress(), Meter()
    for i in range(200):
        readings = tuple(replace(one, t_s=0.1 * i) for one in shown[i % len(shown)])
        sample = Sample(t_s=0.1 * i, readings=readings, steps=StepReading(count=i + 1, t_s=0.1 * i))
        window.add(meter.of(sample, progress.marks(sample)))
    return window


def test_whether_the_cap_binds_is_the_majority_of_what_the_driver_said() -> None:
    said = [(Reading(t_s=0.0, power_w=100.0, cap_binding=binds),) for binds in (False, True, True)]
    assert counted(*said).measure().cap_binding is True


def clocked(*clocks_hz: tuple[float | None, ...]) -> Window:
    """A window of a job whose devices show these clocks in turn."""
    return counted(*(tuple(Reading(t_s=0.0, power_w=100.0, sm_clock_hz=hz) for hz in some) for some in clocks_hz))


def test_the_clock_is_the_mean_of_the_slowest_device_at_each_moment() -> None:
    found = clocked((1.2e9, 1.5e9), (1.6e9, 1.4e9)).measure()
    assert found.sm_clock_hz == pytest.approx(1.3e9)
    longer = replace(found, duration_s=3 * found.duration_s, sm_clock_hz=0.9e9)
    assert pool([found, longer]).sm_clock_hz == pytest.approx(1.0e9)


def test_the_clock_before_the_window_began_is_not_in_its_mean() -> None:
    window = clocked(*[(0.3e9,)] * 100, *[(1.5e9,)] * 100)
    window.trim(10.0)
    assert window.measure().sm_clock_hz == pytest.approx(1.5e9)


@pytest.mark.parametrize("missing", [None, 0.0])
def test_a_clock_that_not_all_devices_tell_at_every_moment_is_unknown(missing: float | None) -> None:
    found = clocked((1.2e9, 1.5e9), (1.2e9, missing)).measure()
    assert found.sm_clock_hz is None
    known = replace(found, sm_clock_hz=1.2e9)
    assert pool([known, found]).sm_clock_hz is None


def noisy(rng: np.random.Generator, iterations: int, rho: float) -> tuple[Floats, Floats, Floats]:
    noise = rng.normal(size=iterations)
    for i in range(1, iterations):
        noise[i] = rho * noise[i - 1] + np.sqrt(1 - rho**2) * noise[i]
    times = 1 + 0.03 * noise
    energies = times * (1 + 0.01 * rng.normal(size=iterations))
    t_s, e_j = (np.concatenate([[0], np.cumsum(each)]) for each in (times, energies))
    return t_s, e_j, np.arange(iterations + 1.0)


@pytest.mark.parametrize(("iterations", "rho"), [(10, 0.0), (40, 0.0), (40, 0.3), (100, 0.6)])
def test_the_stated_error_covers_the_truth_at_two_sigma(iterations: int, rho: float) -> None:
    rng = np.random.default_rng(3)
    covered = 0
    for _ in range(400):
        t_s, e_j, counts = noisy(rng, iterations, rho)
        covered += abs(t_s[-1] / counts[-1] - 1) < 2 * batch_errors(t_s, e_j, counts).time
    assert 0.90 <= covered / 400 <= 0.99


def test_energy_and_time_errors_are_found_to_be_correlated() -> None:
    errors = batch_errors(*noisy(np.random.default_rng(5), 400, 0.0))
    assert errors.correlation > 0.8
    assert errors.power < 0.5 * errors.energy  # what they share cancels in their quotient


def test_pooling_weighs_windows_by_their_iterations_and_shrinks_the_error() -> None:
    a = measurement(100.0, 0.5, iterations=100, energy_error=0.01, period_error=0.01)
    b = measurement(103.0, 0.5, iterations=300, energy_error=0.01, period_error=0.01)
    both = pool([a, b])
    assert (both.energy_per_iteration_j, both.iterations) == (pytest.approx(102.25), 400)
    more = student_factor(14) / student_factor(7)  # two errors of eight batches each are known better than one
    assert both.period_rel_stderr == pytest.approx(more * 0.01 * np.hypot(0.25, 0.75))


def test_a_pause_between_marks_of_the_same_count_is_left_out() -> None:
    window, meter = Window((200.0,)), Meter()
    for sample in samples(seconds=40.0, power_w=200.0):
        window.add(meter.of(sample))
    early = [Mark(t_s=1.0 + 0.5 * i, iterations=float(i)) for i in range(11)]
    late = [Mark(t_s=26.0 + 0.5 * i, iterations=10.0 + i) for i in range(11)]
    window.add(meter.of(at_200_w(40.05), early + late))
    found = window.measure()
    assert (found.period_s, found.duration_s) == (pytest.approx(0.5), pytest.approx(10.0))
    assert found.energy_per_iteration_j == pytest.approx(100.0)


def test_a_window_shows_to_the_last_digit_the_same_however_long_the_run_was_metered_before() -> None:
    def at(t_s: float) -> Sample:
        return Sample(t_s=t_s, readings=tuple(Reading(t_s=t_s, power_w=100.1 + t_s % 0.7 * gpu) for gpu in range(3)))

    metered_for_long, fresh = Meter(), Meter()
    for tick in range(1000):
        metered_for_long.of(at(0.1 * tick))
    found = []
    for meter in (metered_for_long, fresh):
        window = Window((200.0,) * 3)
        for tick in range(1000, 1400):
            t_s = 0.1 * tick
            window.add(meter.of(at(t_s), [Mark(t_s=t_s, iterations=tick / 5)] if tick % 5 == 0 else ()))
        found.append(window.measure())
    assert found[0] is not None
    assert found[0] == found[1]


def node_window(refresh_s: float, noise: float, seed: int, *, seconds: float = 20.0) -> Window:
    """A window over a job of constant GPU power, beside a meter of the whole node that reads seldom."""
    rng, window = np.random.default_rng(seed), Window((200.0,))
    progress, meter = StepProgress(), Meter()
    stamp_s, power_w = -refresh_s, 0.0
    for sample in samples(seconds=seconds, period_s=0.25):
        if sample.t_s - stamp_s >= refresh_s - 1e-9:
            stamp_s, power_w = sample.t_s, 800.0 * (1 + noise * rng.standard_normal())
        with_node = replace(sample, node=NodeReading(t_s=stamp_s, power_w=power_w, whole=True))
        window.add(meter.of(with_node, progress.marks(with_node)))
    return window


def test_the_nodes_energy_is_measured_with_the_gpus_beside_it() -> None:
    found = node_window(1.0, 0.0, 0).measure()
    assert (found.power_w, found.energy_per_iteration_j) == (pytest.approx(800.0), pytest.approx(200.0))
    assert (found.gpu.power_w, found.of_gpus().energy_per_iteration_j) == (pytest.approx(200.0), pytest.approx(50.0))
    both = pool([found, found])
    assert (both.power_w, both.gpu.power_w) == (pytest.approx(800.0), pytest.approx(200.0))


def test_a_window_with_fewer_fresh_readings_than_batches_is_none_however_many_iterations_it_has() -> None:
    window = node_window(3.0, 0.05, 0)
    assert window.iterations == 79
    assert window.measure() is None
    assert window.shortage() == "6 readings of the node's power"
    assert node_window(3.0, 0.05, 0, seconds=27.0).measure() is not None


@pytest.mark.slow
def test_the_stated_error_of_a_slow_meter_is_what_windows_scatter_by() -> None:
    found = [node_window(1.0, 0.03, seed).measure() for seed in range(60)]
    powers = [one.power_w for one in found if one is not None]
    stated = [one.power_rel_stderr for one in found if one is not None]
    assert len(powers) == 60
    assert 0.8 < np.mean(stated) / (np.std(powers) / np.mean(powers)) < 1.8


def test_an_iteration_that_holds_something_else_is_left_out() -> None:
    window, meter, ends_s = Window((200.0,)), Meter(), [*np.arange(1.0, 11.5, 0.5), *np.arange(31.0, 41.5, 0.5)]
    for tick in range(901):
        t_s = tick * 0.05
        window.add(meter.of(at_200_w(t_s)))
    marks = [Mark(t_s=float(end_s), iterations=float(count)) for count, end_s in enumerate(ends_s)]
    window.add(meter.of(at_200_w(45.05), marks))
    found = window.measure()
    assert (found.period_s, found.iterations) == (pytest.approx(0.5), 40)


def test_iterations_after_the_last_known_energy_do_not_count_yet() -> None:
    window, meter = Window((200.0,)), Meter()
    for tick in range(159):
        t_s = tick * 0.1
        counter_j = 200.0 * min(t_s, 15.0)  # the counter has not moved for a moment
        marks = [Mark(t_s=t_s, iterations=float(tick // 5))] if tick % 5 == 0 else []
        window.add(meter.of(Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=200.0, energy_j=counter_j),)), marks))
    found = window.measure()
    assert window.iterations == found.iterations == 30
    assert found.power_w == pytest.approx(200.0)


@pytest.mark.parametrize(("later_s", "steady"), [(0.5, True), (0.3, False)])
def test_activity_is_not_steady_while_iterations_become_faster(later_s: float, steady: bool) -> None:
    watch, meter, count, next_s, found = SteadinessWatch((260.0,)), Meter(), 0, 0.5, None
    for tick in range(1, 80):
        t_s = tick * 0.1
        marks = []
        if t_s >= next_s - 1e-9:
            count += 1
            marks = [Mark(t_s=t_s, iterations=float(count))]
            next_s = t_s + (0.5 if count <= 4 else later_s)
        found = found or watch.add(meter.of(at_200_w(t_s), marks))
        if count == 9:
            break
    assert (found is not None) is steady


def test_a_clock_at_rest_is_none_that_the_job_runs_at() -> None:
    clocks = Clocks()
    for number in range(10):
        busy = number % 2 == 0
        reading = Reading(t_s=number, power_w=100.0, sm_clock_hz=1.4e9 if busy else 2.1e8, utilisation=float(busy))
        clocks.add(Sample(t_s=number, readings=(reading,)))
    assert clocks.mean_hz(0.0, 10.0) == 1.4e9
