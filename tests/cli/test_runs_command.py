"""`autocap runs`, `autocap report` without a run, and `autocap report A B`."""

import fcntl
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.cli import main
from autocap.events import Decided, RunEnded
from autocap.reports.comparison import compare
from autocap.reports.rendering import present_run
from autocap.reports.summary.record import Summary
from autocap.reports.summary.summarise import summarise
from autocap.runlog.event_log import EVENTS, line_of, read_events
from autocap.sweep.document import present_sweep
from tests.doubles.recorded import record
from tests.sweep.test_sweep_page import swept

RESULT = "result.json"


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_result(record(tmp_path_factory.mktemp("runs") / "run"))


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return with_result(record(tmp_path_factory.mktemp("runs") / "run", strategy="golden"))


def with_result(run: Path) -> Path:
    (run / RESULT).write_text(json.dumps(present_run(run, read_events(run)).result))
    return run


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of runs, in the current one."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "autocap-runs").mkdir()
    return tmp_path / "autocap-runs"


def begun(run: Path, at: str) -> None:
    """Let a copy of a run have begun at another time."""
    for name in (EVENTS, RESULT):
        text = (run / name).read_text(errors="surrogateescape")
        (run / name).write_text(text.replace("2026-01-01T00:00:00+00:00", at), errors="surrogateescape")


def without(run: Path, *kinds: type, result: bool = False) -> None:
    """Drop events of a run, as a kill does."""
    kept = [event for event in read_events(run) if not isinstance(event, kinds)]
    (run / EVENTS).write_bytes(b"".join(map(line_of, kept)))
    if not result:
        (run / RESULT).unlink()


@contextmanager
def being_written(run: Path) -> Iterator[None]:
    with (run / EVENTS).open("ab") as log:
        fcntl.flock(log, fcntl.LOCK_EX)
        yield


Said = Callable[..., str]


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Said:
    """What a command prints on standard output, at a width."""

    def run(*words: str, width: int = 400) -> str:
        monkeypatch.setenv("COLUMNS", str(width))
        assert main(list(words)) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = main(list(words))
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return status, err.removeprefix("autocap: ").rstrip("\n")


def test_runs_are_listed_the_latest_first_with_what_they_saved(tuned: Path, place: Path, said: Said) -> None:
    for name, at in (("b", "2026-03-01T10:00:00+02:00"), ("a", "2026-03-01T09:30:00+00:00"), ("z", "2025-12-31")):
        begun(shutil.copytree(tuned, place / name), at if "T" in at else f"{at}T23:59:00+00:00")
    lines = said("runs").splitlines()
    assert lines[0] == "runs in autocap-runs, the latest first"
    assert lines[1].split() == ["when", "run", "state", "device", "metric", "command", "kept", "W", "saved"]
    assert [line.split()[:3] for line in lines[2:]] == [
        ["2026-03-01", "09:30", "a"],
        ["2026-03-01", "10:00", "b"],  # an hour and a half before, in another zone
        ["2025-12-31", "23:59", "z"],
    ]
    summary = summarise(read_events(tuned))
    versus = summary.versus_baseline
    assert versus.time_pct is not None
    expected = (
        f"{-versus.energy_pct:.1f} ± {versus.energy_stderr_pct:.1f} % energy (emulated), "
        f"time {versus.time_pct:+.1f} ± {versus.time_stderr_pct:.1f} %"
    )
    assert "finished  simulated Quadro RTX 6000  eds     python train.py " in lines[2]
    assert max(map(len, said("runs", width=50).splitlines())) <= 50
    assert lines[2].endswith(f"  {summary.chosen.setting[0]:g} of 260  {expected}")


@pytest.mark.slow
def test_a_run_without_a_result_is_read_from_its_events_and_its_state_is_told(tuned, place, said) -> None:
    for name in ("killed", "young", "going", "damaged"):
        shutil.copytree(tuned, place / name)
    without(place / "killed", RunEnded)
    without(place / "young", RunEnded, Decided)
    without(place / "going", RunEnded, Decided)
    (place / "damaged" / RESULT).write_text('{"mode": 3, "schema": ')
    with being_written(place / "going"):
        found = {Path(row["directory"]).name: row for row in json.loads(said("runs", "--json"))}
        text = {line.split()[2]: line for line in said("runs").splitlines()[2:]}
    states = {"killed": "killed", "young": "killed", "going": "running", "damaged": "finished"}
    assert {name: row["state"] for name, row in found.items()} == states
    assert found["killed"]["cap_w"] == found["damaged"]["cap_w"] == [165.0]
    assert found["killed"]["ended_because"] is None
    assert found["young"]["cap_w"] is None
    assert text["young"].endswith("–  no cap kept: killed before anything was decided")
    assert text["going"].endswith("–  nothing is decided yet")


@pytest.mark.slow
def test_why_no_cap_was_kept_is_said(tuned: Path, place: Path, said: Said) -> None:
    run = shutil.copytree(tuned, place / "none")
    events = read_events(run)
    reason = "not better beyond its error: eds 0.998 ± 0.002"
    kept = [replace(one, setting=None, reason=reason) if isinstance(one, Decided) else one for one in events]
    (run / EVENTS).write_bytes(b"".join(map(line_of, kept)))
    with_result(run)
    record(place / "observed", observe=True)
    lines = said("runs").splitlines()[2:]
    assert lines[0].endswith("–  no cap kept: it only observed")
    assert lines[1].endswith(f"–  no cap kept: {reason}")
    (row, *_) = [row for row in json.loads(said("runs", "--json")) if row["directory"].endswith("none")]
    assert (row["cap_w"], row["saved"], row["why"]) == (None, None, reason)


def test_what_cannot_be_read_has_a_row_that_says_so_and_what_is_no_run_has_none(tuned, place, said) -> None:
    shutil.copytree(tuned, place / "sound")
    (place / "notes.txt").write_text("")
    (place / "folder").mkdir()
    (place / "dangling").symlink_to("nowhere")
    for name in ("empty", "pipe", "directory", "garbage", "loop\x1b[2J", "link"):
        (place / name).mkdir()
    (place / "empty" / EVENTS).touch()
    os.mkfifo(place / "pipe" / EVENTS)
    (place / "directory" / EVENTS).mkdir()
    (place / "garbage" / EVENTS).write_bytes(os.urandom(5000))
    (place / "loop\x1b[2J" / EVENTS).symlink_to(EVENTS)
    (place / "link" / EVENTS).symlink_to("/dev/zero")
    out = said("runs")
    assert "\x1b" not in out
    rows = {line[18:].split()[0]: line for line in out.splitlines()[2:]}
    assert rows.keys() == {"sound", "empty", "pipe", "directory", "garbage", "loop\\x1b[2J", "link"}
    assert out.splitlines()[2].split()[2] == "sound"
    start = "the run has no start on record: it was killed before its first event was written"
    for name, why in {
        "empty": start,
        "garbage": start,
        "pipe": f"{Path('autocap-runs/pipe/events.jsonl')} is a named pipe; pass a file",
        "directory": "Is a directory",
        "loop\\x1b[2J": "Too many levels of symbolic links",
        "link": "autocap-runs/link/events.jsonl is a device; pass a file",
    }.items():
        assert rows[name].endswith(f"cannot be read: {why}"), rows[name]
    troubles = {Path(row["directory"]).name: row["trouble"] for row in json.loads(said("runs", "--json"))}
    assert (troubles["sound"], troubles["empty"]) == (None, start)


def test_a_sweep_has_a_row_of_its_own_and_is_read_from_its_events(tuned, place, said, capsys) -> None:
    """An earlier part of it may have left a result."""
    events = swept(("0", "0,1"), repeats=1)
    for name, there in (("whole", events), ("part", events[:6])):
        (place / name).mkdir()
        (place / name / EVENTS).write_bytes(b"".join(map(line_of, there)))
    (place / "part" / RESULT).write_text(json.dumps(present_sweep(events).result))
    with being_written(place / "part"):
        lines = said("runs").splitlines()[2:]
    assert lines[0].split()[2:8] == ["whole", "finished", "2", "×", "card", "eds"]
    assert lines[0].endswith("–  a sweep, complete")
    assert lines[1].split()[2:4] == ["part", "running"]
    assert lines[1].endswith(f"–  a sweep, {len(events) - 2 - 5} runs left")
    assert refused(capsys, "report", str(tuned), str(place / "whole")) == (
        1, f"{place / 'whole'} is a sweep, and only runs can be compared; show it by itself"
    )  # fmt: skip


HOSTILE = [
    {"mode": "run"},
    {"mode": "run", "command": "x", "started_at": 3},
    {"chosen": {"cap_w": []}},
    {"chosen": {"cap_w": [1e300]}},
    {"chosen": {"cap_w": [160.0]}, "versus_baseline": None},
    {"chosen": {"cap_w": [160.0]}, "device": None},
    {"started_at": "0001-01-01T00:00:00+23:59"},
    {"started_at": "9999-12-31T23:59:59-23:59"},
    {"started_at": "\x1b]0;x\x07" * 1000},
    {"command": ["\x1b[2J", "\ud800", "x" * 100000]},
    {"metric": {"name": "\x9b2J" * 1000, "k": 1e14}},
    {"ended_because": "\x1b[2J\n" * 1000, "chosen": None, "device": None},
    {"mode": "sweep"},
    {"device": {"emulated": True, "gpus": [], "kind": "x"}},
]


@pytest.mark.parametrize("fields", HOSTILE, ids=[str(fields)[:60] for fields in HOSTILE])
def test_a_result_that_no_run_has_written_makes_a_row_like_any_other(fields, tuned, place, said) -> None:
    run = shutil.copytree(tuned, place / "run")
    result = json.loads((run / RESULT).read_text())
    (run / RESULT).write_text(json.dumps({**result, **fields} if len(fields) < 2 or "mode" not in fields else fields))
    out = said("runs", width=80)
    assert len(out) < 20_000
    assert not set(map(ord, out)) & ({*range(32), *range(127, 160)} - {10})
    (row,) = json.loads(said("runs", "--json"))
    assert row["trouble"] is None


def test_a_directory_without_runs_is_no_error_and_a_run_is_no_directory_of_runs(tuned, place, said, capsys) -> None:
    assert said("runs") == "there are no runs in autocap-runs\n"
    assert json.loads(said("runs", "--json")) == []
    place.rmdir()
    assert said("runs") == "there are no runs in autocap-runs\n"
    (place.parent / "file").touch()
    assert refused(capsys, "runs", "file") == (
        1, "file cannot be read: Not a directory; pass a directory with runs in it"
    )  # fmt: skip
    assert refused(capsys, "runs", str(tuned)) == (
        1, f"{tuned} is a run, no directory of runs; show it with `autocap report {tuned}`"
    )  # fmt: skip
    assert said("runs", str(tuned.parent)).splitlines()[2].split()[2] == "run"


def test_a_run_that_has_just_been_made_is_not_locked_under_its_writer(place: Path, said: Said) -> None:
    """Between making its log and locking it a writer must find nobody there."""
    (place / "new").mkdir()
    with (place / "new" / EVENTS).open("wb") as log:
        with (place / "new" / EVENTS).open("rb") as holder:
            fcntl.flock(holder, fcntl.LOCK_EX)
            assert "no start on record" in said("runs")  # did not even ask for the lock
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)


@pytest.mark.slow
def test_report_without_a_run_shows_the_latest(tuned, other, place, capsys) -> None:
    assert refused(capsys, "report") == (
        1, "there is no run in autocap-runs; pass a run directory, or make one with `autocap run -- CMD …`"
    )  # fmt: skip
    begun(shutil.copytree(tuned, place / "z"), "2026-01-01T00:00:00+00:00")
    begun(shutil.copytree(other, place / "a"), "2026-01-02T00:00:00+00:00")
    (place / "zz").mkdir()
    (place / "zz" / EVENTS).touch()
    assert main(["report", "--json"]) == 0
    out, err = capsys.readouterr()
    assert err == "autocap: the latest run is autocap-runs/a\n"
    assert json.loads(out)["strategy"]["name"] == "golden"
    for words in ([], ["--html"], ["--follow"]):
        assert main(["report", *words]) == 0
    assert (place / "a" / "report.html").exists()


def test_report_takes_two_runs_at_most_and_of_two_no_page(tuned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tuned)
    status, why = refused(capsys, "report", run, run, run)
    assert (status, why) == (2, "report shows one run or compares two, and these are 3; give at most two")
    for option in ("--html", "--plots", "--follow"):
        status, why = refused(capsys, "report", run, run, option)
        assert (status, why) == (2, f"{option} is about one run, and these are two; give one, or leave the option out")
    assert refused(capsys, "report", run, "nowhere")[0] == 1


def test_two_runs_are_compared_with_the_errors_of_both(tuned: Path, other: Path, said: Said) -> None:
    text = said("report", str(tuned), str(other))
    first, second = (summarise(read_events(run)) for run in (tuned, other))
    assert first.chosen.measurement is not None
    assert second.chosen.measurement is not None
    found = json.loads(said("report", str(tuned), str(other), "--json"))
    assert [run["strategy"]["name"] for run in found["runs"]] == ["model", "golden"]
    assert found["comparison"]["differences"] == [{"setting": "strategy", "first": "model", "second": "golden"}]
    assert found["comparison"]["obstacles"] == []
    one, two = first.chosen.measurement, second.chosen.measurement
    held = found["comparison"]["held"]
    ratio = two.energy_per_iteration_j / one.energy_per_iteration_j
    assert held["energy_pct"] == pytest.approx(100 * (ratio - 1))
    stderr_pct = 100 * ratio * (one.energy_rel_stderr**2 + two.energy_rel_stderr**2) ** 0.5
    assert held["energy_stderr_pct"] == pytest.approx(stderr_pct, rel=1e-6)
    assert f"{held['energy_pct']:+.1f} ± {held['energy_stderr_pct']:.1f} %" in text
    assert "What they came to (emulated)" in text
    first_line = f"A: {tuned}, begun 2026-01-01T00:00:00+00:00 (EMULATED power: modelled, not measured)"
    assert text.splitlines()[0] == first_line
    with_itself = said("report", str(tuned), str(tuned))
    assert "their settings are the same" in with_itself
    assert "+0.0 ± " in with_itself


@pytest.mark.parametrize("width", [50, 80, 100])
def test_a_comparison_is_as_wide_as_the_terminal(tuned: Path, other: Path, said: Said, width: int) -> None:
    lines = said("report", str(tuned), str(other), width=width).splitlines()
    assert max(len(line) for line in lines if str(tuned) not in line and str(other) not in line) <= width


def test_runs_of_different_work_are_not_compared_and_what_differs_is_said(tuned: Path, other: Path) -> None:
    one = summarise(read_events(tuned))
    gpus = tuple(replace(gpu, name="Tesla V100") for gpu in one.device.gpus)
    other_gpus = replace(one, device=replace(one.device, gpus=gpus))
    real = replace(one, device=replace(one.device, emulated=False))
    by_period, by_speed = (replace(one, progress=replace(one.progress, kind=kind)) for kind in ("period", "speed"))
    slower = replace(by_period, baseline=replace(one.baseline, period_s=2 * one.baseline.period_s))
    paces = f"takes {one.baseline.period_s:.4g} s in A and {slower.baseline.period_s:.4g} s in B"
    ours = "the devices differ: simulated Quadro RTX 6000 (emulated) and"
    cases: list[tuple[Summary, Summary, list[str]]] = [
        (one, replace(one, command=("python", "other.py")), ["the commands differ"]),
        (one, other_gpus, [f"{ours} Tesla V100 (emulated)"]),
        (one, real, [f"{ours} simulated Quadro RTX 6000"]),
        (one, by_period, ["iterations are counted from steps and from period"]),
        (by_period, by_period, []),
        (by_period, slower, [f"an iteration from period {paces}, so it may not be the same work"]),
        (by_speed, by_speed, ["iterations from speed are not the same in two runs"]),
        (one, replace(one, baseline=None, chosen=None), ["B has no measurement of what it ended with"]),
    ]
    for first, second, obstacles in cases:
        found = compare(first, second)
        assert list(found.obstacles) == obstacles
        assert (found.held is None) == (found.at_baseline is None) == bool(obstacles)


def test_of_two_metrics_no_difference_is_made(tuned: Path) -> None:
    one = summarise(read_events(tuned))
    found = compare(one, replace(one, metric=replace(one.metric, name="edp", k=None)))
    assert [each.setting for each in found.differences] == ["metric"]
    assert (found.held.metric_pct, found.held.energy_pct) == (None, pytest.approx(0))


def test_a_page_is_written_where_it_is_asked_for(tuned: Path, tmp_path: Path, said: Said) -> None:
    before = set(tuned.iterdir())
    said("report", str(tuned), "--html", "--out", str(tmp_path / "there"))
    assert (tmp_path / "there" / "report.html").read_text().startswith("<!DOCTYPE html>")
    assert set(tuned.iterdir()) == before
