"""The service: takes connections, gives each a thread, and ends when it is told to, with every limit put back."""

import logging
import os
import select
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from types import FrameType

from autocap.errors import AutocapError
from autocap.limits.helper.conversation import serve_peer
from autocap.limits.helper.protocol import encode_answer
from autocap.limits.helper.service_state import ServiceState
from autocap.limits.recovery import UNSETTLED, Fate, settle
from autocap.limits.times import SERVICE_END_S, SETTLE_AGAIN_S
from autocap.wire.admission import AdmittedClient
from autocap.wire.refusal import Code, Refusal
from autocap.wire.server import ClientAdmission

log = logging.getLogger(__name__)

_AT_ONCE = 32  # connections that are taken before anything else is done
_LEAVING = 64  # threads of connections that have made room, and are about to end
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Server:
    """Serves clients of a listening socket until `stop`. state_dir: where what dead owners left is settled."""

    def __init__(self, service_state: ServiceState, listener: socket.socket, state_dir: Path) -> None:
        self._service_state, self._listener, self._state_dir = service_state, listener, state_dir
        self._stop_fd, self._stopping_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._lock = threading.Lock()
        self._threads: set[threading.Thread] = set()
        self._door = ClientAdmission(listener, service_state.bounds, service_state.now, partial(encode_answer, None))
        self._settling: threading.Thread | None = None
        self._settled_s = service_state.now()

    def stop(self) -> None:
        """Have `serve` return, from anywhere."""
        os.write(self._stopping_fd, b"x")

    def serve(self) -> None:
        """Until `stop`; all limits are back then, as far as devices take them. Raises GuardError where the state
        directory is refused."""
        self._settle()
        log.info("autocap helper serves %s", self._listener.getsockname())
        try:
            while True:
                incoming = select.poll()
                incoming.register(self._stop_fd, select.POLLIN)
                wait_s = self._door.watch(incoming)
                found = {fd for fd, _ in incoming.poll(1000 * (SETTLE_AGAIN_S if wait_s is None else wait_s))}
                if self._stop_fd in found:
                    return
                if found:
                    for connection, admitted in self._door.enter(_AT_ONCE, _hang_up):
                        self._begin(connection, admitted)
                # By the clock, as there may always be somebody who connects.
                if (
                    self._service_state.unsettled.is_set()
                    and self._service_state.now() - self._settled_s >= SETTLE_AGAIN_S
                ):
                    self._settle_beside()
        finally:
            self._end_all()

    def close(self) -> None:
        os.close(self._stop_fd)
        os.close(self._stopping_fd)

    def _begin(self, connection: socket.socket, admitted: AdmittedClient) -> None:
        """Give a client its thread."""
        thread = threading.Thread(target=self._attend, args=(connection, admitted), name=f"client {admitted.peer.pid}")
        thread.daemon = True
        with self._lock:
            threads = len(self._threads)
            self._threads.add(thread)
        if threads >= self._service_state.bounds.clients + _LEAVING:
            self._gone(thread, admitted)
            why = Refusal(code=Code.TOO_MANY, text=f"{threads} clients are being served; try again later")
            self._door.turn_away(connection, why)
            return
        try:
            thread.start()
        except RuntimeError as error:  # no thread can be had
            log.warning("a client could not be served: %s", error)
            self._gone(thread, admitted)
            connection.close()

    def _gone(self, thread: threading.Thread, admitted: AdmittedClient) -> None:
        self._door.admitted_clients.leave(admitted)
        with self._lock:
            self._threads.discard(thread)

    def _attend(self, connection: socket.socket, admitted: AdmittedClient) -> None:
        try:
            serve_peer(self._service_state, connection, admitted, self._stop_fd)
        except Exception:
            log.exception("internal fault while %s was served", admitted.peer.who)
        finally:
            self._gone(threading.current_thread(), admitted)

    def _end_all(self) -> None:
        deadline_s = self._service_state.now() + SERVICE_END_S
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, deadline_s - self._service_state.now()))
            if thread.is_alive():
                log.error("%s is still being served; its watchdog puts the limits back", thread.name)

    def _settle(self) -> None:
        """Put back what dead owners left, and what could not be put back before."""
        self._settled_s = self._service_state.now()
        self._service_state.unsettled.clear()
        for settled in settle(self._state_dir):
            if settled.outcome is Fate.IN_USE:
                continue
            level = logging.ERROR if settled.outcome in UNSETTLED else logging.WARNING
            log.log(level, "left by an earlier owner: %s", settled.sentence)
            if settled.outcome is Fate.FAILED:
                self._service_state.unsettled.set()

    def _settle_beside(self) -> None:
        """The same while clients are served: it waits for the locks of what is lent."""
        if self._settling is None or not self._settling.is_alive():
            self._settling = threading.Thread(target=self._settle_again, name="settling", daemon=True)
            self._settling.start()

    def _settle_again(self) -> None:
        try:
            self._settle()
        except (AutocapError, OSError) as error:  # a state directory that is gone or refused for a while
            log.error("limits that could not be put back are tried again later: %s", error)
            self._service_state.unsettled.set()


def _hang_up(connection: socket.socket) -> None:
    """Have the thread of a connection end it."""
    with suppress(OSError):  # it has ended already
        connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def ended_by_signals(server: Server) -> Iterator[None]:
    """Inside, SIGTERM, SIGINT and SIGHUP stop the server."""

    def stop(signum: int, frame: FrameType | None) -> None:
        server.stop()

    before = {signum: signal.signal(signum, stop) for signum in _ENDING}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
