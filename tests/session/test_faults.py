"""An internal fault ends the tuning and not the job, and the warning names the file that holds its traceback."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from autocap.clock import VirtualClock
from autocap.controller.context import Action
from autocap.devices.base import Device
from autocap.errors import DeviceError, RunDirectoryError
from autocap.events import Warned
from autocap.records import Reading, Sample
from autocap.runlog.directory import RunDirectory
from autocap.runlog.event_log import read_events
from autocap.session.recorder import Recorder
from autocap.session.roles import Decider
from autocap.session.runner import Runner
from autocap.session.sampling import LocalSampler


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[RunDirectory]:
    with RunDirectory.create(tmp_path / "run", False, datetime(2026, 1, 1, tzinfo=UTC)) as made:
        yield made


def fault(number: int = 0) -> Exception:
    try:
        return [][number]
    except IndexError as error:
        error.args = (f"{error} {number}\x1b[2J\n\ud800",)
        return error


def test_what_autocap_raises_on_purpose_needs_no_traceback(directory: RunDirectory) -> None:
    assert Recorder(directory).reason(DeviceError("the GPU is lost")) == "the GPU is lost"
    assert not (directory.path / "internal-fault.txt").exists()


def test_faults_are_kept_one_below_the_other_each_once_and_no_more_than_ten(directory: RunDirectory) -> None:
    faults, file = Recorder(directory), directory.path / "internal-fault.txt"
    said = [faults.reason(fault(number)) for number in (*range(12), 3)]
    assert (
        said[0] == f"internal fault: IndexError: list index out of range 0\x1b[2J\n\ud800; its traceback is in {file}"
    )
    text = file.read_text()
    assert text.count("Traceback (most recent call last):\n") == 10
    assert all(line.isprintable() for line in text.split("\n"))
    assert "tests/session/test_faults.py" in text
    assert [one.endswith(f"its traceback is in {file}") for one in said] == [*10 * [True], False, False, True]


def test_an_endless_traceback_is_cut(directory: RunDirectory) -> None:
    error: Exception = ValueError("first")
    for number in range(500):
        later = ValueError(number)
        later.__cause__ = error
        error = later
    Recorder(directory).reason(error)
    lines = (directory.path / "internal-fault.txt").read_text().splitlines()
    assert len(lines) == 400
    assert lines[-1] == "ValueError: 499"


def test_where_the_directory_is_gone_the_warning_says_that_the_traceback_is_lost(directory: RunDirectory) -> None:
    directory._events.close()
    for path in directory.path.iterdir():
        path.unlink()
    directory.path.rmdir()
    faults = Recorder(directory)
    lost = f"{directory.path / 'internal-fault.txt'} cannot be written: No such file or directory"
    assert faults.reason(fault()).endswith(f"; its traceback is lost: {lost}; the run is not recorded from here on")
    assert "its traceback is" not in faults.reason(fault(1))


class Broken(Decider):
    """A controller with a fault."""

    settings, ended_because = (), None

    def feed(self, sample: Sample) -> list[Action]:
        raise fault()


class Nothing(Device):
    gpus = ()

    def read(self) -> tuple[Reading, ...]:
        return ()


class Limits:
    """What was done to them, in order."""

    def __init__(self, directory: RunDirectory) -> None:
        self.done: list[str] = []
        self._file = directory.path / "internal-fault.txt"

    def set_caps(self, settings: object) -> None:
        self.done.append("set")

    def restore(self) -> None:
        self.done.append("restored after the traceback" if self._file.exists() else "restored")

    def beat(self) -> bool:
        return False


class Job:
    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock

    def poll(self) -> int | None:
        return 5 if self._clock.now() > 3 else None


def test_a_fault_while_tuning_puts_the_limits_back_before_its_traceback_is_written(directory: RunDirectory) -> None:
    clock, recorder, limits = VirtualClock(), Recorder(directory), Limits(directory)
    runner = Runner(
        clock=clock, sampler=LocalSampler(clock=clock, device=Nothing(), steps=lambda: None), controller=Broken(),
        job=Job(clock), sink=recorder, pace=lambda: 0.1, setter=limits,
    )  # type: ignore[arg-type]  # fmt: skip
    assert runner.run() == 5
    file = directory.path / "internal-fault.txt"
    why = f"internal fault: IndexError: list index out of range 0\x1b[2J\n\ud800; its traceback is in {file}"
    said = f"tuning ended, the job goes on: {why}"
    assert [event.text for event in recorder.events if isinstance(event, Warned)] == [said]
    assert runner.ended_because == why
    assert limits.done[0] == "restored"
    assert ", in feed\n" in file.read_text()


def test_what_cannot_be_recorded_is_a_warning_and_not_the_end(directory: RunDirectory) -> None:
    recorder = Recorder(directory)

    def fail() -> None:
        raise fault()

    def refuse() -> None:
        raise RunDirectoryError("the disk is full")

    for write in (fail, fail, refuse):
        recorder.record(1.0, write)
    said = [event.text for event in recorder.events if isinstance(event, Warned)]
    assert [text.partition(":")[0] for text in said] == ["internal fault", "the disk is full"]
    assert len(read_events(directory.path)) == 2
