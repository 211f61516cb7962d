"""Watchdogs that a fork server starts: what a process with many leases has instead of an interpreter for each."""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from autocap.job.processes import has_ended
from autocap.limits.fork_server import MOST_BYTES, request
from autocap.limits.heartbeat import Heartbeat
from autocap.limits.journal import Entry
from autocap.limits.times import ANSWER_WITHIN_S
from autocap.limits.watchdog import Duty
from autocap.limits.watchdog_process import interpreter


class ForkedProcess:
    """One watchdog's process, a child of the fork server's. pidfd: a descriptor of it, closed by `close`."""

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pid, self._pidfd = pid, pidfd

    def ends_within(self, seconds: float) -> bool:
        return has_ended(self._pidfd, seconds)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def close(self) -> None:
        os.close(self._pidfd)


class ForkedWatchdogs:
    """A context manager, inside which `start` starts watchdogs, from any thread; those that live stay beyond it. kinds:
    of the devices that they watch.

    The server is started at once, ahead of the first that needs it, and again when it was lost.
    """

    def __init__(self, kinds: Sequence[str]) -> None:
        self._kinds = tuple(kinds)
        self._lock = threading.Lock()
        self._server: tuple[subprocess.Popen[bytes], socket.socket] | None = None

    def __enter__(self) -> "ForkedWatchdogs":
        with self._lock, suppress(OSError):  # it is tried again once it is needed
            self._running()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with self._lock:
            self._end()

    def start(self, duty: Duty, *, entries: Sequence[Entry], ready_timeout_s: float) -> Heartbeat:
        """As `StartWatch`."""
        return Heartbeat(duty, entries=entries, ready_timeout_s=ready_timeout_s, spawn=self._spawn)

    def _spawn(self, duty: Duty, beats: socket.socket, status: int) -> ForkedProcess:
        """As `Spawn`."""
        packet, ends = request(duty.words()), [beats.fileno(), status]
        with self._lock:
            try:
                self._ask(packet, ends)
            except OSError:  # it was lost, and has not taken it
                self._end()
                self._ask(packet, ends)
            try:
                return self._answer()
            except _NoAnswer:
                self._end()  # what it may have started hears a goodbye
                raise

    def _running(self) -> socket.socket:
        """The way to a server, which is started where there is none."""
        if self._server is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            try:
                with theirs:
                    child = interpreter("autocap.limits.fork_server", *self._kinds, stdin=theirs.fileno())
            except BaseException:
                ours.close()
                raise
            self._server = child, ours
        return self._server[1]

    def _ask(self, packet: bytes, ends: Sequence[int]) -> None:
        socket.send_fds(self._running(), [packet], ends, socket.MSG_NOSIGNAL)

    def _answer(self) -> ForkedProcess:
        """Raises OSError with what the server says, or _NoAnswer."""
        control = self._running()
        control.settimeout(ANSWER_WITHIN_S)
        try:
            said, found, _, _ = socket.recv_fds(control, MOST_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise _NoAnswer(f"the process that forks watchdogs does not answer: {error}") from error
        if not said:
            raise _NoAnswer("the process that forks watchdogs has ended")
        if not found:
            raise OSError(said.decode(errors="replace"))
        return ForkedProcess(int(said), found[0])

    def _end(self) -> None:
        """Without the server, whose watchdogs go on."""
        server, self._server = self._server, None
        if server is not None:
            child, control = server
            control.close()
            child.kill()
            child.wait()


class _NoAnswer(OSError):
    """Nobody knows whether it has started the watchdog."""
