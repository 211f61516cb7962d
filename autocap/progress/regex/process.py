"""The relay process: its standard input is the child's output, its standard output where that would have gone."""

import errno
import fcntl
import os
import re
import select
import signal
import stat
import termios
import time
from contextlib import suppress
from types import FrameType

from autocap.job.signals import ignore_signals
from autocap.progress.regex.lines import Board, LineCounter, LineReader, LineValues
from autocap.progress.values import OF_OUTPUT, append, line_of

_SOURCE, _SINK = 0, 1
MATCH_CPU_S = 0.25  # for the lines of one chunk; a hundred times what a plain pattern takes
_CHUNK_BYTES = 1 << 16  # what a pipe holds
_WINDOW_MS = 1000  # between looks at the terminal's size while the child is silent

_FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main(board_fd: int, pattern: str, values: str) -> None:
    """The whole life of a relay process. values: the file that takes the values in the lines, "" where these are to be
    counted as iterations."""
    ignore_signals()
    Pump(Matcher(_reader(re.compile(pattern), values), Board(board_fd))).run()


def _reader(pattern: re.Pattern[str], values: str) -> LineReader:
    def found(value: float) -> None:
        with suppress(OSError):  # whoever reads it has gone
            append(values, line_of(OF_OUTPUT, value, time.monotonic_ns()))

    return LineValues(pattern, found) if values else LineCounter(pattern)


class _TooSlow(Exception):
    """The lines of one chunk took too much time."""


class Matcher:
    """Counts for a pump, which waits meanwhile: so it stops for good where a pattern takes too long.

    Threads would not help, as `re` holds the interpreter's lock; but it lets a signal's handler run. The timer counts
    this process's own CPU time, so that a busy machine does not set it off.
    """

    def __init__(self, counter: LineReader, board: Board) -> None:
        self._counter, self._board = counter, board
        self._armed = self._gave_up = False
        signal.signal(signal.SIGVTALRM, self._expire)
        board.publish(None, 0)

    def _expire(self, signum: int, frame: FrameType | None) -> None:
        if self._armed:  # else the lines were done just in time
            self._armed = False
            raise _TooSlow

    def count(self, data: bytes, t_ns: int) -> None:
        """Count in the next chunk, which was read at `t_ns`; an empty one is the end."""
        if self._gave_up:
            return
        try:
            self._armed = True
            signal.setitimer(signal.ITIMER_VIRTUAL, MATCH_CPU_S)
            self._counter.read(data) if data else self._counter.end()
            self._armed = False
            self._board.publish(self._counter.count, t_ns)
        except Exception:  # noqa: BLE001 - whatever a pattern can do, the bytes go on
            self._armed, self._gave_up = False, True
            self._board.give_up()
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)


class Pump:
    """Writes what comes from the child to the real stdout, for as long as both are there."""

    def __init__(self, matcher: Matcher) -> None:
        self._matcher = matcher
        self._window = window_size(_SOURCE) if os.isatty(_SOURCE) else None

    def run(self) -> None:
        poll = select.poll()
        poll.register(_SOURCE, select.POLLIN)
        if _stays_broken(_SINK):
            poll.register(_SINK, 0)  # reports errors: without a reader the child must not go on writing for hours
        while True:
            ready = dict(poll.poll(None if self._window is None else _WINDOW_MS))
            self._follow_window()
            if _SINK in ready or (_SOURCE in ready and not self._pass_on()):
                return

    def _pass_on(self) -> bool:
        """Whether there may be more."""
        data = _read()
        t_ns = time.monotonic_ns()
        more = bool(data) and _write(data)
        self._matcher.count(data, t_ns)
        return more

    def _follow_window(self) -> None:
        """The child gets no signal of a change, as it would not be by the real terminal, which is not its session's."""
        if self._window is None:
            return
        with suppress(OSError):
            window = window_size(_SINK)
            if window != self._window:
                self._window = window
                fcntl.ioctl(_SOURCE, termios.TIOCSWINSZ, window)


def window_size(terminal: int) -> bytes:
    """Rows and columns, as the kernel packs them. Raises OSError where it is no terminal."""
    return fcntl.ioctl(terminal, termios.TIOCGWINSZ, bytes(8))


def _stays_broken(sink: int) -> bool:
    """Whether a sink without a reader has none for good. A FIFO with a name may find another before the next write;
    it lies in another file system than the pipe that we read from."""
    status = os.fstat(sink)
    return not stat.S_ISFIFO(status.st_mode) or status.st_dev == os.fstat(_SOURCE).st_dev


def _read() -> bytes:
    """The next piece of the child's output; nothing at its end."""
    try:
        return os.read(_SOURCE, _CHUNK_BYTES)
    except OSError as error:
        if error.errno == errno.EIO:  # how a terminal says that nobody holds its other end
            return b""
        raise


def _write(data: bytes) -> bool:
    """Write all of it; whether the sink can take more. A disk that is full loses what it would have lost without us,
    and the next bytes are tried again."""
    rest = memoryview(data)
    while rest:
        try:
            rest = rest[os.write(_SINK, rest) :]
        except BlockingIOError:  # somebody who shares it made it so
            poll = select.poll()
            poll.register(_SINK, select.POLLOUT)
            poll.poll()
        except OSError as error:
            return error.errno in _FULL_DISK
    return True
