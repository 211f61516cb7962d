"""Our end of a relay process: starts it, reads its count, and waits for the last of the child's output."""

import fcntl
import os
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Self

from autocap.clock import Clock
from autocap.errors import AutocapError
from autocap.job.processes import package_root
from autocap.progress.regex.lines import Board, compile_pattern
from autocap.progress.regex.process import MATCH_CPU_S, window_size
from autocap.records import StepReading

_STDOUT = 1
_READY_S = 10.0  # for the relay process to be there; it takes some 50 ms
_LOOK_S = 0.01

# -I and -S keep the environment, the working directory and every sitecustomize (the step hook is one) out of it.
_START = "import sys; sys.path.append(sys.argv[1]); "
_START += "from autocap.progress.regex.process import main; main(int(sys.argv[2]), *sys.argv[3:])"


class Relay:
    """Our end of a relay process. Closing it leaves the process to its work, which ends with the child's output."""

    def __init__(self, process: subprocess.Popen[bytes], board: Board, child_end: int, sink: int) -> None:
        self._process, self._board, self._child_end, self._sink = process, board, child_end, sink

    @classmethod
    def start(cls, pattern: str, *, sink: int = _STDOUT, values: str = "") -> Self:
        """Start the relay process for a child that does not run yet.

        pattern: as for `compile_pattern`. sink: the real stdout. values: the path of the file that takes the values in
        the lines, "" where the lines are to be counted as iterations. Raises UsageError for the pattern, AutocapError
        where there is no relay.
        """
        compile_pattern(pattern)
        try:
            return cls._start(pattern, sink, values)
        except OSError as error:
            instead = "report the target by autocap.report" if values else "choose another --progress than regex"
            raise AutocapError(f"the job's output cannot be relayed: {error.strerror or error}; {instead}") from error

    @classmethod
    def _start(cls, pattern: str, sink: int, values: str) -> Self:
        os.fstat(sink)  # were it closed, the next descriptor that is opened would take its place
        is_terminal = os.isatty(sink)
        source, child_end = os.openpty() if is_terminal else os.pipe()
        with ExitStack() as undo:
            undo.callback(os.close, child_end)
            try:
                if is_terminal:
                    _imitate(sink, source, child_end)
                board = Board.create()
                undo.callback(os.close, board.fd)
                process = _spawn(pattern, source, sink, board, values)
            finally:
                os.close(source)
            undo.callback(process.wait)
            undo.callback(process.kill)  # the last is the first to be called
            _await_ready(process, board)
            undo.pop_all()
        return cls(process, board, child_end, sink)

    @property
    def pid(self) -> int:
        return self._process.pid

    @contextmanager
    def child_stdout(self) -> Iterator[int]:
        """The descriptor to start the child with. Ours is closed at the end of the block, so that the output ends with
        the last process that holds the child's."""
        try:
            yield self._child_end
        finally:
            os.close(self._child_end)
            self._child_end = -1

    def read(self, origin_s: float) -> StepReading | None:
        """The count so far, and when the piece of output arrived that brought it there, on the clock that was zero at
        `origin_s` of the system's monotonic clock. `None` before the first match."""
        self._process.poll()  # a zombie of ours would let every SIGCHLD look like the child's end
        count, t_ns, _ = self._board.read()
        return StepReading(count=count, t_s=t_ns / 1e9 - origin_s) if t_ns else None

    @property
    def fault(self) -> str | None:
        """Why nothing is counted any more; `None` while all is well. The output is relayed all the same."""
        if self._board.read()[2] != Board.GAVE_UP:
            return None
        return (
            f"matching the pattern took more than {MATCH_CPU_S:g} s for one piece of the job's output, so its lines "
            "are no longer counted; write it with fewer open repeats such as .* and none inside another such as (a+)+"
        )

    def drain(self, clock: Clock, patience_s: float = 2.0) -> bool:
        """Wait, after the child's end, until all of its output is written, so that ours comes after it.

        The wait ends, with False, when a process that the child left behind holds the output open for patience_s, and
        at a signal that the clock reports. Time in which the real stdout takes nothing does not count: there the child
        itself would have waited.
        """
        deadline_s = clock.now() + patience_s
        while self._process.poll() is None:
            now_s = clock.now()
            if not _takes_more(self._sink):
                deadline_s = now_s + patience_s
            if now_s >= deadline_s or clock.wait_until(now_s + _LOOK_S) not in (None, signal.SIGCHLD):
                return False
        return True

    def close(self) -> None:
        """Close our ends. Can be called again."""
        for fd in (self._child_end, self._board.fd):
            if fd >= 0:
                os.close(fd)
        self._child_end = self._board.fd = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _await_ready(process: subprocess.Popen[bytes], board: Board) -> None:
    """Wait until the relay process reads the child's output. Raises OSError where it does not come to that."""
    deadline_s = time.monotonic() + _READY_S
    while board.read()[2] == Board.STARTING:
        if process.poll() is not None:
            raise OSError(f"the relay process ended at once, with status {process.returncode}")
        if time.monotonic() > deadline_s:
            raise OSError(f"the relay process was not ready within {_READY_S:g} s")
        time.sleep(_LOOK_S)


def _imitate(terminal: int, source: int, child_end: int) -> None:
    """Give the child's terminal the settings and the size of the real one."""
    attributes = termios.tcgetattr(terminal)
    attributes[1] &= ~termios.OPOST  # the real terminal does that, once
    termios.tcsetattr(child_end, termios.TCSANOW, attributes)
    fcntl.ioctl(source, termios.TIOCSWINSZ, window_size(terminal))


def _spawn(pattern: str, source: int, sink: int, board: Board, values: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [
            *(sys.executable, "-I", "-S", "-X", "utf8", "-c", _START),
            *(package_root(), str(board.fd), pattern.encode(), values),
        ],
        stdin=source,
        stdout=sink,
        stderr=subprocess.DEVNULL,
        pass_fds=(board.fd,),
        cwd="/",
        start_new_session=True,
    )


def _takes_more(sink: int) -> bool:
    poll = select.poll()
    poll.register(sink, select.POLLOUT)
    return bool(poll.poll(0))
