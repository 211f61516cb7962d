"""`autocap sweep --node-power`: what a whole run of the machine used, and what is said of it."""

import csv
import io
from collections.abc import Iterator
from dataclasses import replace

import pytest

from autocap import events
from autocap.clock import VirtualClock
from autocap.devices.base import PowerSource
from autocap.devices.model import profiles
from autocap.devices.node import ConstantPower
from autocap.events import Event
from autocap.events.sweep import FinishedRun, PlannedRun, SweepPlan, Used
from autocap.records import NodeReading, Reading, Sample
from autocap.reports.text import lines
from autocap.sweep.document import present_sweep
from autocap.sweep.running import LOOK_EVERY_S, Resting, WholeRun
from autocap.sweep.schedule import differences
from autocap.sweep.summary import cap_rows, sound, summarise, to_csv
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from autocap.wire.codec import decode, encode
from bench.simulation.sweep import Command, sweep
from tests.sweep.test_sweep import curve_runs, finished, gpu_set, logged, plan

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
def test_a_run_in_which_the_meter_had_a_gap_is_left_out_with_the_reason(watts, gap_s) -> None:
    found = used(whole_run(meter(*watts)))
    assert found.node_gap_s == gap_s
    gap = replace(finished(200.0), used=found)
    good, out = sound([gap, finished(200.0, 2)])
    assert [one.run.repeat for one in good] == [2]
    assert [one.reason for one in out] == [f"the node's power was not known for {gap_s:.1f} s"]


def test_means_count_the_node_and_keep_the_gpus_part_with_its_own_scatter() -> None:
    gpus_j = (1000.0, 1100.0, 1200.0)
    runs = [with_node(finished(200.0, i, energy_j=(gpu_j / 2,) * 2), 5000.0) for i, gpu_j in enumerate(gpus_j, 1)]
    (row,) = cap_rows(runs)
    found = row.measurement
    assert (found.power_w, found.energy_per_iteration_j, found.energy_rel_stderr) == (500.0, 5000.0, 0.0)
    assert (found.gpu.power_w, found.gpu.energy_per_iteration_j) == (pytest.approx(110.0), pytest.approx(1100.0))
    assert found.gpu.energy_rel_stderr > 0.04
    assert (row.energy_sd_j, row.gpus_energy_sd_j) == (0.0, pytest.approx(100.0))
    assert row.gpu_energy_j == (pytest.approx(550.0), pytest.approx(550.0))


def test_without_a_source_the_gpus_are_all_that_counts() -> None:
    (row,) = cap_rows([finished(200.0, 1), finished(200.0, 2, energy_j=(1100.0,))])
    assert row.measurement.gpu is None
    assert row.energy_sd_j == row.gpus_energy_sd_j


@pytest.mark.slow
def test_a_sweep_measures_the_node_and_its_gpus_as_they_are() -> None:
    panel = sweep(Command(profile=PROFILE, iterations=100, jitter=0.01, rest_w=400.0), repeats=2, seed=1, step_w=20.0)
    for row in panel.rows:
        assert row.measurement.power_w == pytest.approx(PROFILE.power_w(row.cap_w) + 400.0, rel=0.01)
        assert row.measurement.gpu.power_w == pytest.approx(PROFILE.power_w(row.cap_w), rel=0.02)
    assert panel.best_by_metric[0].setting > panel.best_by_metric_gpu[0].setting


# Between the runs


class Meter:
    """A meter of the whole machine that says what it is told to."""

    name, whole, refresh_s = "a meter", True, 0.1

    def __init__(self, clock: VirtualClock, watts: Iterator[float | None]) -> None:
        self._clock, self._watts = clock, watts

    def read(self) -> NodeReading:
        return NodeReading(t_s=self._clock.now(), power_w=next(self._watts), whole=True)

    def notes(self) -> tuple[str, ...]:
        return ("it stutters",)

    def close(self) -> None:
        return


RUN = PlannedRun(gpus="0", cap_w=200.0, repeat=1)


def at_rest(source: PowerSource, clock: VirtualClock, runs: list[PlannedRun], device=None) -> list[Event]:
    """10 s of rest before each run, which takes 100 s."""
    announced: list[Event] = []
    resting = Resting(node=source, clock=clock, announce=announced.append)
    for run in runs:
        for _ in range(20):
            resting.look(run, device)
            clock.wait_until(clock.now() + LOOK_EVERY_S)
        resting.end(run)
        clock.wait_until(clock.now() + 100.0)
    return [event for event in announced if isinstance(event, events.IdleEstimated)]


def test_the_idle_power_is_the_second_percentile_of_what_was_seen_between_the_runs() -> None:
    clock = VirtualClock()
    watts = [600.0, 600.0, *map(float, range(400, 418)), None, *map(float, range(500, 519))]
    first, second = at_rest(Meter(clock, iter(watts)), clock, [RUN, replace(RUN, gpus="0,1")])
    assert (first.power_w, first.seen_s, first.gpus) == (pytest.approx(400.4, abs=0.5), pytest.approx(9.5), None)
    assert second.seen_s == pytest.approx(9.5 + 9.0)  # the runs themselves do not count
    assert second.power_w == pytest.approx(400.8, abs=0.5)


def test_what_a_meter_has_to_say_between_the_runs_is_passed_on() -> None:
    clock, announced = VirtualClock(), list[Event]()
    Resting(node=Meter(clock, iter([500.0])), clock=clock, announce=announced.append).look(RUN, None)
    assert announced == [events.Warned(t_s=0.0, text="it stutters")]


def test_beside_the_rest_of_the_machine_the_gpus_of_the_set_are_read() -> None:
    clock = VirtualClock()
    device = SimulatedDevice(clock, SimulatedJob(profile=PROFILE, start_s=1e6), seed=1)
    (seen,) = at_rest(ConstantPower(300.0, clock), clock, [RUN], device)
    assert (seen.power_w, seen.gpus) == (pytest.approx(300.0 + PROFILE.idle_w, rel=0.05), "0")
    assert at_rest(ConstantPower(300.0, clock), clock, [RUN]) == []


# What is said of it


def node_log(*, made: SweepPlan | None = None, idle_w: float | None = None) -> list[Event]:
    """Two runs a cap; 100 W around the GPU."""
    runs = [with_node(one, one.used.gpus_j + 100.0 * one.used.time_s) for one in curve_runs() if one.used]
    metered = events.NodeMetered(t_s=0.0, source="ipmi", whole=True, refresh_s=1.0, idle_w=idle_w, standard_idle_w=20.0)
    log = logged(made or plan(repeats=2, discard=False, node_power="ipmi"), runs, "every run is done")
    return [log[0], metered, *log[1:]]


def test_the_best_caps_are_told_by_the_node_and_by_the_gpus_alone() -> None:
    (panel,) = summarise(node_log()).panels
    best = [{one.metric: one.setting[0] for one in some} for some in (panel.best_by_metric, panel.best_by_metric_gpu)]
    assert [some["energy"] for some in best] == [200.0, 150.0]
    assert panel.baseline.measurement.power_w == pytest.approx(300.0)


def test_the_report_shows_the_nodes_figures_the_gpus_and_both_optima() -> None:
    page = present_sweep(node_log(idle_w=60.0)).document
    report = [" ".join(line.split()) for line in lines(page, 140)]
    assert "energy is the whole node's, the GPUs' included, as ipmi reads it, a fresh reading every 1 s" in report
    assert "at rest the node draws 60 W, 20 % of the baseline's power" in report
    assert "as on a machine that draws 20 W at rest: 2600 ± 26 J/run at 260 W, 2124 ± 21 J/run at 200 W" in report
    assert "200 2 244.2 ± 0.0 2540.0 ± 35.9 10.40 ± 0.15 -15.3 +4.0 0.8805 0.9433 0.9756" in report
    assert "200 144.2 ± 0.0 1500.0 ± 21.2 -25.0 0.7800 0.8950 0.9433" in report
    assert any(line.startswith("energy 200 ") and " 150 " in line for line in report)
    titles = [table.heading for table in page.tables]
    assert "The GPUs' part of train.py" in titles
    assert "Best caps of train.py, by the node and by the GPUs alone" in titles
    assert "at rest the node draws 60 W, 20 % of the baseline's power" in page.remarks


def test_the_idle_power_that_was_seen_is_that_of_the_set_it_was_seen_with() -> None:
    idle = ((40.0, "0"), (45.0, "0"), (90.0, "0,1"))
    seen = [events.IdleEstimated(t_s=1.0, power_w=watts, seen_s=30.0, gpus=gpus) for watts, gpus in idle]
    made = plan(sets=(gpu_set("0"), gpu_set("0,1")), repeats=2, node_power="350")
    one, two = summarise([*node_log(made=made), *seen]).panels
    assert (one.node.idle_w, two.node.idle_w) == (45.0, 90.0)
    told = lines(present_sweep([*node_log(made=made), *seen]).document, 140)
    how = "by the lowest 2 % of 30 s between the runs"
    assert f"at rest the node draws 45 W, {how}, 15 % of the baseline's power" in told


def test_power_that_a_meter_reads_is_not_marked_as_emulated_and_the_gpus_part_is() -> None:
    made = plan(repeats=2, node_power="ipmi", device="emulated", emulated=True)
    report = "\n".join(lines(present_sweep(node_log(made=made)).document, 140))
    assert "without the emulated GPUs', as ipmi reads it" in report
    assert "\nCaps of train.py\n" in report
    assert "\nThe GPUs' part of train.py (emulated)\n" in report


def test_the_csv_counts_the_node_and_holds_the_gpus_part() -> None:
    row = next(row for row in csv.DictReader(io.StringIO(to_csv(summarise(node_log())))) if row["cap_w"] == "200")
    assert [float(row[name]) for name in ("energy_j", "gpus_energy_j")] == [2540.0, 1500.0]
    assert float(row["power_w"]) - float(row["gpus_power_w"]) == pytest.approx(100.0, rel=1e-3)
    assert (row["node_power"], row["gpu_energy_j"]) == ("ipmi", "1500")


def test_another_source_is_another_plan_and_a_log_from_before_there_were_any_had_none() -> None:
    assert differences(plan(), plan(node_power="ipmi")) == ["node_power was none and is ipmi"]
    old = encode(plan())
    del old["node_power"]
    assert decode(SweepPlan, old) == plan()


def test_what_is_asked_for_is_chosen_by_the_node() -> None:
    start, *log = node_log()
    (panel,) = summarise([replace(start, metric=events.MetricInfo(name="energy")), *log]).panels
    assert panel.chosen.setting == (200.0,)
