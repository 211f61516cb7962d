"""Running totals: what the job used, and what the iterations that are known of took."""

import pytest

from autocap.events import State
from autocap.measurement.totals import RunningTotals
from autocap.progress import Mark
from autocap.records import NodeReading, Reading, Sample
from tests.doubles.feeds import Meter


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
