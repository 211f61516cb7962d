"""A keeper's standby: a watchdog that is forked from it before it has a thread or a device, so that both share the
memory of what they have imported, and that watches one guardian after the other.

It takes a duty as `fork_server` does, and says one byte once it is done with it. It ends with its keeper, after it has
put back what that had set.
"""

import gc
import os
import select
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

from autocap.job.processes import has_ended
from autocap.limits import watchdog
from autocap.limits.fork_server import MOST_BYTES, duty_of, request
from autocap.limits.heartbeat import Heartbeat
from autocap.limits.journal import Entry
from autocap.limits.watchdog import Duty
from autocap.limits.watchdog_process import OwnProcess, WatchdogProcess

_DONE = b"d"
_BEATS = 0


class Standby:
    """To be made while this process has one thread. Where it is busy, or was lost, a watchdog of an interpreter of its
    own does its work. not_its: descriptors of the keeper's that it closes. From any thread."""

    def __init__(self, not_its: Sequence[int] = ()) -> None:
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        gc.freeze()  # a collection would write to pages that both share
        self.pid = os.fork()
        if self.pid == 0:
            try:
                self.control.close()
                for fd in not_its:
                    os.close(fd)
                _watch(theirs)
            finally:
                os._exit(0)
        theirs.close()
        self.process = os.pidfd_open(self.pid)
        self._lock = threading.Lock()
        self._watching: _Watching | None = None

    def start(self, duty: Duty, *, entries: Sequence[Entry], ready_timeout_s: float) -> Heartbeat:
        """As `StartWatch`."""
        return Heartbeat(duty, entries=entries, ready_timeout_s=ready_timeout_s, spawn=self._spawn)

    def close(self) -> None:
        """Have it leave, once nothing is left for it to put back."""
        self.control.close()
        os.close(self.process)

    def _spawn(self, duty: Duty, beats: socket.socket, status: int) -> WatchdogProcess:
        """As `Spawn`."""
        with self._lock:
            if self._watching is not None and not self._watching.ends_within(0.0):
                return OwnProcess(duty, beats, status)
            try:
                socket.send_fds(self.control, [request(duty.words())], [beats.fileno(), status], socket.MSG_NOSIGNAL)
            except OSError:  # it was lost
                return OwnProcess(duty, beats, status)
            self._watching = _Watching(self)
            return self._watching


class _Watching:
    """The standby, as long as it watches one guardian: a `WatchdogProcess`."""

    def __init__(self, standby: Standby) -> None:
        self._standby, self.pid = standby, standby.pid
        self._is_done = False

    def ends_within(self, seconds: float) -> bool:
        ready = select.poll()
        ready.register(self._standby.control, select.POLLIN)
        if not self._is_done and ready.poll(1000 * seconds):
            self._is_done = self._standby.control.recv(1) == _DONE or has_ended(self._standby.process, seconds)
            if has_ended(self._standby.process):
                with suppress(ChildProcessError):
                    os.waitpid(self.pid, os.WNOHANG)
        return self._is_done

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._standby.process, signal.SIGKILL)

    def close(self) -> None:
        pass


def _watch(control: socket.socket) -> None:
    """In the forked process: take up duties, until the keeper has gone."""
    os.setsid()
    nobody = os.open(os.devnull, os.O_RDWR)
    os.dup2(nobody, _BEATS)  # which was the way to the session
    while True:
        packet, ends, _, _ = socket.recv_fds(control, MOST_BYTES, 2)
        if not packet:
            return
        beats, status = ends
        os.dup2(beats, _BEATS)
        os.close(beats)
        watchdog.main([str(status), *duty_of(packet)])
        os.dup2(nobody, _BEATS)
        os.close(status)
        with suppress(OSError):  # the keeper has gone
            control.send(_DONE, socket.MSG_NOSIGNAL)
