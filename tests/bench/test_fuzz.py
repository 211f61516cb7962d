"""`python -m bench fuzz`: that it sees what it is there to see, makes the same cases again, and leaves nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.fuzz import mutation, texts
from bench.fuzz.case import COLUMNS, Call, Case, Outcome, judged
from bench.fuzz.command import drawn, table
from bench.fuzz.kinds import KINDS

TRACES, HANGS, MEMORY, LINES, CONTROL, STATUS = COLUMNS
CASE = Case("runs", 0, 7)
REPORT = Call(words=("report", "run"))


def outcome(
    *, call: Call | None = REPORT, status: int | None = 0, out: str = "", err: str = "",
    peak_mb: float = 90.0,
) -> Outcome:  # fmt: skip
    encoded = [text.encode(errors="surrogateescape") for text in (out, err)]
    return judged(CASE, call, status=status, wall_s=1.0, peak_mb=peak_mb, out=encoded[0], err=encoded[1])


@pytest.mark.parametrize(
    ("seen", "columns"),
    [
        (outcome(out="power 200 W\nenergy 3 J\n"), set()),
        (outcome(status=1, err="autocap: nothing there\n"), set()),
        (outcome(status=1, err="autocap: warning: 9 lines are damaged\nautocap: the run has no start\n"), set()),
        (outcome(status=1, err="autocap: warning: line 1\nautocap: warning: line 2\nautocap: no start\n"), {LINES}),
        (outcome(status=1, out="one limit is still away\n"), set()),
        (outcome(call=Call(words=("run",), talks=True), err="autocap: a\n" * 50), set()),
        (outcome(call=Call(words=("run",)), status=127, err="autocap: not found\n"), set()),
        (outcome(status=1, err="Traceback (most recent call last):\n  File\nValueError: x\n"), {TRACES, LINES}),
        (outcome(status=1, err="autocap: internal fault: KeyError: 'x'\n"), {TRACES}),
        (outcome(status=None), {HANGS}),
        (outcome(peak_mb=501.0), {MEMORY}),
        (outcome(status=1), {LINES}),
        (outcome(status=2, err="autocap: a\nb\n"), {LINES}),
        (outcome(err="autocap: line 1 is damaged\n" * 11), {LINES}),
        (outcome(out="name \x1b[2J\n"), {CONTROL}),
        (outcome(err="autocap: \u202e\n"), {CONTROL}),
        (outcome(out="\udcff"), {CONTROL}),
        (outcome(status=120, err="x\n"), {STATUS}),
        (outcome(status=-signal.SIGSEGV), {STATUS}),
        (outcome(status=127, err="autocap: not found\n"), {STATUS}),
        (outcome(call=None, err="ValueError"), {TRACES}),
    ],
)
def test_what_is_wrong_with_an_outcome_is_seen(seen: Outcome, columns: set[str]) -> None:
    assert seen.complaints.keys() == columns


def test_a_case_is_the_same_each_time_whatever_stands_around_it() -> None:
    line = b'{"event": "warned", "t_s": 1.5, "text": "a", "caps": [1, 2.5, null]}'
    made = [[mutation.json_line(case.random(), line) for case in drawn(["runs"], 50, seed=3)] for _ in range(2)]
    assert made[0] == made[1]
    assert len(set(made[0])) > 40
    assert [texts.text(CASE.random()) for _ in range(2)] == [texts.text(CASE.random())] * 2
    assert str(CASE) == "python -m bench fuzz --kinds 'runs' --seed 0 --case 7"


def test_every_kind_has_its_share_and_at_least_one_case() -> None:
    cases = drawn(tuple(KINDS), 2000, seed=0)
    assert {case.kind for case in cases} == set(KINDS)
    assert len(set(cases)) == len(cases)
    assert {case.kind for case in drawn(tuple(KINDS), len(KINDS), seed=0)} == set(KINDS)


def test_the_table_counts_by_kind_and_in_all() -> None:
    *_, runs, everything = [line.split() for line in table([outcome(), outcome(status=None), outcome(status=120)])]
    assert runs == ["runs", "3", "0", "1", "0", "0", "0", "1", "90", "MB", "1.0", "s"]
    assert everything[:8] == ["all", "3", "0", "1", "0", "0", "0", "1"]


def test_a_handful_of_cases_are_played_and_nothing_is_left(tmp_path: Path) -> None:
    kinds = "command lines,warm starts,curves,journals"
    done = fuzz(tmp_path, "--cases", "8", "--kinds", kinds)
    assert "the bench could not make this case" not in done.stdout
    last = next(line for line in done.stdout.splitlines() if line.startswith("all ")).split()
    assert last[1] == "8", done.stdout + done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_interrupt_ends_it_and_leaves_nothing(tmp_path: Path) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    words = [sys.executable, "-m", "bench", "fuzz", "--cases", "5000"]
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as bench:
        deadline_s = time.monotonic() + 30
        while not list(tmp_path.glob("*/cases/*")) and time.monotonic() < deadline_s:
            time.sleep(0.01)
        bench.send_signal(signal.SIGINT)
        try:
            out, err = bench.communicate(timeout=20)
        finally:
            bench.kill()
    assert (bench.returncode, out, err) == (130, "", "bench fuzz: interrupted\n")
    assert list(tmp_path.iterdir()) == []


def fuzz(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TMPDIR": str(folder)}
    return subprocess.run(
        [sys.executable, "-m", "bench", "fuzz", *words],
        env=environment, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
