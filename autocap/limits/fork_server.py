"""A process that has all that a watchdog imports, and forks one for each duty: a start costs it milliseconds of a CPU
instead of the fifth of a second that an interpreter takes, from which the clients of a helper would have to wait.

It shares nothing with the watchdogs that it has forked: each has its own session and its own ends of its channels, and
goes on when this process is killed. It ends with whoever started it, and knows no device, lock, journal or thread.

Its standard input is a socket of packets. A request is a duty's words, with the watchdog's ends of the heartbeat and of
the answers; the answer is the PID with a descriptor of that very process, or without one why there is none.
"""

import gc
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType

from autocap.devices import prepare
from autocap.errors import DeviceError
from autocap.job.processes import has_ended
from autocap.job.signals import ignore_signals
from autocap.limits import watchdog
from autocap.limits.heartbeat import Heartbeat
from autocap.limits.journal import Entry
from autocap.limits.times import ANSWER_WITHIN_S
from autocap.limits.watchdog import Duty, interpreter

MOST_BYTES = 1 << 16  # of a packet
_CONTROL = 0
_BETWEEN = b"\0"  # words


def main(kinds: list[str]) -> None:
    """Until whoever started it has gone. kinds: of the devices that will be watched; they are not touched here."""
    ignore_signals()
    for kind in kinds:
        with suppress(DeviceError):  # the watchdog says it
            prepare(kind)
    gc.freeze()  # a collection would write to pages that the forked share
    ForkServer(socket.socket(fileno=_CONTROL)).run()


def request(words: list[str]) -> bytes:
    """A duty's words, as a packet has them."""
    return _BETWEEN.join(map(os.fsencode, words))


def duty_of(packet: bytes) -> list[str]:
    """The words in a packet."""
    return list(map(os.fsdecode, packet.split(_BETWEEN)))


class ForkServer:
    """control: where requests come from."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._children: dict[int, int] = {}  # PIDs, by their descriptors

    def run(self) -> None:
        """Until the other end of `control` is closed."""
        events = select.poll()
        events.register(self._control, select.POLLIN)
        while True:
            for fd, _ in events.poll():
                if fd in self._children:
                    events.unregister(fd)
                    os.waitpid(self._children.pop(fd), 0)
                    os.close(fd)
                    continue
                packet, ends, _, _ = socket.recv_fds(self._control, MOST_BYTES, 2)
                if not packet:
                    return
                child = self._fork(packet, ends)
                if child is not None:
                    events.register(child, select.POLLIN)

    def _fork(self, packet: bytes, ends: list[int]) -> int | None:
        """Answer a request; the descriptor of the watchdog's process, `None` where there is none."""
        try:
            pid = os.fork()
            if pid == 0:
                self._watch(packet, ends)
            try:
                child = os.pidfd_open(pid)
            except OSError:
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
                raise
            self._children[child] = pid
            socket.send_fds(self._control, [str(pid).encode()], [child], socket.MSG_NOSIGNAL)
            return child
        except OSError as error:
            with suppress(OSError):  # who asked has gone
                self._control.send(str(error).encode(), socket.MSG_NOSIGNAL)
            return None
        finally:
            for fd in ends:
                os.close(fd)

    def _watch(self, packet: bytes, ends: list[int]) -> None:
        """In the forked process: be a watchdog, to the end."""
        try:
            os.setsid()
            beats, status = ends
            os.dup2(beats, _CONTROL)  # where a watchdog hears its controller
            for fd in (beats, *self._children):
                os.close(fd)
            watchdog.main([str(status), *duty_of(packet)])
        finally:
            os._exit(0)


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
