"""The run directory takes what a run says, survives kills and full disks, and gives it back."""

import csv
import errno
import fcntl
import io
import json
import os
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest

from autocap import events
from autocap.errors import RunDirectoryError
from autocap.events import Event, State
from autocap.events.search import PerGpuDecided, PerGpuTried
from autocap.events.sweep import FinishedRun, GpuSet, PlannedRun, SweepPlan, Used
from autocap.records import CapRange, GpuInfo, NodeReading, Reading, Sample, StepReading, Trial, TrialState
from autocap.reports.rendering import to_json_dict
from autocap.reports.summary.summarise import summarise
from autocap.runlog.directory import RunDirectory
from autocap.runlog.event_log import read_events
from tests.doubles.feeds import measurement, prediction, trial_of

STARTED_AT = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
MEASUREMENT = replace(
    measurement(180.0, 1.0, cap_w=200.0, energy_error=0.01, period_error=0.01, corr=0.5, iterations=10.0),
    start_s=1.0,
    power_rel_stderr=0.004,
    cap_binding=True,
)
GPU = GpuInfo(index=0, uuid="GPU-1", name="Test", cap_range=CapRange(min_w=100.0, max_w=260.0, default_w=260.0))
EVENTS: list[Event] = [
    events.RunStarted(
        t_s=0.0,
        autocap_version="0.1.0",
        mode="run",
        command=("python", "train.py", "--name=é\udcff"),  # an argument that is not valid UTF-8
        pid=42,
        started_at="2025-01-02T03:04:05+00:00",
        metric=events.MetricInfo(name="eds", k=2.0),
        strategy="linear",
        strategy_options=(
            events.OptionValue(name="points", value=5),
            events.OptionValue(name="share", value=0.5),
            events.OptionValue(name="mode", value="up"),
            events.OptionValue(name="again", value=True),
            events.OptionValue(name="seed", value=None),
        ),
    ),
    events.DeviceFound(t_s=0.1, kind="emulated", emulated=True, gpus=(GPU,), original=(None,)),
    events.ProgressFound(t_s=2.0, kind="steps", confidence="high"),
    events.StateEntered(t_s=3.0, state=State.BASELINE),
    events.BaselineMeasured(t_s=20.0, measurement=replace(MEASUREMENT, setting=(260.0,))),
    events.BaselineMeasured(t_s=20.5, measurement=replace(MEASUREMENT, setting=(260.0,)), rough=True),
    events.BaselineRefined(
        t_s=20.6, measurement=replace(MEASUREMENT, setting=(260.0,)), trials=(trial_of(MEASUREMENT, 0.9),)
    ),
    events.WouldTry(t_s=21.0, settings=(200.0, 180.0)),
    events.TrialStarted(t_s=22.0, setting=200.0),
    events.TrialWithdrawn(
        t_s=29.0, setting=180.0, since_s=20.0, reason="measured again, it showed +50 % time per iteration"
    ),
    events.CapSet(t_s=22.0, setting=(200.0,)),
    events.TrialEnded(t_s=30.0, trial=replace(trial_of(MEASUREMENT, 0.9), reason="done")),
    events.TrialEnded(t_s=40.0, trial=Trial(setting=100.0, state=TrialState.FAILED, reason="no step")),
    events.Predicted(t_s=45.0, caps=(replace(prediction(150.0, 0.8, 1.1, energy_error=0.02), time_energy_corr=0.9),)),
    events.Decided(
        t_s=50.0, setting=200.0, confirmed=True, reason="better", measurement=MEASUREMENT, baseline=MEASUREMENT
    ),
    events.Tally(
        t_s=60.0,
        since_s=10.0,
        elapsed_s=50.0,
        energy_j=9000.0,
        iterations=50.0,
        counted_s=50.0,
        counted_j=9000.0,
        exploration_s=20.0,
        exploration_energy_j=3600.0,
        exploration_iterations=20.0,
    ),
    events.SetterChosen(t_s=60.5, name="helper", where="/run/autocap/helper.sock", reason="setting a limit needs root"),
    events.ProgramFound(t_s=61.0, name="python", program="/home/ada/venv/bin/python", plain="/usr/bin/python"),
    events.Warned(t_s=61.0, text="careful\nof lines"),
    events.LimitRestored(t_s=62.0, uuid="GPU-1", final=260.0, restored=True),
    events.RunEnded(t_s=63.0, ended_because="the command ended", exit_status=0),
]
OF_NODE: list[Event] = [
    events.NodeMetered(t_s=0.1, source="ipmi", whole=True, refresh_s=1.0, idle_w=None, standard_idle_w=60.0),
    events.IdleEstimated(t_s=2.0, power_w=90.0, seen_s=1.9),
]
PER_GPU: list[Event] = [
    PerGpuTried(t_s=51.0, setting=(200.0, 190.0), accepted=False, reason="slower"),
    PerGpuTried(
        t_s=52.0,
        setting=(200.0, 195.0),
        accepted=True,
        reason="energy less",
        cost=0.8,
        cost_stderr=0.01,
        measurement=MEASUREMENT,
    ),
    PerGpuDecided(
        t_s=53.0,
        setting=(200.0, 195.0),
        kept=True,
        reason="energy less",
        measurement=replace(MEASUREMENT, energy_per_iteration_j=0.99 * MEASUREMENT.energy_per_iteration_j),
        common=MEASUREMENT,
        as_confirmed=MEASUREMENT,
    ),
]

RUN_AT_200_W = PlannedRun(gpus="0", cap_w=200.0, repeat=1)
SWEEP: list[Event] = [
    events.SweepStarted(
        t_s=0.0,
        autocap_version="0.1.0",
        started_at="2025-01-02T03:04:05+00:00",
        metric=events.MetricInfo(name="edp"),
        plan=SweepPlan(
            command=("python", "train.py"),
            name="train.py",
            device="emulated",
            emulated=True,
            sets=(GpuSet(label="0", gpus=(GPU,), baseline_w=260.0, caps_w=(260.0, 200.0)),),
            repeats=2,
            stop_slowdown=0.5,
        ),
        runs_left=5,
    ),
    events.SweepRunStarted(t_s=1.0, run=RUN_AT_200_W),
    events.SweepRunEnded(
        t_s=9.0, finished=FinishedRun(run=RUN_AT_200_W, used=Used(time_s=8.0, energy_j=(900.0,)), exit_status=0)
    ),
]


def created(path: Path | None, *, force: bool = False) -> RunDirectory:
    return RunDirectory.create(path, force, STARTED_AT)


def a_run(path: Path, events: Sequence[Event] = tuple(EVENTS)) -> Path:
    with created(path) as run:
        for event in events:
            run.append(event)
    return path


def sample(t_s: float, *powers_w: float | None) -> Sample:
    readings = tuple(Reading(t_s=t_s - 0.01, power_w=power_w, requested_w=200.0) for power_w in powers_w)
    return Sample(t_s=t_s, readings=readings, steps=StepReading(count=7, t_s=t_s - 0.5))


def rows(path: Path) -> list[dict[str, str]]:
    """The samples that can be read so far, also from a file that a kill cut short."""
    text = zlib.decompressobj(wbits=31).decompress((path / "samples.csv.gz").read_bytes()).decode()
    return list(csv.DictReader(io.StringIO(text)))


def test_an_event_is_one_line_named_after_its_kind_and_written_at_once(tmp_path: Path) -> None:
    run = created(tmp_path)
    run.append(next(event for event in EVENTS if isinstance(event, events.CapSet)))
    text = (tmp_path / "events.jsonl").read_text()  # before anything was closed
    run.close()
    assert text == '{"event": "cap_set", "t_s": 22.0, "cap_w": [200.0]}\n'


def test_events_and_fields_of_a_later_version_are_left_out_and_said(tmp_path, caplog) -> None:
    lines = [
        '{"event": "gpu_danced", "t_s": 1.0}',
        '{"event": "warned", "t_s": 2, "text": "hot", "colour": "red"}',
        '{"event": "state_entered", "t_s": 3.0, "state": "DREAMING"}',
        '{"event": "run_ended", "t_s": 4.0, "ended_because": "done"}',
    ]
    (tmp_path / "events.jsonl").write_text("\n".join(lines) + "\n")
    assert read_events(tmp_path) == [events.Warned(t_s=2.0, text="hot"), events.RunEnded(t_s=4.0, ended_because="done")]
    assert "1 event that this autocap does not know is left out (gpu_danced): of a plug-in that is" in caplog.text


def test_an_unknown_error_survives_as_infinite_without_breaking_json(tmp_path: Path) -> None:
    unsure = events.BaselineMeasured(t_s=1.0, measurement=replace(MEASUREMENT, power_rel_stderr=float("inf")))
    with created(tmp_path) as run:
        run.append(unsure)
    assert '"power_rel_stderr": null' in (tmp_path / "events.jsonl").read_text()
    assert read_events(tmp_path) == [unsure]
    assert result([EVENTS[0], unsure], tmp_path / "result")["baseline"]["power_rel_stderr"] is None


def test_a_directory_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"holds no run: there is no events.jsonl in it; pass a directory"):
        read_events(tmp_path)
    with pytest.raises(RunDirectoryError, match="holds no run"):
        read_events(tmp_path / "absent")


def test_the_default_name_sorts_by_start_in_utc_and_is_of_one_run(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    started = datetime(2025, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=2)))
    first = f"20250102T010405Z-{os.getpid()}"
    for name in (first, f"{first}-2", f"{first}-3"):
        with RunDirectory.create(None, force=False, started=started) as run:
            assert run.path == Path("autocap-runs") / name
            assert run.path.is_dir()


def test_a_directory_that_holds_a_run_is_refused_and_untouched(tmp_path: Path) -> None:
    before = (a_run(tmp_path) / "events.jsonl").read_bytes()
    with pytest.raises(RunDirectoryError, match=r"holds a run already \(events.jsonl\); .*--out, or .*--force"):
        created(tmp_path)
    assert (tmp_path / "events.jsonl").read_bytes() == before
    (tmp_path / "events.jsonl").unlink()
    (tmp_path / "samples.csv.gz").unlink()
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(RunDirectoryError, match=r"holds a run already \(result.json\)"):
        created(tmp_path)


def test_force_removes_the_old_run_and_nothing_else(tmp_path: Path) -> None:
    a_run(tmp_path)
    for name in ("result.json", "report.html", "caps.svg", "mine.txt"):
        (tmp_path / name).write_text("x")
    created(tmp_path, force=True).close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.jsonl", "mine.txt", "samples.csv.gz"]
    assert read_events(tmp_path) == []


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunDirectoryError, match="file is a file; choose a directory with --out"):
        created(tmp_path / "file")
    with pytest.raises(RunDirectoryError, match="cannot be written: Not a directory; choose another with --out"):
        created(tmp_path / "file" / "below")


def test_a_discarded_run_leaves_nothing_that_it_made(tmp_path: Path) -> None:
    run = created(tmp_path / "runs" / "one")
    run.append(EVENTS[0])
    run.discard()
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "mine.txt").touch()
    created(tmp_path / "theirs").discard()
    assert [path.name for path in (tmp_path / "theirs").iterdir()] == ["mine.txt"]


def test_one_devices_samples_are_what_the_period_command_reads(tmp_path: Path) -> None:
    with created(tmp_path) as run:
        run.sample(sample(1.0, 150.25))
        run.sample(sample(1.1, None))
    first, second = rows(tmp_path)
    assert list(first) == [
        *("t_s", "power_w", "read_t_s", "energy_j", "beside_j", "requested_w", "enforced_w", "sm_clock_hz"),
        *("cap_binding", "throttled", "utilisation", "temperature_c", "steps", "step_t_s"),
    ]
    assert {field.name for field in fields(Reading)} - {"t_s", "knob_value"} <= set(first), (
        "every field of a reading has a column"
    )
    assert (first["t_s"], first["power_w"], first["read_t_s"]) == ("1", "150.25", "0.99")
    assert (first["energy_j"], first["throttled"], first["steps"], first["step_t_s"]) == ("", "0", "7", "0.5")
    assert second["power_w"] == ""


def test_several_devices_have_a_total_which_is_unknown_where_one_of_them_is(tmp_path: Path) -> None:
    with created(tmp_path) as run:
        run.sample(sample(1.0, 150.0, 50.5))
        run.sample(sample(2.0, 150.0, None))
    first, second = rows(tmp_path)
    assert (first["power_w"], first["power_w_0"], first["power_w_1"]) == ("200.5", "150", "50.5")
    assert (second["power_w"], second["power_w_0"], second["power_w_1"]) == ("", "150", "")


def test_large_counters_and_late_times_keep_their_digits(tmp_path: Path) -> None:
    reading = Reading(t_s=1e6, power_w=100.0, energy_j=123456789.125, sm_clock_hz=1.335e9)
    with created(tmp_path) as run:
        run.sample(Sample(t_s=1_000_000.001, readings=(reading,)))
    row = rows(tmp_path)[0]
    assert (row["t_s"], row["energy_j"], row["sm_clock_hz"]) == ("1000000.001", "123456789.125", "1335000000")


def test_a_kill_loses_at_most_five_seconds_of_samples(tmp_path: Path) -> None:
    run = created(tmp_path)
    for tick in range(200):
        run.sample(sample(tick / 10, 150.0))
        assert tick / 10 - float(rows(tmp_path)[-1]["t_s"]) <= 5.0  # what a kill would leave
    run.close()
    assert len(rows(tmp_path)) == 200
    decompressor = zlib.decompressobj(wbits=31)
    decompressor.decompress((tmp_path / "samples.csv.gz").read_bytes())
    assert decompressor.eof  # its trailer and checksum are there


MEASUREMENT_KEYS = [
    *("cap_w", "start_s", "duration_s", "iterations", "period_s", "period_rel_stderr", "power_w", "power_rel_stderr"),
    *("energy_per_iteration_j", "energy_rel_stderr", "time_energy_corr", "cap_binding"),
    *("sm_clock_hz", "valid", "reason"),
]


def result(events: list[Event], path: Path) -> dict[str, object]:
    with created(path) as run:
        run.put_result(to_json_dict(summarise(events)))
    loaded: dict[str, object] = json.loads((path / "result.json").read_text())
    return loaded


def test_the_result_has_the_keys_of_schema_1_and_no_others(tmp_path: Path) -> None:
    whole = result(EVENTS, tmp_path)

    def keys(*path: str | int) -> list[str]:
        part = whole
        for step in path:
            part = part[step]  # type: ignore[index,assignment]  # plain JSON, walked by hand
        return list(part)

    assert keys() == [
        *("schema", "autocap_version", "mode", "command", "pid", "started_at", "ended_because", "device", "metric"),
        *("strategy", "progress", "baseline", "trials", "chosen", "decided_because", "best_by_metric", "pareto"),
        *("totals", "versus_baseline", "states", "warnings"),
    ]
    assert whole["schema"] == 1
    assert keys("device") == ["kind", "emulated", "gpus"]
    assert keys("device", "gpus", 0) == [
        *("index", "uuid", "name", "cap_min_w", "cap_max_w", "cap_default_w", "cap_original_w", "cap_final_w"),
        "restored",
    ]
    assert keys("metric") == ["name", "k", "max_slowdown", "energy_price", "hour_price"]
    assert whole["strategy"] == {
        "name": "linear",
        "options": {"points": 5, "share": 0.5, "mode": "up", "again": True, "seed": None},
    }
    assert keys("progress") == ["kind", "confidence"]
    assert keys("baseline") == keys("trials", 0, "measurement") == keys("chosen", "measurement") == MEASUREMENT_KEYS
    assert keys("trials", 0) == [
        *("cap_w", "state", "reason", "cost", "cost_stderr", "energy_pct", "time_pct", "measurement")
    ]
    assert keys("chosen") == ["cap_w", "confirmed", "measurement"]
    assert keys("best_by_metric") == ["energy", "edp", "ed2p", "eds_1.5", "eds_2"]
    assert keys("best_by_metric", "energy") == ["cap_w", "cost", "cost_stderr", "source"]
    assert keys("pareto", 0) == ["cap_w", "energy", "energy_stderr", "time", "time_stderr", "source"]
    assert keys("totals") == ["wall_s", "energy_j", "iterations", "exploration_s", "exploration_energy_j"]
    assert keys("versus_baseline") == [
        *("energy_pct", "energy_stderr_pct", "time_pct", "time_stderr_pct", "metric_pct", "metric_stderr_pct"),
        *("net_energy_j", "net_energy_stderr_j", "net_metric_pct", "net_metric_stderr_pct", "break_even_s"),
    ]
    assert keys("states", 0) == ["name", "start_s", "end_s"]


def test_a_result_with_a_cap_per_gpu_says_what_it_gained_over_the_common_one(tmp_path: Path) -> None:
    whole = result([*EVENTS[:-1], *PER_GPU, EVENTS[-1]], tmp_path)
    chosen, versus, trials = whole["chosen"], whole["versus_common"], whole["trials"]
    assert isinstance(trials, list)
    assert chosen["cap_w"] == versus["cap_w"] == [200.0, 195.0]
    assert versus["kept"] is True
    assert versus["energy_pct"] == pytest.approx(-1.0)
    assert versus["energy_stderr_pct"] > 0
    assert versus["time_pct"] == 0.0
    assert [trial["cap_w"] for trial in trials[-2:]] == [[200.0, 190.0], [200.0, 195.0]]


def test_a_result_of_the_whole_node_has_its_own_keys_besides(tmp_path: Path) -> None:
    of_node = MEASUREMENT.with_gpus(replace(MEASUREMENT, power_w=100.0, energy_per_iteration_j=100.0))
    whole = result([*EVENTS[:2], *OF_NODE, events.BaselineMeasured(t_s=20.0, measurement=of_node)], tmp_path)
    assert whole["schema"] == 1
    assert whole["node"] == {
        **{"source": "ipmi", "whole": True, "refresh_s": 1.0, "standard_idle_w": 60.0},
        **{"idle_w": 90.0, "idle_source": "estimated", "idle_seen_s": 1.9, "idle_share": 0.5},
        "standard": [{"cap_w": [200.0], "energy_per_iteration_j": 150.0, "stderr_j": pytest.approx(1.671, abs=1e-3)}],
    }
    baseline = whole["baseline"]
    assert list(baseline) == [*MEASUREMENT_KEYS, "gpu"]
    assert baseline["gpu"] == {
        **{"power_w": 100.0, "power_rel_stderr": 0.004, "energy_per_iteration_j": 100.0, "energy_rel_stderr": 0.01},
        "time_energy_corr": 0.5,
    }
    assert list(whole["best_by_metric_gpu"]) == list(whole["best_by_metric"])  # type: ignore[call-overload]


def test_samples_have_the_nodes_columns_where_it_is_read(tmp_path: Path) -> None:
    node = NodeReading(t_s=0.5, power_w=None, whole=True)
    with created(tmp_path) as run:
        run.sample(replace(sample(1.0, 200.0), node=replace(node, power_w=700.0)))
        run.sample(replace(sample(1.1, 200.0), node=node))
    found = [[row[name] for name in ("node_power_w", "node_read_t_s", "node_whole")] for row in rows(tmp_path)]
    assert found == [["700", "0.5", "1"], ["", "0.5", "1"]]


def test_a_result_without_a_device_has_null_for_it(tmp_path: Path) -> None:
    whole = result([EVENTS[0], EVENTS[-1]], tmp_path)
    assert [whole[key] for key in ("device", "progress", "baseline", "chosen", "totals", "versus_baseline")] == [
        None
    ] * 6
    assert (whole["trials"], whole["best_by_metric"], whole["pareto"]) == ([], {}, [])


def test_a_result_is_replaced_in_one_piece(tmp_path: Path) -> None:
    with created(tmp_path) as run:
        run.put_result(to_json_dict(summarise(EVENTS[:1])))
        run.put_result(to_json_dict(summarise(EVENTS)))
    assert json.loads((tmp_path / "result.json").read_text()) == to_json_dict(summarise(EVENTS))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["events.jsonl", "result.json", "samples.csv.gz"]


ACTIONS: list[Callable[[RunDirectory], None]] = [
    lambda run: run.append(EVENTS[0]),
    lambda run: run.sample(sample(100.0, 150.0)),
    lambda run: run.put_result(to_json_dict(summarise(EVENTS))),
    lambda run: run.close(),
]


def on_a_full_disk(path: Path) -> RunDirectory:
    """A run whose log files are /dev/full, which takes no byte, and whose directory is gone."""
    run = created(path / "run")
    full = os.open("/dev/full", os.O_WRONLY)
    for number in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            file = Path(f"/proc/self/fd/{number}")
            if file.is_file() and file.readlink().is_relative_to(path):
                os.dup2(full, int(number))
    os.close(full)
    for file_path in (path / "run").iterdir():
        file_path.unlink()
    (path / "run").rmdir()
    return run


@pytest.mark.parametrize("action", ACTIONS, ids=["append", "sample", "result", "close"])
def test_a_failing_write_is_said_once_and_the_rest_does_nothing(tmp_path, action) -> None:
    run = on_a_full_disk(tmp_path)
    with pytest.raises(
        RunDirectoryError, match=r"cannot be written: .*; the run is not recorded from here on"
    ) as caught:
        action(run)
    assert isinstance(caught.value.__cause__, OSError)
    assert caught.value.__cause__.errno in (errno.ENOSPC, errno.ENOENT)
    assert run.failed
    for later in ACTIONS:
        later(run)


def test_a_reopened_run_goes_on_after_its_last_whole_line(tmp_path: Path) -> None:
    a_run(tmp_path)
    with (tmp_path / "events.jsonl").open("ab") as log:
        log.write(b'{"event": "war')
    with RunDirectory.reopen(tmp_path) as run:
        run.append(EVENTS[0])
        run.put("sweep.csv", "curve\n")
    assert read_events(tmp_path) == [*EVENTS, EVENTS[0]]
    assert (tmp_path / "sweep.csv").read_text() == "curve\n"


@pytest.mark.slow
def test_a_run_that_is_being_written_cannot_be_reopened(tmp_path: Path) -> None:
    with created(tmp_path), pytest.raises(RunDirectoryError, match="is being written by another autocap; wait for it"):
        RunDirectory.reopen(tmp_path)


def test_a_lock_held_for_a_moment_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    a_run(tmp_path)
    another = (tmp_path / "events.jsonl").open("rb")  # who looks whether it is written, or a killed writer's child
    fcntl.flock(another, fcntl.LOCK_SH)
    monkeypatch.setattr("autocap.runlog.event_log.time.sleep", lambda seconds: another.close())
    with RunDirectory.reopen(tmp_path):
        pass
    assert another.closed


def test_a_directory_without_a_run_cannot_be_reopened(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="cannot be written: No such file or directory"):
        RunDirectory.reopen(tmp_path)


def test_a_run_may_keep_no_samples(tmp_path: Path) -> None:
    with RunDirectory.create(tmp_path, False, STARTED_AT, samples=False) as run:
        run.append(EVENTS[0])
    assert [path.name for path in tmp_path.iterdir()] == ["events.jsonl"]
