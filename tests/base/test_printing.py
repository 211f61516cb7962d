"""What is printed is safe for a terminal, and whoever says something waits for no reader."""

import ast
import fcntl
import io
import json
import os
import re
import select
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TextIO, cast

import pytest

from autocap.reports.live.queued import QueuedStream, settle
from autocap.text import PrintableStream, beneath, note, printable_json, put

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
