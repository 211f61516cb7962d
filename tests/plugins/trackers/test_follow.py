"""A run directory, followed into a sink, and into an open run of the training script."""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from io import FileIO
from pathlib import Path

import pytest

from autocap.events import Event
from autocap.plugins.trackers.process import Joined
from autocap.plugins.trackers.rows import follow
from autocap.plugins.trackers.sink import Result, Row, Setting
from autocap.runlog.event_log import EVENTS, line_of, locked
from tests.doubles.told import told
from tests.doubles.waiting import eventually


class Kept:
    """Keeps what it is told. A fault, where there is one, is raised by `log`."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.told: list[Mapping[str, Setting] | Row | Result] = []
        self._fault = fault

    def begin(self, settings: Mapping[str, Setting]) -> None:
        self.told.append(settings)

    def log(self, row: Row) -> None:
        if self._fault is not None:
            raise self._fault
        self.told.append(row)

    def end(self, result: Result) -> None:
        self.told.append(result)


class Hanging(Kept):
    """Never comes back, until it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()

    def begin(self, settings: Mapping[str, Setting]) -> None:
        self.free.wait()


@pytest.fixture
def hanging() -> Iterator[Hanging]:
    made = Hanging()
    yield made
    made.free.set()


def write(folder: Path, log: Sequence[Event]) -> None:
    (folder / EVENTS).write_bytes(b"".join(map(line_of, log)))


def result_of(sink: Kept) -> Result:
    settings, *rows, result = sink.told
    assert isinstance(settings, dict)
    assert rows
    assert all(isinstance(row, Row) for row in rows)
    assert isinstance(result, Result)
    return result


def test_a_run_is_begun_logged_and_ended_in_this_order(tmp_path: Path) -> None:
    write(tmp_path, told())
    sink = Kept()
    follow(tmp_path, sink, threading.Event())
    assert not result_of(sink).killed


def test_a_run_that_nobody_writes_any_more_is_ended_as_killed(tmp_path: Path) -> None:
    write(tmp_path, told()[:10])
    sink = Kept()
    follow(tmp_path, sink, threading.Event(), every_s=0.0)
    assert result_of(sink).killed


def test_a_run_of_nothing_is_begun_and_ended_too(tmp_path: Path) -> None:
    write(tmp_path, [told()[0], told()[-1]])
    sink = Kept()
    follow(tmp_path, sink, threading.Event())
    settings, result = sink.told
    assert isinstance(settings, dict)
    assert isinstance(result, Result)
    assert result.words["autocap/headline"] == "Not tuned"


def test_whoever_follows_ends_when_asked_to_with_what_was_written_by_then(tmp_path: Path) -> None:
    stop, sink = threading.Event(), Kept()
    stop.set()
    with FileIO(tmp_path / EVENTS, "xb") as log:
        locked(log, tmp_path)
        log.write(b"".join(map(line_of, told()[:10])))
        follow(tmp_path, sink, stop)
    assert result_of(sink).killed


def joined(tmp_path: Path, sink: Kept) -> Joined:
    made = Joined("mlflow", sink, tmp_path / "run", every_s=0.01)
    made.start()
    (tmp_path / "run").mkdir()
    write(tmp_path / "run", told())
    return made


def test_an_open_run_is_told_of_a_directory_that_is_still_to_come(tmp_path: Path) -> None:
    sink = Kept()
    joined(tmp_path, sink).end(20.0)
    assert not result_of(sink).killed


def test_an_open_run_is_told_nothing_of_an_older_run_in_the_same_directory(tmp_path: Path) -> None:
    write(tmp_path, told(emulated=True))
    sink = Kept()
    one = Joined("mlflow", sink, tmp_path, every_s=0.01)
    one.start()
    (tmp_path / EVENTS).unlink()
    write(tmp_path, told(emulated=False))
    one.end(20.0)
    assert "autocap/verdict" in result_of(sink).words


def test_where_no_run_comes_an_open_run_is_told_nothing(tmp_path: Path) -> None:
    sink = Kept()
    one = Joined("mlflow", sink, tmp_path / "run", every_s=0.01)
    one.start()
    one.end(60.0)
    assert sink.told == []


def test_a_fault_of_a_tracker_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        joined(tmp_path, Kept(OSError("no server"))).end(20.0)
    assert caplog.messages == ["autocap: nothing more is logged to mlflow: OSError: no server"]


def test_a_tracker_that_hangs_is_not_waited_for(tmp_path, hanging, caplog) -> None:
    one = joined(tmp_path, hanging)
    with caplog.at_level(logging.WARNING):
        one.end(0.01)
    (said,) = caplog.messages
    assert said == "autocap: mlflow has not taken the run's last numbers within 0.01 s, and is not waited for"
    hanging.free.set()
    eventually(lambda: hanging.told)
