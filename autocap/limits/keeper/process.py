"""The life of a keeper: answers its session until that has ended, by then or however, and puts back what it has set.

Its standby is a watchdog that is forked from it before it has a thread or a device, so that both share the memory of
what they have imported, and that watches one guardian after the other. It takes a duty as `fork_server` does, and says
one byte once it is done with it. It ends with its keeper, after it has put back what that had set.
"""

import errno
import gc
import json
import os
import select
import signal
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from autocap.job.keeper import MOST_BYTES, Answer
from autocap.job.processes import has_ended
from autocap.job.signals import ignore_signals
from autocap.limits import Guardian, watchdog
from autocap.limits.fork_server import duty_of, request
from autocap.limits.heartbeat import Heartbeat, StartWatch
from autocap.limits.helper.conversation import PeerProcess, serve_client
from autocap.limits.helper.service_state import ServiceState
from autocap.limits.journal import Entry
from autocap.limits.keeper.charge import Charge, ChargePolicy
from autocap.limits.keeper.openings import Openings
from autocap.limits.state_dir import default_path
from autocap.limits.times import SERVICE_END_S
from autocap.limits.watchdog import Duty, OwnProcess, WatchdogProcess
from autocap.wire.admission import AdmittedClient, Bounds, Rate
from autocap.wire.codec import decode

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


_CHANNEL = 0  # standard input
_MOST_CONNECTIONS = 8  # one at a time is needed
_OFTEN = Rate(burst=1000.0, per_s=100.0)  # one session alone is served, and harms nobody but itself
_BOUNDS = Bounds(messages=_OFTEN, looks=_OFTEN, lends=_OFTEN, sets=_OFTEN, idle_s=1e6)


def main(words: list[str]) -> None:
    """words: none. The first packet is root's, with a descriptor of the process that becomes the session."""
    ignore_signals()
    channel = socket.socket(fileno=_CHANNEL)
    said, (session,), _, _ = socket.recv_fds(channel, MOST_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
    charge = decode(Charge, json.loads(said))
    standby = Standby(not_its=(session,)) if charge.has_limits else None
    keeper = KeeperProcess(channel, charge, session, Heartbeat if standby is None else standby.start)
    signal.signal(signal.SIGTERM, lambda *_: keeper.stop())  # root's, as nobody else may
    keeper.serve()
    if standby is not None:
        standby.close()


class KeeperProcess:
    """channel: to the session. session: a descriptor of its process. start_watch: starts the watchdog of a guardian."""

    def __init__(
        self, channel: socket.socket, charge: Charge, session: int, start_watch: StartWatch = Heartbeat
    ) -> None:
        self._channel, self._charge, self._session = channel, charge, session
        self._stop_fd, self._stopping_fd = os.pipe()
        self._openings = Openings(charge, self._guard)
        self._start_watch = start_watch
        self._service_state: ServiceState | None = None
        self._threads: list[threading.Thread] = []

    def stop(self) -> None:
        """Have `serve` return."""
        os.write(self._stopping_fd, b"x")

    def serve(self) -> None:
        """Until the session has ended, or has closed its end. All limits are back then, as far as devices take them."""
        ready = select.poll()
        for fd in (self._channel.fileno(), self._session, self._stop_fd):
            ready.register(fd, select.POLLIN)
        try:
            while {fd for fd, _ in ready.poll()} == {self._channel.fileno()} and self._answer():
                pass
        finally:
            self.stop()
            self._openings.close()
            for thread in self._threads:
                thread.join(SERVICE_END_S)
            self._channel.close()
            for fd in (self._session, self._stop_fd, self._stopping_fd):
                os.close(fd)

    def _answer(self) -> bool:
        """Answer one packet; whether there was one."""
        try:
            packet, fds, _, _ = socket.recv_fds(self._channel, MOST_BYTES, 1, socket.MSG_CMSG_CLOEXEC)
        except OSError:
            return False
        if not packet:
            return False
        number: object = None
        made = Answer()
        try:
            said = json.loads(packet)
            number = said["id"]
            made = self._openings.answer(said, fds)
            body: dict[str, object] = {"text": made.text, "texts": made.texts}
        except OSError as error:
            body = {"errno": error.errno or errno.EIO, "text": error.strerror or str(error)}
        except (ValueError, LookupError, TypeError, RecursionError):
            body = {"errno": errno.EINVAL, "text": "not understood"}
        finally:
            for fd in fds:
                os.close(fd)
        with suppress(OSError):  # it has ended
            socket.send_fds(self._channel, [json.dumps({"id": number, **body}).encode()], made.fds)
        for fd in made.fds:
            os.close(fd)
        return True

    def _guard(self, process: int, pid: int) -> int:
        """A thread that serves one connection, of a process whose descriptor is given; its other end. Which process
        that is decides when its limits are put back, and nothing else."""
        if self._service_state is None:
            self._service_state = _service_state(self._charge, self._start_watch)
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        if len(self._threads) >= _MOST_CONNECTIONS:
            raise OSError(errno.EAGAIN, "too many connections are open")
        ours, theirs = socket.socketpair()
        admitted = AdmittedClient(
            replace(self._charge.peer, pid=pid), self._service_state.now(), partial(ours.shutdown, socket.SHUT_RDWR)
        )
        peer = PeerProcess(os.dup(process), pid)
        thread = threading.Thread(
            target=serve_client, args=(self._service_state, ours, admitted, self._stop_fd, peer), daemon=True
        )
        self._threads.append(thread)
        thread.start()
        return theirs.detach()


def _service_state(charge: Charge, start_watch: StartWatch) -> ServiceState:
    inventories = charge.inventories()
    return ServiceState(
        inventories=inventories,
        policy=ChargePolicy(charge, inventories),
        state_dir=default_path(),
        new_guardian=partial(Guardian, start_watch=start_watch),
        bounds=_BOUNDS,
    )
