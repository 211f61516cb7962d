"""`autocap sweep --node-power`: what a whole run of the machine used, and what is said of it."""

from dataclasses import replace

import pytest

from autocap import profiles
from autocap.records import NodeReading, Reading, Sample
from autocap.sweep.measuring import WholeRun
from autocap.sweep.records import FinishedRun, Used
from autocap.sweep.statistics import cap_rows, sound
from bench.simulated_sweep import Command, sweep
from tests.test_sweep import finished

PROFILE = profiles.load("quadro-rtx-6000/vgg19")


def whole_run(readings: list[NodeReading], *, refresh_s: float = 0.0, end_s: float = 10.0) -> WholeRun:
    """A run of 10 s under one GPU of 100 W, sampled every second."""
    run = WholeRun((200.0,), begin_s=0.0, window_s=0.0, node_refresh_s=refresh_s)
    for second, node in enumerate(readings):
        run.feed(Sample(t_s=float(second), readings=(Reading(t_s=float(second), power_w=100.0),), node=node))
    run.close(end_s)
    return run


def meter(*watts: float | None, whole: bool = True) -> list[NodeReading]:
    """A fresh reading every second."""
    return [NodeReading(t_s=float(second), power_w=power_w, whole=whole) for second, power_w in enumerate(watts)]


def used(run: WholeRun) -> Used:
    assert run.used is not None
    return run.used


def with_node(one: FinishedRun, node_j: float, gap_s: float = 0.0) -> FinishedRun:
    assert one.used is not None
    return replace(one, used=replace(one.used, node_j=node_j, node_gap_s=gap_s))


def test_a_meter_of_the_whole_node_stands_alone_and_the_gpus_are_kept_beside_it() -> None:
    found = used(whole_run(meter(*[500.0] * 10)))
    assert (found.node_j, found.energy_j, found.counted_j) == (pytest.approx(5000.0), (pytest.approx(1000.0),), 5000.0)


def test_what_the_rest_of_the_machine_draws_is_added_to_the_gpus() -> None:
    found = used(whole_run(meter(*[400.0] * 10, whole=False)))
    assert found.node_j == pytest.approx(5000.0)


def test_a_counter_counts_the_rest_and_its_power_fills_the_ends() -> None:
    readings = [NodeReading(t_s=t, power_w=400.0, energy_j=7e5 + 300.0 * t, whole=False) for t in map(float, range(10))]
    assert used(whole_run(readings, end_s=9.5)).node_j == pytest.approx(9 * 300.0 + 0.5 * 400.0 + 950.0)


def test_a_reading_from_before_the_run_is_not_of_it() -> None:
    idle = [NodeReading(t_s=-1.0, power_w=50.0, whole=True)] * 2 + [NodeReading(t_s=1.5, power_w=300.0, whole=True)]
    readings = [*idle, *[NodeReading(t_s=2.5, power_w=500.0, whole=True)] * 7]
    assert used(whole_run(readings, refresh_s=2.0)).node_j == pytest.approx(5000.0)


def test_a_run_of_which_the_meter_told_nothing_was_not_measured() -> None:
    run = whole_run([NodeReading(t_s=-1.0, power_w=50.0, whole=True)] * 10, refresh_s=2.0)
    assert run.used is None
    assert run.silence.startswith("the node's power was not read while it ran; let it run for longer than the meter")


@pytest.mark.parametrize(
    ("watts", "gap_s"), [([500.0, None, None, 500.0], 2.0), ([None, 500.0], 1.0), ([500.0] * 9 + [None], 1.0)]
)
def test_a_run_in_which_the_meter_had_a_gap_is_left_out_with_the_reason(
    watts: list[float | None], gap_s: float
) -> None:
    found = used(whole_run(meter(*watts)))
    assert found.node_gap_s == gap_s
    gap = replace(finished(200.0), used=found)
    good, out = sound([gap, finished(200.0, 2)])
    assert [one.run.repeat for one in good] == [2]
    assert [one.reason for one in out] == [f"the node's power was not known for {gap_s:.1f} s"]


def test_means_count_the_node_and_keep_the_gpus_part_with_its_own_scatter() -> None:
    pairs = ((1000.0, 5000.0), (1100.0, 5000.0), (1200.0, 5000.0))
    runs = [
        with_node(finished(200.0, i, energy_j=(gpu_j / 2,) * 2), node_j) for i, (gpu_j, node_j) in enumerate(pairs, 1)
    ]
    (row,) = cap_rows(runs)
    found = row.measurement
    assert (found.power_w, found.energy_per_iteration_j, found.energy_rel_stderr) == (500.0, 5000.0, 0.0)
    assert found.gpu is not None
    assert (found.gpu.power_w, found.gpu.energy_per_iteration_j) == (pytest.approx(110.0), pytest.approx(1100.0))
    assert found.gpu.energy_rel_stderr > 0.04
    assert (row.energy_sd_j, row.gpus_energy_sd_j) == (0.0, pytest.approx(100.0))
    assert row.gpu_energy_j == (pytest.approx(550.0), pytest.approx(550.0))


def test_without_a_source_the_gpus_are_all_that_counts() -> None:
    (row,) = cap_rows([finished(200.0, 1), finished(200.0, 2, energy_j=(1100.0,))])
    assert row.measurement.gpu is None
    assert row.energy_sd_j == row.gpus_energy_sd_j


def test_a_sweep_measures_the_node_and_its_gpus_as_they_are() -> None:
    panel = sweep(Command(profile=PROFILE, iterations=100, jitter=0.01, rest_w=400.0), repeats=2, seed=1, step_w=20.0)
    for row in panel.rows:
        assert row.measurement.power_w == pytest.approx(PROFILE.power_w(row.cap_w) + 400.0, rel=0.01)
        assert row.measurement.gpu is not None
        assert row.measurement.gpu.power_w == pytest.approx(PROFILE.power_w(row.cap_w), rel=0.02)
