"""`autocap report --follow`: a log that another process writes, in any state."""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from io import FileIO
from pathlib import Path

import pytest

from autocap.cli import report
from autocap.clock import VirtualClock
from autocap.errors import RunDirectoryError
from autocap.events import Event, RunEnded, State, StateEntered, Warned
from autocap.reports.live.terminal import Reporter
from autocap.runlog.event_log import EVENTS, EventTail, line_of, locked
from tests.doubles.logs import STARTED
from tests.doubles.waiting import eventually

follow = partial(report.follow, damaged=pytest.fail)
HOT, WAITING = Warned(t_s=3.0, text="hot"), StateEntered(t_s=1.0, state=State.WAITING)
ENDED = RunEnded(t_s=9.0, ended_because="the job ended")


class CapSignals(Reporter):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.said: list[str] = []
        self.closed = False

    def event(self, event: Event) -> None:
        self.events.append(event)

    def say(self, lines: object) -> None:
        assert isinstance(lines, list)
        self.said += lines

    def close(self) -> None:
        self.closed = True


class Meanwhile(VirtualClock):
    """Whenever somebody waits, the next thing happens; nobody may wait any longer than that."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self._steps = list(steps)

    def wait_until(self, t_s: float) -> int | None:
        self._steps.pop(0)()
        return super().wait_until(t_s)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FileIO]:
    """The log of a run that goes on."""
    with FileIO(tmp_path / EVENTS, "xb") as file:
        locked(file, tmp_path)
        yield file


def nothing() -> None:
    return


def test_what_is_added_is_told_as_it_comes_half_lines_once_they_are_whole(tmp_path: Path, log: FileIO) -> None:
    log.write(line_of(STARTED))
    half = len(line_of(HOT)) // 2
    heard = CapSignals()
    clock = Meanwhile(
        lambda: log.write(line_of(WAITING) + line_of(HOT)[:half]),
        nothing,
        lambda: log.write(line_of(HOT)[half:]),
        lambda: log.write(line_of(ENDED)),
    )
    assert follow(tmp_path, heard, clock) == [STARTED, WAITING, HOT, ENDED]
    assert (heard.events, heard.said) == ([STARTED, WAITING, HOT, ENDED], [])
    assert heard.closed


def test_a_finished_run_is_not_told_again(tmp_path: Path, log: FileIO) -> None:
    log.write(line_of(STARTED) + line_of(ENDED))
    heard = CapSignals()
    assert follow(tmp_path, heard, Meanwhile()) == [STARTED, ENDED]
    assert heard.events == []


def test_a_directory_without_events_yet_is_waited_for(tmp_path: Path) -> None:
    heard = CapSignals()

    def begin() -> None:
        (tmp_path / EVENTS).write_bytes(line_of(STARTED) + line_of(ENDED))

    assert follow(tmp_path, heard, Meanwhile(nothing, nothing, begin)) == [STARTED, ENDED]
    assert heard.said == [f"waiting for the first event of a run in {tmp_path}"]


def test_a_silent_run_is_followed_until_its_writer_is_gone(tmp_path: Path, log: FileIO) -> None:
    log.write(line_of(STARTED) + line_of(HOT))
    heard = CapSignals()
    clock = Meanwhile(*[nothing] * 50, log.close, nothing)
    assert follow(tmp_path, heard, clock) == [STARTED, HOT]
    assert heard.said == ["the run was killed: nobody writes its events any more, the last one is of 3 s"]


def test_the_last_words_of_a_writer_that_is_gone_are_heard(tmp_path: Path, log: FileIO) -> None:
    log.write(line_of(STARTED))
    heard = CapSignals()

    def end() -> None:
        log.write(line_of(ENDED))
        log.close()

    assert follow(tmp_path, heard, Meanwhile(nothing, end)) == [STARTED, ENDED]
    assert heard.said == []


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"there is no run directory \S+; pass a directory that"):
        follow(tmp_path / "nosuch", CapSignals(), Meanwhile())


def test_a_damaged_line_is_left_out_and_said_with_its_number(tmp_path, log, caplog) -> None:
    with EventTail(tmp_path) as tail:
        log.write(line_of(STARTED))
        assert tail.read() == [STARTED]
        log.write(b"{]\n" + line_of(HOT))
        assert tail.read() == [HOT]
        assert tail.last_s == 3.0
        assert 3.0 <= tail.now_s < 30.0
    assert "line 2 is damaged and left out" in caplog.text


class Terminal:
    """autocap in a terminal of its own, 24 lines of 80."""

    def __init__(self, *words: str) -> None:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.set_blocking(self._ours, False)
        code = (
            "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execv(sys.argv[1], sys.argv[1:])"
        )
        self.run = subprocess.Popen(
            [sys.executable, "-S", "-c", code, sys.executable, "-m", "autocap", *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            env={**os.environ, "TERM": "xterm"},
        )
        os.close(theirs)
        self._printed = b""

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *error: object) -> None:
        self.run.kill()
        self.run.wait()
        os.close(self._ours)

    @property
    def text(self) -> str:
        """All that was printed so far."""
        with suppress(OSError):  # nothing new, or the other end has gone
            while chunk := os.read(self._ours, 65536):
                self._printed += chunk
        return self._printed.decode()


@pytest.mark.slow
def test_in_a_terminal_it_draws_below_gives_the_lines_back_and_prints_the_report(tmp_path: Path, log: FileIO) -> None:
    log.write(line_of(STARTED) + line_of(WAITING))
    with Terminal("report", str(tmp_path), "--follow") as terminal:
        eventually(lambda: "autocap WAITING" in terminal.text)
        assert "\x1b[1;23r" in terminal.text, "one line less scrolls"
        log.write(line_of(ENDED))
        eventually(lambda: terminal.run.poll() is not None)
        assert terminal.run.returncode == 0
        _, _, after = terminal.text.rpartition("\x1b[r")  # from here on the whole screen scrolls again
        assert "autocap WAITING" not in after
        assert "not tuned: the job ended" in after


@pytest.mark.slow
def test_an_interrupt_ends_it_and_gives_the_lines_back(tmp_path: Path, log: FileIO) -> None:
    log.write(line_of(STARTED) + line_of(WAITING))
    with Terminal("report", str(tmp_path), "--follow") as terminal:
        eventually(lambda: "autocap WAITING" in terminal.text)
        terminal.run.send_signal(signal.SIGINT)
        assert terminal.run.wait(120) == 130
        assert "\x1b[r" in terminal.text
        assert "Traceback" not in terminal.text
