"""What is printed is safe for a terminal and fits into it, also where its encoding lacks a character, and whoever says
something waits for no reader."""

import ast
import fcntl
import io
import json
import os
import pty
import re
import select
import signal
import struct
import termios
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocap.metrics import METRICS
from autocap.reports.live.queued import QueuedStream, settle
from autocap.reports.live.terminal import LiveView
from autocap.text import (
    PrintableStream,
    beneath,
    columns,
    did_you_mean,
    fresh_line,
    note,
    printable,
    printable_json,
    put,
    put_json,
    spelled,
)

ROOT = Path(__file__).resolve().parent.parent.parent
HOSTILE = "\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202e\r\ud800\x7f"
SHOWN = r"\x1b]52;c;ZXZpbA==\x07\x1b[2J\x9b31m\u202e\r\ud800\x7f"


def test_whatever_is_written_to_a_stream_a_terminal_obeys_nothing_of_it() -> None:
    to = io.StringIO()
    stream = PrintableStream(to)
    print(HOSTILE, "and", HOSTILE, file=cast(TextIO, stream))
    assert to.getvalue() == f"{SHOWN} and {SHOWN}\n"
    assert beneath(cast(TextIO, stream)) is to
    assert beneath(to) is to


def test_a_line_that_is_printed_or_noted_stays_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    put(f"a\nb{HOSTILE}", "c")
    note(f"d\ne{HOSTILE}", "f")
    assert capsys.readouterr() == (f"a\\nb{SHOWN}\nc\n", f"autocap: d\\ne{SHOWN}\nautocap: f\n")


def test_json_holds_no_control_character_and_means_the_same() -> None:
    text = printable_json({HOSTILE: [HOSTILE, 1.5, None]})
    assert text.isascii()
    assert text.isprintable()
    assert json.loads(text) == {HOSTILE: [HOSTILE, 1.5, None]}


def test_a_stream_keeps_its_first_failure_and_says_it_again() -> None:
    with open("/dev/full", "w") as full:
        stream = PrintableStream(full)
        stream.write("a")
        assert stream.failure is None
        with pytest.raises(OSError, match="No space left"):
            stream.flush()
        assert stream.failure is not None
        with suppress(OSError):
            full.close()


@pytest.mark.slow
def test_nobody_prints_past_the_streams_that_make_it_safe() -> None:
    """The one place is `autocap.text`; the jobs to try it on, the supervisor of a program whose output we read, and
    the relay to Ray are processes of their own."""
    found = []
    for path in [*(ROOT / "autocap").rglob("*.py"), *(ROOT / "strategies").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in (
                *("print", "sys.stdout.write", "sys.stderr.write", "sys.__stdout__.write", "sys.__stderr__.write"),
                *("json.dump", "logging.basicConfig", "logging.lastResort"),
            ):
                found.append(path.relative_to(ROOT).as_posix())
    ours = {where for where in found if "workloads" not in where and where != "autocap/testing/nvml/player.py"}
    assert ours <= {"autocap/text.py", "autocap/job/supervisor.py", "autocap/plugins/fleet/nodes/ray_relay.py"}


class Pipe:
    """A pipe that nobody reads until somebody does. room_bytes: what it takes."""

    def __init__(self) -> None:
        self.reading, self.writing = os.pipe()
        self.streams = list[QueuedStream]()
        self.room_bytes = fcntl.fcntl(self.writing, fcntl.F_SETPIPE_SZ, 4096)

    def stream(self, encoding: str = "utf-8", **given: int) -> QueuedStream:
        self.streams.append(QueuedStream(self.writing, encoding, **given))
        return self.streams[-1]

    def read(self, until: str) -> str:
        text = ""
        while until not in text:
            assert select.select([self.reading], [], [], 5)[0], f"{until!r} never came"
            text += os.read(self.reading, 1 << 16).decode()
        return text


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    for stream in made.streams:
        stream.end(1)
    with suppress(OSError):
        os.close(made.reading)
    for thread in _writers():  # each ends before its descriptor's number can become another file's
        thread.join(5)
    os.close(made.writing)


def _writers() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "stderr"]


def test_what_is_queued_comes_out_in_order_and_whole(pipe: Pipe) -> None:
    stream = pipe.stream()
    for number in range(100):
        print("line", number, file=cast(TextIO, stream))
    stream.write("\x1b7half a frame")
    stream.flush()
    assert pipe.read("frame") == "".join(f"line {number}\n" for number in range(100)) + "\x1b7half a frame"


def test_a_writer_never_waits_and_what_was_dropped_is_counted_once_there_is_room(pipe: Pipe) -> None:
    stream, line, count = pipe.stream(room_bytes=1000), 99 * "x", pipe.room_bytes // 100 + 50
    began_s = time.monotonic()
    for _ in range(count):
        stream.write(f"{line}\n")
    assert time.monotonic() - began_s < 1
    text, told = "", 0
    while told < count:
        text += pipe.read("\n")
        dropped = re.findall(r"^autocap: (\d+) lines? w\w+ dropped, stderr was not read$", text, re.M)
        told = text.count(f"{line}\n") + sum(map(int, dropped))
    assert told == count
    assert len(text.splitlines()) == text.count(f"{line}\n") + len(dropped), "a line was torn"
    assert dropped
    stream.write("and on\n")
    assert pipe.read("and on") == "and on\n"


def test_one_line_that_was_dropped_is_one_line(pipe: Pipe) -> None:
    stream = pipe.stream(room_bytes=100)
    stream.write(200 * "x" + "\n")
    assert pipe.read("\n") == "autocap: 1 line was dropped, stderr was not read\n"


@pytest.mark.slow
def test_the_end_waits_a_moment_for_a_reader_and_no_longer(pipe: Pipe) -> None:
    stream = pipe.stream()
    stream.write(10_000 * "x" + "\n")
    began_s = time.monotonic()
    stream.end(0.2)
    assert 0.15 < time.monotonic() - began_s < 1.5


def test_what_draws_on_a_terminal_can_wait_until_it_is_drawn(pipe: Pipe) -> None:
    stream = pipe.stream()
    printable = PrintableStream(cast(TextIO, stream))
    stream.write("\x1b[r")
    settle(cast(TextIO, printable))
    os.set_blocking(pipe.reading, False)
    assert os.read(pipe.reading, 100) == b"\x1b[r"


def test_a_descriptor_that_fails_ends_nothing(pipe: Pipe) -> None:
    os.close(pipe.reading)
    stream = pipe.stream()
    stream.write("to nobody\n")
    stream.drain(1)
    stream.write("to nobody\n")


def test_a_descriptor_that_somebody_else_made_nonblocking_stays_so_and_loses_nothing(pipe: Pipe) -> None:
    os.set_blocking(pipe.writing, False)
    stream = pipe.stream()
    stream.write(10_000 * "x" + "\n")
    assert pipe.read("\n") == 10_000 * "x" + "\n"
    assert not os.get_blocking(pipe.writing)


def test_no_signal_reaches_the_thread_that_writes(pipe: Pipe) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    stream = pipe.stream()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before
    thread = _writers()[-1]
    status = Path(f"/proc/self/task/{thread.native_id}/status").read_text()
    blocked = int(next(line for line in status.splitlines() if line.startswith("SigBlk:")).split()[1], 16)
    assert all(blocked >> (signum - 1) & 1 for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD))
    stream.end(1)
    thread.join(5)
    assert not thread.is_alive()


def test_what_the_encoding_lacks_is_an_escape(pipe: Pipe) -> None:
    stream = pipe.stream("ascii")
    stream.write("1 ± 2\n")
    assert pipe.read("\n") == "1 \\xb1 2\n"


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("enrgy", " (did you mean energy?)"),
        ("EDP", " (did you mean edp?)"),
        ("ed2", " (did you mean ed2p?)"),
        ("co", " (did you mean cost?)"),
        ("c", ""),
        ("wall time", ""),
        ("", ""),
        ("energy" * 1000, ""),
        ("\x1b[2J", ""),
    ],
)
def test_a_name_is_compared_with_those_that_are(name: str, meant: str) -> None:
    assert did_you_mean(name, METRICS) == meant


def test_dashes_in_front_make_no_option_like_another() -> None:
    known = ["--k", "--out", "--min-cap", "--max-cap", "--trial-seconds"]
    assert did_you_mean("--x", known) == ""
    assert did_you_mean("--trial_seconds", known) == " (did you mean --trial-seconds?)"
    assert did_you_mean("trial", known) == " (did you mean --trial-seconds?)"
    assert did_you_mean("--mincap", known) == " (did you mean --min-cap?)"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;ZXZpbA==\x07", r"\x1b]52;c;ZXZpbA==\x07"),
        ("\x1b[2J", r"\x1b[2J"),
        ("one\nline\rof\ttext", r"one\nline\rof\ttext"),
        ("\x9b31m", r"\x9b31m"),
        ("\x7f", r"\x7f"),
        ("abc\u202egnp.exe", r"abc\u202egnp.exe"),
        ("\u2066\u2069\u200f\u061c", r"\u2066\u2069\u200f\u061c"),
        ("\udcff", r"\udcff"),
        ("two\u2028lines\u0085more", r"two\u2028lines\x85more"),
        ("NVIDIA A100 – 40 µs, 日本", "NVIDIA A100 – 40 µs, 日本"),
    ],
)
def test_what_a_terminal_obeys_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_any_text_becomes_one_line_that_a_stream_can_take(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown)
    shown.encode()


@pytest.mark.parametrize(
    ("text", "encoding", "shown"),
    [
        ("9 ± 1 – 2 … → × ≥", "ascii", "9 +/- 1 - 2 ... -> x >="),
        ("9 ± 1 – 2 … ×", "latin-1", "9 ± 1 - 2 ... ×"),
        ("9 ± 1 – 2 … ×", "utf-8", "9 ± 1 – 2 … ×"),
        ("9 ± 1 – 2 … ×", "UTF-8", "9 ± 1 – 2 … ×"),
        ("é ±", "ascii", "é +/-"),
        ("±", "no such encoding", "+/-"),
        ("plain", "no such encoding", "plain"),
    ],
)
def test_what_an_encoding_lacks_is_spelled(text: str, encoding: str, shown: str) -> None:
    assert spelled(text, encoding) == shown


def test_whatever_is_printed_is_spelled_for_the_stream_beneath() -> None:
    written = io.BytesIO()
    beneath = io.TextIOWrapper(written, "ascii", errors="backslashreplace")
    stream = PrintableStream(beneath)
    stream.write("27 ± 1 … é\n")
    stream.flush()
    assert written.getvalue() == rb"27 +/- 1 ... \xe9" + b"\n"


@pytest.mark.parametrize(("said", "found"), [("72", 72), ("0", None), ("-5", None), ("wide", None), ("", None)])
def test_without_a_terminal_columns_may_say_how_wide_it_is(said, found, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", said)
    assert columns(io.StringIO()) == found


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, TextIO]]:
    """A terminal of 60 columns: its end, and the stream of whoever writes to it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
    monkeypatch.setenv("COLUMNS", "72")
    with os.fdopen(theirs, "w") as stream:
        yield ours, stream
    os.close(ours)


def test_a_terminal_says_itself_how_wide_it_is(screen: tuple[int, TextIO]) -> None:
    assert columns(screen[1]) == 60


def shown_by(text: str, width: int) -> list[str]:
    """The lines of a terminal of that width, which wraps as a VT100 does: with the character after the last column."""
    rows, row, column = [[" "] * width], 0, 0
    for one in text:
        if one == "\r":
            column = 0
        elif one == "\n":
            row += 1
            rows += [[" "] * width] if row == len(rows) else []
        else:
            if column == width:
                row, column = row + 1, 0
                rows += [[" "] * width] if row == len(rows) else []
            rows[row][column] = one
            column += 1
    return ["".join(line).rstrip() for line in rows]


@pytest.mark.parametrize(
    ("before", "shown"),
    [
        ("", ["warning"]),
        ("epoch 1\r\n", ["epoch 1", "warning"]),
        ("\r 45%|###", [" 45%|###", "warning"]),
        ("a" * 19, ["a" * 19, "warning"]),
        ("a" * 20, ["a" * 20, "warning"]),
        ("a" * 25, ["a" * 20, "a" * 5, "warning"]),
    ],
)
def test_a_fresh_line_is_this_one_or_the_next(before: str, shown: list[str]) -> None:
    assert shown_by(f"{before}{fresh_line(20)}warning", 20) == shown


def test_what_the_view_says_begins_a_line_wherever_the_job_left_the_cursor(screen: tuple[int, TextIO]) -> None:
    ours, stream = screen
    view = LiveView(cast(TextIO, PrintableStream(stream)))
    stream.write("\r 45%|####    ")
    view.say(["warning: hot"])
    seen = b""
    while not seen.endswith(b"\n"):
        seen += os.read(ours, 4096)
    assert shown_by(seen.decode(), 60)[:2] == [" 45%|####", "autocap: warning: hot"]


def test_json_that_shares_a_stream_with_a_job_is_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    print("loss 0.1", end="")
    put_json({"a": 1}, shared=True)
    assert capsys.readouterr().out.splitlines()[-1] == '{"a": 1}'
    put_json({"a": 1})
    assert capsys.readouterr().out == '{"a": 1}\n'
