"""The child's output passes through the relay as if it were not there, and its lines are counted."""

import fcntl
import math
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from autocap.clock import MonotonicClock
from autocap.errors import AutocapError, CommandNotFound, UsageError
from autocap.job import child as child_job
from autocap.job.child import ChildJob
from autocap.progress.regex import Relay, compile_pattern
from autocap.progress.regex.lines import Board, LineCounter, Numbers
from autocap.records import StepReading
from tests.doubles.waiting import eventually

PATIENCE_S = 120.0  # bounds a failure; nothing below takes as long
PYTHON = sys.executable


def gone(pid: int) -> bool:
    """Whether a process has ended; whoever inherited it from us may not have reaped it yet."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


def read(fd: int, size: int = 1 << 30, *, up_to: bytes | None = None, at_once: int = 1 << 16) -> bytes:
    """What is there to read until that many bytes or that mark have come, or the end."""
    deadline = time.monotonic() + PATIENCE_S
    got = bytearray()
    while len(got) < size and (up_to is None or up_to not in got):
        assert select.select([fd], [], [], max(0.0, deadline - time.monotonic()))[0], "it did not come"
        piece = os.read(fd, min(at_once, size - len(got)))
        if not piece:
            break
        got += piece
    return bytes(got)


@pytest.fixture
def gate() -> Iterator[tuple[str, Callable[[], int]]]:
    """A shell command that waits, and what lets it go on."""
    theirs, ours = os.pipe()
    os.set_inheritable(theirs, True)
    yield f"read -r _ < /dev/fd/{theirs}", lambda: os.write(ours, b"\n")
    os.close(theirs)
    os.close(ours)


STARTED: list[ChildJob] = []


@pytest.fixture(autouse=True)
def _no_child_outlives_its_test() -> Iterator[None]:
    yield
    for job in STARTED:
        job.kill()
    STARTED.clear()


def child(relay: Relay, *command: str) -> ChildJob:
    with relay.child_stdout() as stdout:
        STARTED.append(child_job.start(command, os.environ, stdout))
    return STARTED[-1]


def status(job: ChildJob, relay: Relay | None = None) -> int:
    """The job's exit status, which it must come to, and the relay to its end."""
    eventually(lambda: job.poll() is not None)
    assert relay is None or ended(relay)
    return job.wait()


def ended(relay: Relay) -> bool:
    return relay.drain(MonotonicClock(), PATIENCE_S)


def relayed(*command: str, pattern: str = "x") -> tuple[bytes, StepReading | None]:
    """What the command's output is at the other end, and what was counted in it."""
    with tempfile.TemporaryFile() as file:
        with Relay.start(pattern, sink=file.fileno()) as relay:
            job = child(relay, *command)
            assert status(job, relay) == 0
            counted = relay.read(0.0)
        file.seek(0)
        return file.read(), counted


def count_of(pattern: str, *pieces: bytes) -> int | None:
    counter = LineCounter(compile_pattern(pattern))
    for piece in pieces:
        counter.read(piece)
    counter.end()
    return counter.count


def counts(*numbers: int) -> list[int]:
    made = Numbers()
    return [made.update(number) for number in numbers]


class TestPattern:
    def test_a_pattern_is_taken_as_it_is_written_also_where_later_pythons_may_read_it_differently(self) -> None:
        assert compile_pattern(r"(?i)step (\d+)").pattern == r"(?i)step (\d+)"
        assert compile_pattern("[[a]")

    def test_a_bad_pattern_is_refused_with_the_place_and_the_reason(self) -> None:
        message = r"pattern 'step (\d+' is no regular expression: missing ), unterminated subpattern at character 6"
        with pytest.raises(UsageError, match=re.escape(message)):
            compile_pattern(r"step (\d+")

    @pytest.mark.parametrize("text", ["a{99999999999999999999}", "(" * 900, "[", "\\", ""])
    def test_whatever_is_wrong_with_a_pattern_is_a_usage_error(self, text: str) -> None:
        with pytest.raises(UsageError, match="is no regular expression" if text else "the pattern is empty"):
            compile_pattern(text)


class TestLineCounter:
    @pytest.mark.parametrize(
        ("pattern", "output", "count"),
        [
            ("loss=", b"loss=1\nnothing\nloss=2 loss=3\n", 2),  # without a group lines that match
            ("loss=", b"nothing\n", None),  # nothing is known before the first match
            (r"step (\d+)", b"step 10\nstep 20\n", 20),  # a first group that is a number
            (r"(step|iter) (\d+)", b"step 10\niter 20\nstep 30\n", 3),  # and one that is none
            (r"(step|iter) (?P<n>\d+)", b"step 10\niter 20\n", 20),  # the group named n, wherever it stands
            (r"step (?P<n>\S+)", b"step one\nstep two\n", None),  # which has to be a number
            (r"step (\d+)?", b"step 4\nstep\n", 4),  # a group that takes no part in a match
            (r"step ([\d,]+)", b"step 1,200\n", 1200),  # commas between thousands
            (r"step (\d+)", b"step 7\nstep " + b"9" * 19 + b"\n", 7),  # a number too long for the board
            ("done", b"done", 1),  # the last line may lack its end
            ("step", b"\xff\xfe step \x80\n", 1),  # bytes that are no text hide no match
        ],
    )
    def test_lines_are_counted_or_the_number_in_them_is_the_count(self, pattern, output, count) -> None:
        assert count_of(pattern, output) == count

    def test_a_progress_bar_redrawn_with_carriage_returns_is_one_line_a_redraw(self) -> None:
        bar = b"".join(b"\r%3d%%|##| %d/50 [00:01<00:02]" % (2 * n, n) for n in range(1, 51))
        assert count_of(r"(\d+)/50", bar) == 50
        assert count_of(r"/50", bar) == 50

    def test_a_line_end_of_two_characters_is_one_even_between_two_pieces(self) -> None:
        assert count_of(".?", b"a\r", b"\nb\r\n") == 2

    def test_a_line_is_looked_at_once_it_has_ended(self) -> None:
        counter = LineCounter(compile_pattern(r"step (\d+)"))
        counter.read(b"step 1")
        assert counter.count is None
        counter.read(b"2\n")
        assert counter.count == 12

    def test_of_a_line_without_end_the_first_4_kib_are_looked_at_and_kept(self) -> None:
        counter = LineCounter(compile_pattern("needle"))
        for _ in range(100):
            counter.read(b"hay " * 1000)
        counter.read(b"needle\nneedle\n")
        assert counter.count == 1


class TestNumbers:
    def test_the_count_is_the_number_and_shown_again_it_counts_nothing(self) -> None:
        assert counts(10, 20, 30) == [10, 20, 30]
        assert counts(1, 1, 2, 2) == [1, 1, 2, 2]

    @pytest.mark.parametrize("epoch", [(0, 1, 2, 3), (1, 2, 3, 4), (0, 10, 20, 30), (10, 20, 30, 40)])
    def test_a_new_epoch_goes_on_at_the_same_pace(self, epoch: tuple[int, ...]) -> None:
        made = counts(*epoch, *epoch, *epoch)
        assert {after - before for before, after in pairwise(made)} == {epoch[1] - epoch[0]}

    def test_ranks_that_print_out_of_turn_count_once(self) -> None:
        assert counts(100, 101, 100, 102, 101, 102)[-1] == 102

    def test_a_job_that_resumes_from_a_checkpoint_goes_on_from_the_count(self) -> None:
        made = counts(*range(900, 1001), *range(950, 1000))
        assert made == sorted(made)
        assert 1030 < made[-1] < 1050


class TestBoard:
    def test_what_was_published_is_read_also_while_the_next_is_half_written(self) -> None:
        board = Board.create()
        assert board.read() == (0, 0, Board.STARTING)
        Board(board.fd).publish(3, 5)
        assert board.read() == (3, 5, Board.COUNTING)
        os.pwrite(board.fd, struct.pack("@Q", 4), 0)
        assert board.read() == (3, 5, Board.COUNTING)
        os.close(board.fd)

    def test_a_count_keeps_the_time_at_which_it_was_reached(self) -> None:
        board = Board.create()
        board.publish(0, 5)
        board.publish(0, 6)
        assert Board(board.fd).read() == (0, 5, Board.COUNTING)
        board.publish(1, 7)
        board.give_up()
        assert Board(board.fd).read() == (1, 7, Board.GAVE_UP)
        os.close(board.fd)

    def test_nobody_can_truncate_it(self) -> None:
        board = Board.create()
        with pytest.raises(PermissionError):
            os.truncate(f"/proc/self/fd/{board.fd}", 0)
        os.close(board.fd)


# Writes its first argument's number of bytes, of all values, in pieces of uneven length, without a newline at the end.
NOISE = """
import os, random, sys
data, at, rng = random.Random(1).randbytes(int(sys.argv[1])), 0, random.Random(2)
while at < len(data):
    at += os.write(1, data[at : at + rng.choice((1, 100, 5000, 70000))])
"""


@pytest.mark.slow
def test_every_byte_arrives_in_order() -> None:
    out, _ = relayed(PYTHON, "-c", NOISE, "5000000")
    assert out == random.Random(1).randbytes(5_000_000)


def test_output_is_passed_on_at_once_line_or_not() -> None:
    ours, sink = os.pipe()
    with Relay.start("x", sink=sink) as relay:
        job = child(relay, "sh", "-c", "printf a; exec sleep 100")
        assert read(ours, 1) == b"a"
        job.kill()
        status(job, relay)
    os.close(sink)
    assert read(ours) == b""
    os.close(ours)


def test_lines_are_counted_with_the_time_of_the_last_on_the_runs_clock_or_nothing_is_read() -> None:
    before = time.monotonic()
    _, counted = relayed("printf", "step 1\\nstep 2\\nother\\n", pattern="step")
    assert counted.count == 2
    assert before < counted.t_s < time.monotonic()
    assert relayed("printf", "other\\n", pattern="step")[1] is None


def test_a_pattern_beyond_ascii_reaches_the_relay() -> None:
    _, counted = relayed("printf", "%s\\n", "Schritt für Schritt", pattern="für")
    assert counted.count == 1


def test_the_count_can_be_read_while_the_child_runs() -> None:
    with tempfile.TemporaryFile() as file, Relay.start(r"step (\d+)", sink=file.fileno()) as relay:
        job = child(relay, "sh", "-c", "echo step 1; echo step 2; exec sleep 100")
        eventually(lambda: (reading := relay.read(0.0)) is not None and reading.count == 2)
        assert relay.fault is None
        job.kill()
        status(job, relay)


def test_numbers_beyond_all_measure_stop_the_counting_and_not_the_output() -> None:
    program = f"for number in ({10**18 - 1}, 1) * 20: print('step', number)\nprint('end')"
    out, counted = relayed(PYTHON, "-c", program, pattern=r"step (\d+)")
    assert out.endswith(b"end\n")
    assert counted is None or counted.count < 2**64


@pytest.mark.slow
def test_a_pattern_that_explodes_stops_the_counting_and_not_the_output() -> None:
    with tempfile.TemporaryFile() as file, Relay.start("^(a+)+$", sink=file.fileno()) as relay:
        line = "a" * 60 + "b"
        job = child(relay, "sh", "-c", f"echo aaa; sleep 0.05; echo {line}; echo aaa; echo end")
        assert status(job, relay) == 0
        assert "more than 0.25 s" in relay.fault
        assert relay.read(0.0) is None or relay.read(0.0).count == 1  # type: ignore[union-attr]
        file.seek(0)
        assert file.read() == f"aaa\n{line}\naaa\nend\n".encode()


# What the session does with the parts, small: start CMD with its output relayed, say "began RELAY CHILD" on stderr.
DRIVER = """
import os, sys
from autocap.job import child as child_job
from autocap.clock import MonotonicClock
from autocap.progress.regex import Relay
with Relay.start("line") as relay:
    with relay.child_stdout() as stdout:
        job = child_job.start(sys.argv[1:], os.environ, stdout=stdout)
    print("began", relay.pid, job.pid, file=sys.stderr, flush=True)
    status = job.wait()
    relay.drain(MonotonicClock())
    print("ours", flush=True)
sys.exit(status)
"""
LINES = "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); [ $i = 100 ] && sleep 0.3; done; printf end"
LINES_OUT = b"".join(b"line %d\n" % number for number in range(200)) + b"end"


def driver(*command: str) -> tuple["subprocess.Popen[bytes]", int]:
    """A driver that runs the command, and its relay's PID."""
    process = subprocess.Popen(
        [PYTHON, "-c", DRIVER, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    began = process.stderr.readline().split()
    return process, int(began[1])


def test_the_relay_outlives_the_controller_up_to_the_last_byte() -> None:
    process, relay_pid = driver("sh", "-c", LINES)
    with process.stdout, process.stderr:
        first = process.stdout.read(50)
        process.kill()
        assert process.wait(PATIENCE_S) == -signal.SIGKILL
        assert first + process.stdout.read() == LINES_OUT
    eventually(lambda: gone(relay_pid))


def test_in_its_session_the_relay_passes_on_all_before_our_last_words_whatever_signals_come() -> None:
    process, relay_pid = driver("sh", "-c", LINES)
    assert os.getsid(relay_pid) == relay_pid
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGUSR1):
        os.kill(relay_pid, signum)
    assert process.communicate(timeout=PATIENCE_S)[0] == LINES_OUT + b"ours\n"


def test_a_reader_that_goes_away_ends_a_child_that_writes_as_without_us() -> None:
    ours, sink = os.pipe()
    with Relay.start("x", sink=sink) as relay:
        job = child(relay, "yes")
        read(ours, 1000)
        os.close(ours)
        assert status(job, relay) == 128 + signal.SIGPIPE
    os.close(sink)


def test_a_child_that_was_silent_when_the_reader_went_away_meets_it_at_its_first_write(gate) -> None:
    ours, sink = os.pipe()
    with Relay.start("x", sink=sink) as relay:
        job = child(relay, "sh", "-c", f"{gate[0]}; echo hello; exit 3")
        os.close(ours)
        assert ended(relay)
        gate[1]()
        assert status(job) == 128 + signal.SIGPIPE
    os.close(sink)


def test_a_fifo_may_be_without_a_reader_for_a_while(tmp_path: Path, gate: tuple[str, Callable[[], int]]) -> None:
    os.mkfifo(tmp_path / "fifo")
    first = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    sink = os.open(tmp_path / "fifo", os.O_WRONLY)
    with Relay.start("x", sink=sink) as relay:
        job = child(relay, "sh", "-c", f"{gate[0]}; echo hello")
        os.close(first)
        time.sleep(0.05)  # for the relay to see that there is no reader, were it to look
        second = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
        gate[1]()
        assert status(job, relay) == 0
        assert read(second, 6) == b"hello\n"
    for fd in (second, sink):
        os.close(fd)


def test_a_full_disk_costs_bytes_and_not_the_job() -> None:
    with open("/dev/full", "wb", buffering=0) as full, Relay.start("line", sink=full.fileno()) as relay:
        job = child(relay, "sh", "-c", "echo line; sleep 0.05; echo line")
        assert status(job, relay) == 0
        reading = relay.read(0.0)
        assert reading.count == 2


def test_a_slow_reader_slows_the_child_and_loses_nothing() -> None:
    ours, sink = os.pipe()
    with Relay.start("x", sink=sink) as relay:
        job = child(relay, PYTHON, "-c", NOISE, "1000000")
        time.sleep(0.2)
        assert job.poll() is None  # pipes hold less than that
        first = read(ours, 300_000, at_once=1000)
        time.sleep(0.1)
        rest = read(ours, 700_000)
        assert status(job, relay) == 0
        assert first + rest == random.Random(1).randbytes(1_000_000)
    os.close(sink)
    assert read(ours) == b""
    os.close(ours)


def test_a_sink_that_does_not_block_loses_nothing() -> None:
    ours, sink = os.pipe()
    os.set_blocking(sink, False)
    with Relay.start("x", sink=sink) as relay:
        job = child(relay, PYTHON, "-c", NOISE, "300000")
        time.sleep(0.1)  # so that it is full
        assert read(ours, 300_000) == random.Random(1).randbytes(300_000)
        assert status(job, relay) == 0
    os.close(sink)
    os.close(ours)


def test_we_do_not_wait_for_a_process_that_the_child_left_behind() -> None:
    with tempfile.TemporaryFile() as file, Relay.start("x", sink=file.fileno()) as relay:
        job = child(relay, "sh", "-c", "sleep 100 & echo x")
        assert status(job) == 0
        assert not relay.drain(MonotonicClock(), 0.1)
        os.killpg(job.pid, signal.SIGKILL)
        assert ended(relay)
        file.seek(0)
        assert file.read() == b"x\n"


def test_we_wait_for_a_reader_that_takes_its_time_and_longer_than_our_patience() -> None:
    ours, sink = os.pipe()
    got = bytearray()

    def read_late() -> None:
        time.sleep(0.3)
        got.extend(read(ours, 100_000))

    reader = threading.Thread(target=read_late)
    with Relay.start("x", sink=sink) as relay:
        job = child(relay, PYTHON, "-c", NOISE, "100000")
        reader.start()
        assert status(job) == 0
        assert relay.drain(MonotonicClock(), 0.1)
        reader.join()
    assert got == random.Random(1).randbytes(100_000)
    os.close(sink)
    os.close(ours)


class Interrupted(MonotonicClock):
    def wait_until(self, t_s: float) -> int | None:
        return signal.SIGINT


def test_a_signal_ends_our_wait_for_the_output() -> None:
    with tempfile.TemporaryFile() as file, Relay.start("x", sink=file.fileno()) as relay:
        job = child(relay, "sleep", "100")
        assert not relay.drain(Interrupted(), math.inf)
        job.kill()
        status(job, relay)


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    ours, sink = pty.openpty()
    fcntl.ioctl(sink, termios.TIOCSWINSZ, struct.pack("4H", 33, 77, 0, 0))
    yield ours, sink
    os.close(sink)
    os.close(ours)


def test_a_terminal_stays_a_terminal_of_the_same_size(terminal: tuple[int, int]) -> None:
    ours, sink = terminal
    program = "import os, sys; print(sys.stdout.isatty(), os.get_terminal_size(1)); print('end', end='')"
    with Relay.start("end", sink=sink) as relay:
        assert status(child(relay, PYTHON, "-c", program), relay) == 0
        reading = relay.read(0.0)
    # The terminal itself makes \r\n of \n, and only once.
    assert read(ours, up_to=b"end") == b"True os.terminal_size(columns=77, lines=33)\r\nend"
    assert reading.count == 1


def test_a_terminal_that_changes_its_size_does_so_for_the_child(terminal: tuple[int, int]) -> None:
    ours, sink = terminal
    program = (
        "import os, time\n"
        "while os.get_terminal_size(1).columns != 99: print('.', end='', flush=True); time.sleep(0.01)\n"
        "print('end')"
    )
    with Relay.start("x", sink=sink) as relay:
        job = child(relay, PYTHON, "-c", program)
        read(ours, 1)
        fcntl.ioctl(sink, termios.TIOCSWINSZ, struct.pack("4H", 50, 99, 0, 0))
        read(ours, up_to=b"end")
        assert status(job, relay) == 0


def test_every_byte_arrives_at_a_terminal(terminal: tuple[int, int]) -> None:
    ours, sink = terminal
    attributes = termios.tcgetattr(sink)
    attributes[1] &= ~termios.OPOST
    termios.tcsetattr(sink, termios.TCSANOW, attributes)
    got = bytearray()

    def read_all() -> None:
        got.extend(read(ours, 1_000_000))

    reader = threading.Thread(target=read_all)
    reader.start()
    with Relay.start("x", sink=sink) as relay:
        assert status(child(relay, PYTHON, "-c", NOISE, "1000000"), relay) == 0
    reader.join(PATIENCE_S)
    assert got == random.Random(1).randbytes(1_000_000)


def test_a_terminal_that_goes_away_ends_the_relay() -> None:
    ours, sink = pty.openpty()
    with Relay.start("x", sink=sink) as relay:
        job = child(relay, "sh", "-c", "sleep 0.1; echo x || exit 5")
        os.close(ours)
        assert ended(relay)
        assert status(job) == 5
    os.close(sink)


def open_descriptors() -> set[str]:
    return set(os.listdir("/proc/self/fd"))


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    def in_memory() -> set[Path]:
        """Files in memory, but for the step counters that tests beside this one make and remove."""
        return {path for path in Path("/dev/shm").iterdir() if not path.name.startswith("autocap-steps")}

    before = open_descriptors(), in_memory()
    with tempfile.TemporaryFile() as file, Relay.start("x", sink=file.fileno()) as relay:
        assert status(child(relay, "echo", "x"), relay) == 0
        pid = relay.pid
    assert (open_descriptors(), in_memory()) == before
    assert not Path(f"/proc/{pid}").exists()


def test_the_child_is_given_its_output_and_nothing_else_of_the_relay() -> None:
    plain = subprocess.run(["ls", "/proc/self/fd"], stdout=subprocess.PIPE, check=True, close_fds=False).stdout
    assert relayed("ls", "/proc/self/fd")[0].split() == plain.split()


def test_a_child_that_cannot_be_started_ends_the_relay() -> None:
    with tempfile.TemporaryFile() as file, Relay.start("x", sink=file.fileno()) as relay:
        with pytest.raises(CommandNotFound):
            child(relay, "no-such-command")
        assert ended(relay)


def test_a_relay_that_is_closed_without_a_child_ends() -> None:
    with tempfile.TemporaryFile() as file:
        relay = Relay.start("x", sink=file.fileno())
        relay.close()
        relay.close()
        assert ended(relay)


def test_a_stdout_that_is_closed_is_refused() -> None:
    sink = os.dup(1)
    os.close(sink)
    with pytest.raises(AutocapError, match="the job's output cannot be relayed: Bad file descriptor"):
        Relay.start("x", sink=sink)


def test_a_relay_process_that_does_not_come_up_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_descriptors()
    with tempfile.TemporaryFile() as file:
        monkeypatch.setattr(sys, "executable", "/bin/false")
        with pytest.raises(AutocapError, match="ended at once, with status 1; choose another --progress"):
            Relay.start("x", sink=file.fileno())
        monkeypatch.setattr(sys, "executable", "/no/python")
        with pytest.raises(AutocapError, match="No such file or directory"):
            Relay.start("x", sink=file.fileno())
    assert open_descriptors() == before
