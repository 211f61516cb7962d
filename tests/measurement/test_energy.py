"""The energy curves: of the GPUs, and of the machine around them.

Running totals: what the job used, and what the iterations that are known of took.
"""

import pytest

from autocap.events import State
from autocap.measurement.energy import EnergyMeter, disturbance, implausible, node_power_w
from autocap.measurement.totals import RunningTotals
from autocap.progress import Mark
from autocap.records import NodeReading, Reading, Sample
from tests.doubles.feeds import Meter


def sample(t_s: float, *, gpu_w: float | None = 100.0, node: NodeReading | None = None, gpus: int = 1) -> Sample:
    return Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=gpu_w),) * gpus, node=node)


def node(
    t_s: float, power_w: float | None = 300.0, *, whole: bool = False, energy_j: float | None = None
) -> NodeReading:
    return NodeReading(t_s=t_s, power_w=power_w, whole=whole, energy_j=energy_j)


@pytest.mark.parametrize(("whole", "gpus", "energy_j"), [(False, 2, (1000.0, 400.0)), (True, 1, (600.0, 200.0))])
def test_the_rest_of_the_machine_is_added_to_the_gpus_and_a_meter_of_it_all_stands_alone(whole, gpus, energy_j) -> None:
    meter = EnergyMeter()
    assert all(meter.add(sample(t_s, node=node(t_s, whole=whole), gpus=gpus)) for t_s in (0.0, 1.0, 2.0))
    assert (meter.energy_j, meter.energy.gpus) == pytest.approx(energy_j)


def test_a_slow_reading_is_held_until_the_stamp_of_the_next() -> None:
    of_node, of_gpu = EnergyMeter(), EnergyMeter()
    for t_s, stamp_s, power_w in ((0.0, 0.0, 100.0), (1.0, 0.0, 100.0), (2.0, 1.5, 300.0)):
        of_node.add(sample(t_s, node=node(stamp_s, power_w, whole=True)))
        of_gpu.add(Sample(t_s=t_s, readings=(Reading(t_s=stamp_s, power_w=power_w),)))
    assert of_node.energy_j == of_gpu.energy_j == pytest.approx(1.5 * 100 + 0.5 * 300)


def test_the_counter_of_a_source_goes_before_its_power() -> None:
    of_node, of_gpus = EnergyMeter(), EnergyMeter()
    for t_s, energy_j in ((0.0, 50.0), (1.0, 80.0), (2.0, 90.0)):
        of_node.add(sample(t_s, node=node(t_s, 1.0, energy_j=energy_j)))
        of_gpus.add(Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=1.0, energy_j=energy_j),) * 2))
    assert (of_node.energy_j, of_gpus.energy_j) == (pytest.approx(40.0 + 200.0), pytest.approx(2 * 40.0))


@pytest.mark.parametrize("counted", [True, False])
def test_a_gap_of_the_node_adds_nothing_and_is_timed(counted: bool) -> None:
    meter = EnergyMeter()
    for second in range(6):
        t_s, known = float(second), second not in (2, 3)
        reading = node(t_s, 300.0 if known else None, energy_j=300.0 * t_s if known and counted else None)
        assert meter.add(sample(t_s, gpu_w=0.0, node=reading)) == known
    assert meter.energy_j == pytest.approx(300.0 + 300.0)  # the first second and the last
    assert meter.gap_s == pytest.approx(3.0)


def test_what_goes_with_a_device_counts_and_is_no_part_of_what_a_cap_acts_on() -> None:
    meter = EnergyMeter()
    for second in range(3):
        readings = (Reading(t_s=second, power_w=100.0, energy_j=100.0 * second, beside_j=7.0 + 10.0 * second),) * 2
        assert meter.add(Sample(t_s=second, readings=readings))
    assert (meter.energy_j, meter.energy.gpus) == (pytest.approx(440.0), pytest.approx(400.0))


def test_a_gap_of_the_node_disturbs() -> None:
    assert disturbance(sample(0.0, node=node(0.0))) is None
    assert disturbance(sample(0.0, node=node(0.0, None))) == "the node's power is not known"


def test_the_power_of_the_node_is_known_only_with_that_of_the_gpus_unless_it_holds_them() -> None:
    assert node_power_w(sample(0.0)) is None
    assert node_power_w(sample(0.0, node=node(0.0), gpus=2)) == 500.0
    assert node_power_w(sample(0.0, gpu_w=None, node=node(0.0))) is None
    assert node_power_w(sample(0.0, gpu_w=None, node=node(0.0, whole=True))) == 300.0


def test_a_reading_is_fresh_once_its_stamp_moves() -> None:
    meter, stamps = Meter(), (0.0, 0.0, 1.0, 1.0, 2.0)
    fresh = [meter.of(sample(float(t_s), node=node(stamp_s))).node_fresh for t_s, stamp_s in enumerate(stamps)]
    assert fresh == [False, False, True, False, True]


def counted(t_s: float, counter_j: float | None, power_w: float | None = 100.0) -> Sample:
    return Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=power_w, energy_j=counter_j),))


def test_what_the_power_has_told_a_counter_that_comes_back_does_not_count_again() -> None:
    meter = EnergyMeter()
    for t_s, counter_j in ((0.0, 0.0), (1.0, 100.0), (2.0, None), (3.0, None), (4.0, 400.0), (5.0, 500.0)):
        meter.add(counted(t_s, counter_j))
    assert meter.energy_j == pytest.approx(500.0)


def test_a_gap_of_the_power_is_none_where_the_counter_goes_on() -> None:
    meter = EnergyMeter()
    for second in range(6):
        one = counted(second, 100.0 * second, None if second in (2, 3) else 100.0)
        assert meter.add(one)
        assert disturbance(one) is None
    assert (meter.energy_j, meter.gap_s) == (pytest.approx(500.0), 0.0)


@pytest.mark.parametrize("then", ["it goes on", "it is dropped", "it has left that out"])
def test_a_counter_that_stands_still_is_not_taken_for_a_device_that_draws_nothing(then: str) -> None:
    meter, found = EnergyMeter(), []
    for tick in range(1, 121):
        t_s, counter_j = tick / 10, 10.0 * tick
        if 3.0 < t_s <= 8.0:
            counter_j = 300.0
        elif t_s > 8.0 and then == "it is dropped":
            counter_j = None
        elif t_s > 8.0 and then == "it has left that out":
            counter_j -= 500.0
        meter.add(counted(t_s, counter_j))
        found.append(meter.energy_j - 100.0 * (t_s - 0.1))
    assert max(found) == pytest.approx(0.0, abs=1e-6)  # as it was
    assert min(found) > -101.0  # a second late at most
    assert found[-1] == pytest.approx(0.0, abs=1e-6)


def test_a_counter_is_believed_between_samples_that_are_far_apart() -> None:
    """As on a machine without CPU: what the device did meanwhile the last power does not tell."""
    meter = EnergyMeter()
    for t_s, counter_j, power_w in ((0.0, 0.0, 300.0), (2.0, 100.0, 50.0), (4.0, 700.0, 300.0)):
        meter.add(counted(t_s, counter_j, power_w))
    assert meter.energy_j == pytest.approx(700.0)


def test_energy_that_neither_counter_nor_power_has_told_is_lost() -> None:
    meter = EnergyMeter()
    for tick in range(100):
        t_s = tick / 10
        has_power = not 4.0 < t_s < 5.0
        meter.add(counted(t_s, None if t_s > 8.0 else 100.0 * min(t_s, 3.0), 100.0 if has_power else None))
        assert meter.lost == (tick == 81)


def test_a_node_that_draws_less_than_its_gpus_is_doubted() -> None:
    assert implausible(200.0, 200.0) is None
    assert implausible(300.0, 200.0) is None
    said = "the node's meter reads 100 W while the GPUs alone draw 200 W; let it read the whole machine, in watts"
    assert implausible(100.0, 200.0) == said


def test_iterations_that_are_recognised_late_are_set_against_their_own_time_and_energy() -> None:
    accounts, meter = RunningTotals(), Meter()
    for tick in range(2001):
        t_s = tick * 0.05
        sample = Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=100.0 if t_s < 50 else 300.0),))
        marks = ()
        if tick and tick % 600 == 0:  # every 30 s a look that knows all but the last 10 s
            marks = (Mark(t_s=t_s - 10.0, iterations=2 * (t_s - 10.0)),)
        accounts.add(meter.of(sample, marks), State.SEARCHING)
        if tick == 600:
            accounts.open()
    tally = accounts.tally(100.0)
    assert (tally.elapsed_s, tally.energy_j) == (pytest.approx(70.0), pytest.approx(20 * 100 + 50 * 300))
    assert tally.counted_s == pytest.approx(60.0)  # from 20 s to 80 s
    assert tally.counted_j == pytest.approx(30 * 100 + 30 * 300, rel=1e-3)
    assert tally.iterations / tally.counted_s == pytest.approx(2.0)


@pytest.mark.parametrize("update_s", [0.02, 0.1])
def test_what_iterations_drew_is_counted_whenever_the_counter_moved(update_s: float) -> None:
    """Of 0.73 s each, 0.3 s of them at 100 W and the rest at 300 W; samples every 0.05 s."""
    accounts, meter = RunningTotals(), Meter()

    def joules(t_s: float) -> float:
        whole, rest_s = divmod(t_s, 0.73)
        return whole * (30 + 129) + 100 * min(rest_s, 0.3) + 300 * max(rest_s - 0.3, 0.0)

    for tick in range(2001):
        t_s, done = tick * 0.05, int(tick * 0.05 / 0.73)
        energy_j = joules(t_s // update_s * update_s)
        marks = (Mark(t_s=done * 0.73, iterations=float(done)),) if done > int((tick - 1) * 0.05 / 0.73) else ()
        sample = Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=200.0, energy_j=energy_j),))
        accounts.add(meter.of(sample, marks), State.HOLDING)
        accounts.open()
    tally = accounts.tally(100.0)
    assert tally.counted_j == pytest.approx(159 * tally.counted_s / 0.73, rel=5e-3)


def read(t_s: float, power_w: float = 100.0, energy_j: float | None = None, **node: NodeReading) -> Sample:
    return Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=power_w, energy_j=energy_j),), **node)


@pytest.mark.slow
def test_a_job_without_iterations_keeps_no_more_of_its_energy_curve_than_it_needs() -> None:
    accounts, meter = RunningTotals(), Meter()
    for tick in range(30_000):
        accounts.add(meter.of(read(tick * 1.0)), State.HOLDING)
    accounts.add(meter.of(read(3e4), (Mark(t_s=2e4, iterations=5.0),)), State.HOLDING)
    accounts.open()
    assert len(accounts._curve._points) <= 10_000
    assert accounts.tally(3e4).counted_s == 0.0


def test_iterations_over_a_gap_of_the_nodes_power_are_left_out_of_what_was_counted() -> None:
    accounts, meter = RunningTotals(), Meter()
    for tick in range(1001):
        t_s = tick * 0.1
        node = NodeReading(t_s=t_s, power_w=None if 40 <= t_s < 60 else 400.0, whole=True)
        marks = (Mark(t_s=t_s, iterations=float(tick // 10)),) if tick and tick % 10 == 0 else ()
        accounts.add(meter.of(read(t_s, node=node), marks), State.HOLDING)
        if tick == 0:
            accounts.open()
    tally = accounts.tally(100.0)
    counted = tally.iterations - tally.paused_iterations
    assert 76 <= counted < 80
    assert tally.counted_s / counted == pytest.approx(1.0, abs=0.02)
    assert tally.counted_j / counted == pytest.approx(400.0, rel=0.02)


def test_while_the_count_stands_still_nothing_is_counted() -> None:
    totals, meter = RunningTotals(), Meter()
    for tick in range(61):
        t_s = tick * 1.0
        count = {20: 20.0, 40: 20.0, 60: 40.0}.get(tick)  # from 20 s to 40 s the job did something else
        marks = () if count is None else (Mark(t_s=t_s, iterations=count),)
        totals.add(meter.of(read(t_s), marks), State.HOLDING)
        if tick == 20:
            totals.open()
    tally = totals.tally(60.0)
    assert (tally.elapsed_s, tally.counted_s) == (pytest.approx(40.0), pytest.approx(20.0))
    assert (tally.counted_j, tally.iterations) == (pytest.approx(2000.0), pytest.approx(20.0))


def test_iterations_between_samples_seconds_apart_get_all_of_their_energy() -> None:
    accounts, meter, count = RunningTotals(), Meter(), 0
    for t_s in range(0, 1000, 5):
        done = int(t_s / 0.7)
        marks = (Mark(t_s=0.7 * done, iterations=float(done)),) if done > count else ()
        count = done
        accounts.add(meter.of(read(float(t_s), 300.0, 300.0 * t_s), marks), State.HOLDING)
        if t_s == 10:
            accounts.open()
    tally = accounts.tally(1000.0)
    assert tally.counted_j / tally.counted_s == pytest.approx(300.0)
