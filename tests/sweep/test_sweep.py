"""The core of `autocap sweep`: which runs there are, what one run used, what several come to."""

import csv
import io
import math
from dataclasses import replace

import numpy as np
import pytest

from autocap import events
from autocap.config import DESCENDING
from autocap.errors import RunDirectoryError
from autocap.events.sweep import FinishedRun, GpuSet, PlannedRun, SweepPlan, Used
from autocap.metrics import Metric
from autocap.records import CapRange, GpuInfo, Reading, Sample
from autocap.sweep.running import WholeRun
from autocap.sweep.schedule import Schedule, default_step_w, differences, in_order
from autocap.sweep.summary import cap_rows, panels, sound, summarise, to_csv
from autocap.wire.codec import decode, encode
from bench.strategies import curves

CAPS = (260.0, 200.0, 150.0, 100.0)
RANGE = CapRange(min_w=100.0, max_w=260.0, default_w=260.0)


def gpu_set(label="0", caps_w=CAPS, baseline_w=260.0) -> GpuSet:
    gpus = tuple(
        GpuInfo(index=int(index), uuid=f"GPU-{index}", name="card", cap_range=RANGE) for index in label.split(",")
    )
    return GpuSet(label=label, gpus=gpus, baseline_w=baseline_w, caps_w=caps_w)


def plan(**changes) -> SweepPlan:
    made = SweepPlan(
        command=("python", "train.py"), name="train.py", device="nvml", emulated=False, sets=(gpu_set(),), repeats=3
    )
    return replace(made, **changes)


def finished(cap_w, repeat=1, *, time_s=10.0, energy_j=(1000.0,), gpus="0", missing=0, trouble=None) -> FinishedRun:
    return FinishedRun(
        run=PlannedRun(gpus=gpus, cap_w=cap_w, repeat=repeat),
        used=Used(time_s=time_s, energy_j=energy_j, missing=missing),
        exit_status=0,
        trouble=trouble,
    )


def play(schedule, time_s=lambda run: 10.0) -> list[PlannedRun]:
    """Everything that a schedule asks for, every run a success."""
    asked = []
    while (run := schedule.next()) is not None:
        asked.append(run)
        schedule.add(FinishedRun(run=run, used=Used(time_s=time_s(run), energy_j=(1.0,)), exit_status=0))
    return asked


# Which runs


def test_every_cap_is_run_as_often_as_asked_for_after_one_run_that_does_not_count() -> None:
    runs = play(Schedule(plan()))
    assert runs[0] == PlannedRun(gpus="0", cap_w=260.0, repeat=0)
    assert sorted((run.cap_w, run.repeat) for run in runs[1:]) == [(cap, r) for cap in sorted(CAPS) for r in (1, 2, 3)]


def test_a_random_order_shuffles_each_round_of_caps_and_the_seed_repeats_it() -> None:
    many = plan(sets=(gpu_set(caps_w=tuple(range(260, 99, -5))),), discard=False)
    runs = list(in_order(many))
    rounds = [[run.cap_w for run in runs if run.repeat == repeat] for repeat in (1, 2, 3)]
    assert [run.repeat for run in runs] == sorted(run.repeat for run in runs)
    assert len({tuple(one) for one in rounds}) == 3
    assert rounds[0] != sorted(rounds[0], reverse=True)
    assert runs == list(in_order(many))
    assert runs != list(in_order(replace(many, seed=1)))


def test_a_descending_order_goes_down_one_cap_at_a_time_and_set_by_set() -> None:
    runs = list(in_order(plan(sets=(gpu_set("0"), gpu_set("0,1")), order=DESCENDING, repeats=2, discard=False)))
    assert [run.cap_w for run in runs] == [cap for cap in CAPS for _ in range(2)] * 2
    assert [run.gpus for run in runs] == ["0"] * 8 + ["0,1"] * 8


def test_a_descent_ends_below_the_first_cap_that_is_slower_than_allowed() -> None:
    slow = plan(order=DESCENDING, stop_slowdown=0.2)
    runs = play(Schedule(slow), lambda run: 10.0 if run.cap_w > 150 else 12.1)
    assert min(run.cap_w for run in runs) == 150.0
    assert sum(run.cap_w == 150.0 for run in runs) == 3


def test_a_resumed_sweep_runs_only_what_is_left_and_repeats_what_failed() -> None:
    order = list(in_order(plan()))
    before = [FinishedRun(run=run, used=Used(time_s=1.0, energy_j=(1.0,)), exit_status=0) for run in order[:5]]
    before.append(replace(before[0], run=order[5], trouble="a signal asked for the end"))
    schedule = Schedule(plan(), before)
    assert schedule.left == len(order) - 5
    assert play(schedule) == order[5:]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"repeats": 5}, "repeats was 3 and is 5"),
        ({"command": ("python", "other.py")}, "command was python train.py and is python other.py"),
        ({"stop_slowdown": 0.5}, "stop_slowdown was None and is 0.5"),
        ({"sets": (gpu_set("0,1"),)}, "the GPU sets were 0 and are 0,1"),
        ({"sets": (gpu_set(caps_w=(260.0, 120.0)),)}, "the caps were 260 200 150 100 W and are 260 120 W"),
        ({"sets": (gpu_set(baseline_w=200.0),)}, "the limit found on GPU 0 was 260 W and is 200 W"),
    ],
)
def test_a_changed_plan_is_named_by_its_difference(change, sentence) -> None:
    assert differences(plan(), plan(**change)) == [sentence]


def test_the_same_plan_read_back_from_a_log_differs_in_nothing() -> None:
    assert differences(decode(SweepPlan, encode(plan())), plan()) == []


def test_a_wide_range_is_stepped_through_coarsely() -> None:
    assert [default_step_w(100, 260), default_step_w(150, 300), default_step_w(200, 700)] == [5.0, 5.0, 25.0]


# What a run used


def ran(fed, end_s, begin_s=0.0, window_s=0.0) -> WholeRun:
    """A whole run at 200 W, fed with moments, watts and, where they are others, the stamps of readings."""
    whole = WholeRun((200.0,), begin_s=begin_s, window_s=window_s)
    for t_s, watts, *stamp_s in fed:
        whole.feed(Sample(t_s=t_s, readings=(Reading(t_s=(*stamp_s, t_s)[0], power_w=watts),)))
    whole.close(end_s)
    return whole


def test_power_is_held_between_readings_and_at_both_ends() -> None:
    used = ran([(1.0, 100.0), (2.0, 100.0), (3.0, 200.0)], 5.0).used
    assert (used.time_s, used.energy_j) == (5.0, (pytest.approx(300.0 + 400.0),))


def test_a_short_run_with_one_reading_has_the_energy_of_its_length() -> None:
    assert ran([(2.1, 150.0)], 2.5, begin_s=2.0).used.energy_j == (pytest.approx(75.0),)


def test_a_reading_that_reaches_back_before_the_run_is_not_of_it() -> None:
    fed = [(10.0, 20.0, 9.95), (10.05, 100.0), (10.15, 200.0), (11.0, 200.0)]
    assert ran(fed, 11.0, begin_s=10.0, window_s=0.1).used.energy_j == (pytest.approx(200.0),)


def test_an_energy_counter_counts_each_gpu_by_itself() -> None:
    whole = WholeRun((200.0, 200.0), begin_s=0.0, window_s=0.0)
    for t_s in (0.0, 1.0, 2.0):
        readings = tuple(Reading(t_s=t_s, power_w=watts, energy_j=5000.0 + watts * t_s) for watts in (100.0, 300.0))
        whole.feed(Sample(t_s=t_s, readings=readings))
    whole.close(2.5)
    assert whole.used.energy_j == (pytest.approx(250.0), pytest.approx(750.0))


@pytest.mark.parametrize(
    ("watts", "missing"), [([None, None, 100.0, 100.0], 0), ([100.0, None, None, 100.0], 2), ([None] * 3, None)]
)
def test_a_sensor_that_is_not_awake_yet_is_no_missing_reading_a_later_gap_is_and_silence_is_no_measurement(
    watts, missing
) -> None:
    used = ran([(0.1 * index, one) for index, one in enumerate(watts)], 1.0).used
    assert (used and used.missing) == missing


def test_a_run_that_was_stopped_for_a_while_does_not_count_and_gets_its_cap_again() -> None:
    whole = WholeRun((200.0,), begin_s=0.0, window_s=0.0)
    (action,) = whole.interrupted(1.0)
    assert action.settings == (200.0,)
    assert whole.ended_because == "autocap or the command was stopped for a while"


# What several runs come to


def test_means_and_sample_standard_deviations_are_those_of_the_runs() -> None:
    times_s, energies_j = (10.0, 11.0, 12.0), (1000.0, 1100.0, 1260.0)
    pairs = enumerate(zip(times_s, energies_j, strict=True), 1)
    runs = [finished(200.0, i, time_s=t, energy_j=(e,)) for i, (t, e) in pairs]
    (row,) = cap_rows(runs)
    assert row.measurement.period_s == pytest.approx(11.0)
    assert row.measurement.energy_per_iteration_j == pytest.approx(1120.0)
    assert row.measurement.power_w == pytest.approx((100 + 100 + 105) / 3)
    assert row.time_sd_s == pytest.approx(1.0)
    assert row.energy_sd_j == pytest.approx(np.std(energies_j, ddof=1))
    assert row.repeats == 3
    assert row.measurement.period_rel_stderr == pytest.approx(np.std(np.log(times_s), ddof=1) / math.sqrt(3))


def test_the_standard_error_shares_the_scatter_of_all_caps() -> None:
    runs = [finished(200.0, 1, time_s=10.0), finished(200.0, 2, time_s=10.0)]
    runs += [finished(100.0, 1, time_s=20.0), finished(100.0, 2, time_s=22.0)]
    high, low = cap_rows(runs)
    assert high.time_sd_s == 0.0
    assert high.measurement.period_rel_stderr == low.measurement.period_rel_stderr > 0.02


def test_one_run_of_a_cap_has_no_standard_deviation() -> None:
    (row,) = cap_rows([finished(200.0)])
    assert (row.time_sd_s, row.energy_sd_j, row.power_sd_w) == (None, None, None)


def test_runs_that_failed_or_missed_readings_are_left_out_with_the_reason() -> None:
    runs = [
        finished(200.0, 0),
        finished(200.0, 1),
        finished(200.0, 2, missing=3),
        finished(200.0, 3, trouble="the command ended with status 1"),
        replace(finished(200.0, 4), used=None),
        finished(200.0, 5, energy_j=(0.0,)),
    ]
    good, out = sound(runs)
    assert [one.run.repeat for one in good] == [1]
    assert [one.reason for one in out] == [
        "3 power readings were missing or 0 W",
        "the command ended with status 1",
        "no power was read",
        "no energy was measured",
    ]


def scattered(rng, caps=16, repeats=5, sd=0.01) -> list[FinishedRun]:
    return [
        finished(100.0 + 10 * cap, repeat, time_s=float((40.0 - cap) * math.exp(sd * rng.standard_normal())))
        for cap in range(caps)
        for repeat in range(1, repeats + 1)
    ]


@pytest.mark.parametrize("factor", [0.9, 1.1, 3.0])
def test_a_run_far_from_the_others_of_its_cap_in_log_time_is_left_out(factor) -> None:
    runs = scattered(np.random.default_rng(1))
    wrong = replace(runs[7], used=Used(time_s=runs[7].used.time_s * factor, energy_j=(1000.0,)))
    runs[7] = wrong
    good, out = sound(runs)
    assert [one.finished for one in out] == [wrong]
    assert "4 sigma" in out[0].reason
    assert len(good) == len(runs) - 1


def test_two_runs_that_are_far_off_do_not_hide_each_other() -> None:
    runs = scattered(np.random.default_rng(2))
    for place in (3, 41):
        runs[place] = replace(runs[place], used=Used(time_s=runs[place].used.time_s * 2, energy_j=(1000.0,)))
    _, out = sound(runs)
    assert sorted(runs.index(one.finished) for one in out) == [3, 41]


@pytest.mark.parametrize(("caps", "repeats"), [(16, 5), (30, 3), (1, 5), (2, 3)])
def test_runs_that_only_scatter_all_count(caps, repeats) -> None:
    lost = sum(len(sound(scattered(np.random.default_rng(seed), caps, repeats))[1]) for seed in range(40))
    assert lost <= 40 * caps * repeats * 6.3e-5 * 10 + 1  # the tail beyond four sigma, with room for luck


def test_of_two_repeats_nobody_can_say_which_is_wrong() -> None:
    runs = scattered(np.random.default_rng(3), repeats=2)
    runs[0] = replace(runs[0], used=Used(time_s=100.0, energy_j=(1000.0,)))
    assert sound(runs)[1] == []


def curve_runs(label="0", gpus=1) -> list[FinishedRun]:
    """Two runs a cap; at 150 W least energy, at 200 W least EDP."""
    values = {260.0: (10.0, 2000.0), 200.0: (10.4, 1500.0), 150.0: (13.0, 1300.0), 100.0: (20.0, 1600.0)}
    return [
        finished(cap_w, repeat, time_s=time_s * wobble, energy_j=(energy_j * wobble / gpus,) * gpus, gpus=label)
        for cap_w, (time_s, energy_j) in values.items()
        for repeat, wobble in ((1, 0.99), (2, 1.01))
    ]


def test_each_metric_names_its_best_cap_and_the_front_holds_what_nothing_beats() -> None:
    (panel,) = panels(plan(repeats=2), Metric(name="edp"), curve_runs())
    best = {one.metric: one.setting[0] for one in panel.best_by_metric}
    assert best == {"energy": 150.0, "edp": 200.0, "ed2p": 200.0, "eds_1.5": 200.0, "eds_2": 200.0}
    assert [point.setting[0] for point in panel.pareto] == [150.0, 200.0, 260.0]
    assert (panel.chosen.setting, panel.chosen.cost) == ((200.0,), pytest.approx(0.75 * 1.04))
    assert panel.baseline is panel.row(260.0)


def test_a_limit_on_slowdown_keeps_what_is_chosen_within_it() -> None:
    (free,) = panels(plan(repeats=2), Metric(name="energy"), curve_runs())
    (tight,) = panels(plan(repeats=2), Metric(name="energy", max_slowdown=0.1), curve_runs())
    assert (free.chosen.setting, tight.chosen.setting) == ((150.0,), (200.0,))


def test_without_a_baseline_nothing_is_compared() -> None:
    (panel,) = panels(plan(), Metric(name="edp"), [finished(200.0)])
    assert (panel.baseline, panel.chosen, panel.best_by_metric, panel.pareto) == (None, None, (), ())
    assert len(panel.rows) == 1


def logged(made: SweepPlan, runs, *ended: str) -> list[events.Event]:
    started = events.SweepStarted(
        t_s=0.0, autocap_version="0", started_at="2026-01-01T00:00:00+00:00", metric=events.MetricInfo(name="edp"),
        plan=made, runs_left=9,
    )  # fmt: skip
    log: list[events.Event] = [started, *(events.SweepRunEnded(t_s=1.0, finished=run) for run in runs)]
    return log + [events.RunEnded(t_s=2.0, ended_because=why) for why in ended]


def test_the_csv_is_read_by_the_benchmark_of_strategies(tmp_path) -> None:
    made = plan(sets=(gpu_set("0"), gpu_set("0,1")), repeats=2)
    runs = curve_runs() + curve_runs("0,1", gpus=2)
    text = to_csv(summarise(logged(made, runs)))
    (tmp_path / "sweep.csv").write_text(text)
    one, two = curves.read(tmp_path / "sweep.csv")
    assert (one.name, two.name) == ("train.py on GPU 0", "train.py on GPU 0,1")
    assert one.caps_w == tuple(sorted(CAPS))
    assert one.powers_w == pytest.approx([80.0, 100.0, 1500 / 10.4, 200.0], rel=1e-5)
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["repeats"] for row in rows] == ["2"] * 8
    assert (rows[-1]["gpus"], rows[-1]["gpu_energy_j"]) == ("0,1", "1000;1000")
    assert float(rows[-1]["time_sd_s"]) == pytest.approx(0.2 / math.sqrt(2), rel=1e-5)
    assert (rows[-1]["baseline"], rows[0]["baseline"], rows[0]["emulated"]) == ("true", "false", "false")


def test_a_sweep_that_was_killed_is_summed_up_as_far_as_it_came() -> None:
    summary = summarise(logged(plan(discard=False), curve_runs()))
    assert (summary.ended_because, summary.runs_left) == ("killed or still running", 4)
    assert len(summary.panels[0].rows) == 4


def test_a_sweep_that_goes_on_has_not_ended_as_it_did_before() -> None:
    log = logged(plan(), curve_runs(), "interrupted by SIGINT") + logged(plan(), [])
    assert summarise(log).ended_because == "killed or still running"


def test_events_of_a_run_are_no_sweep() -> None:
    log = [events.Warned(t_s=0.0, text="…")]
    assert events.record_kind(log) == "run"
    with pytest.raises(RunDirectoryError, match="not a sweep's events"):
        summarise(log)
