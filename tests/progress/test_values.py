"""The values that a job reports: by itself, out of its output, and whatever else it writes there."""

import os
import subprocess
import sys
import tempfile
import time

import pytest

import autocap
from autocap.clock import MonotonicClock
from autocap.progress.regex import Relay
from autocap.progress.values import OF_OUTPUT, VALUES_VARIABLE, ValueFile


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch):
    with ValueFile.create() as made:
        monkeypatch.setenv(VALUES_VARIABLE, made.path)
        yield made
    assert not os.path.exists(made.path)


def test_what_is_reported_arrives_with_its_time(values: ValueFile) -> None:
    before_s = time.monotonic()
    autocap.report(accuracy=0.5, loss=2)
    autocap.report(accuracy=float("nan"))
    found = values.read(before_s)
    assert [(one.name, one.value) for one in found[:2]] == [("accuracy", 0.5), ("loss", 2.0)]
    assert found[2].value != found[2].value
    assert all(0 <= one.t_s <= time.monotonic() - before_s for one in found)
    assert values.read(before_s) == []


def test_nothing_happens_where_nobody_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VALUES_VARIABLE, raising=False)
    autocap.report(accuracy=0.5)
    monkeypatch.setenv(VALUES_VARIABLE, "/nowhere/at/all")
    autocap.report(accuracy=0.5)
    with tempfile.NamedTemporaryFile() as other:
        monkeypatch.setenv(VALUES_VARIABLE, other.name)
        autocap.report(accuracy=0.5)
        assert other.read() == b"", "a file that is none of ours is left alone"


def test_what_is_no_number_is_the_scripts_own_error(values: ValueFile) -> None:
    with pytest.raises((TypeError, ValueError)):
        autocap.report(accuracy="good")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="is no name of a value"):
        autocap.report(**{"a b": 1.0})


def test_whatever_a_job_writes_there_is_passed_over(values: ValueFile) -> None:
    with open(values.path, "ab") as file:
        file.write(b"\0\xff" * 3000 + b"\n1 a\n1 a b\nx a 1\n" + b"9" * 400 + b" a 1\n" + b"1 half 0.")
    assert values.read(0.0) == []
    with open(values.path, "ab") as file:
        file.write(b"5\n999999999999999999999 late 1\n")
    half, late = values.read(0.0)
    assert (half.name, half.value) == ("half", 0.5)
    assert late.t_s <= time.monotonic()
    os.truncate(values.path, 0)
    assert values.read(0.0) == []


def test_a_relay_reads_them_out_of_the_output_on_its_way(values: ValueFile) -> None:
    said = "acc nothing\nacc 0.25\nacc 1,000.5 acc 7\n"
    with tempfile.TemporaryFile() as sink, Relay.start(r"acc (\S+)", sink=sink.fileno(), values=values.path) as relay:
        with relay.child_stdout() as stdout:
            subprocess.run([sys.executable, "-S", "-c", f"print({said!r}, end='')"], stdout=stdout, check=True)
        assert relay.drain(MonotonicClock())
        assert os.pread(sink.fileno(), 100, 0) == said.encode()
    assert [(one.name, one.value) for one in values.read(0.0)] == [(OF_OUTPUT, 0.25), (OF_OUTPUT, 1000.5)]
