"""The service: takes connections, gives each a thread, and ends when it is told to, with every limit put back."""

import logging
import os
import select
import signal
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from autocap.errors import AutocapError
from autocap.guardian.recovery import UNSETTLED, Fate, settle
from autocap.helper.attendant import attend, refuse
from autocap.helper.bounds import Buckets
from autocap.helper.house import House
from autocap.helper.protocol import Code, Refusal, encode_answer
from autocap.helper.who import Peer, is_nobody_known, peer_of

log = logging.getLogger(__name__)

_END_S = 30.0  # for all clients' limits to be put back
_SETTLE_AGAIN_S = 30.0
_ENDING = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Server:
    """Serves clients of a listening socket until `stop`. state_dir: where what dead owners left is settled."""

    def __init__(self, house: House, listener: socket.socket, state_dir: Path) -> None:
        self._house, self._listener, self._state_dir = house, listener, state_dir
        self._stop_fd, self._stopping_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._lock = threading.Lock()
        self._threads: dict[threading.Thread, int] = {}  # and whom each serves
        self._connects = Buckets(house.bounds.connects, house.now)
        self._settling: threading.Thread | None = None
        self._settled_s = house.now()

    def stop(self) -> None:
        """Have `serve` return, from anywhere."""
        os.write(self._stopping_fd, b"x")

    def serve(self) -> None:
        """Until `stop`; all limits are back then, as far as devices take them. Raises GuardError where the state
        directory is refused."""
        self._settle()
        log.info("autocap helper serves %s", self._listener.getsockname())
        self._listener.setblocking(False)
        incoming = select.poll()
        incoming.register(self._stop_fd, select.POLLIN)
        incoming.register(self._listener, select.POLLIN)
        try:
            while True:
                found = {fd for fd, _ in incoming.poll(1000 * _SETTLE_AGAIN_S)}
                if self._stop_fd in found:
                    return
                if found:
                    self._accept()
                # By the clock, as there may always be somebody who connects.
                if self._house.unsettled.is_set() and self._house.now() - self._settled_s >= _SETTLE_AGAIN_S:
                    self._settle_beside()
        finally:
            self._end_all()

    def close(self) -> None:
        os.close(self._stop_fd)
        os.close(self._stopping_fd)

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except BlockingIOError:
            return
        except OSError as error:  # no descriptors are left, or the client is gone already
            log.warning("a connection could not be taken: %s", error)
            select.select([self._stop_fd], [], [], 0.05)
            return
        try:
            peer = peer_of(connection)
            refusal = self._refusal(peer)
            if refusal is not None:
                refuse(connection, encode_answer(None, refusal))
                return
            thread = threading.Thread(target=self._attend, args=(connection, peer), name=f"client {peer.pid}")
            thread.daemon = True
            with self._lock:
                self._threads[thread] = peer.uid
            try:
                thread.start()
            except RuntimeError:
                with self._lock:
                    del self._threads[thread]
                raise
        except (OSError, RuntimeError) as error:  # no thread can be had
            log.warning("a client could not be served: %s", error)
            connection.close()

    def _refusal(self, peer: Peer) -> Refusal | None:
        """Why a client is not served."""
        if is_nobody_known(peer.uid):
            text = "you come from a user namespace whose users cannot be told apart here; connect from outside of it"
            return Refusal(code=Code.NOT_ALLOWED, text=text)
        with self._lock:
            clients = Counter(self._threads.values())
        bounds = self._house.bounds
        if clients.total() >= bounds.clients:
            return Refusal(code=Code.TOO_MANY, text=f"{clients.total()} clients are connected; try again later")
        if clients[peer.uid] >= bounds.clients_of_uid:
            text = f"{clients[peer.uid]} connections of {peer.name} are open; close one of them"
            return Refusal(code=Code.TOO_MANY, text=text)
        wait_s = self._connects.take(peer.uid)
        if wait_s > 0:
            text = f"{peer.name} connects too often; wait {wait_s:.2f} s"
            return Refusal(code=Code.TOO_FAST, text=text, wait_s=wait_s)
        return None

    def _attend(self, connection: socket.socket, peer: Peer) -> None:
        try:
            attend(self._house, connection, peer, self._stop_fd)
        except Exception:
            log.exception("internal fault while %s was served", peer.who)
        finally:
            with self._lock:
                del self._threads[threading.current_thread()]

    def _end_all(self) -> None:
        deadline_s = self._house.now() + _END_S
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, deadline_s - self._house.now()))
            if thread.is_alive():
                log.error("%s is still being served; its watchdog puts the limits back", thread.name)

    def _settle(self) -> None:
        """Put back what dead owners left, and what could not be put back before."""
        self._settled_s = self._house.now()
        self._house.unsettled.clear()
        for settled in settle(self._state_dir):
            if settled.outcome is Fate.IN_USE:
                continue
            level = logging.ERROR if settled.outcome in UNSETTLED else logging.WARNING
            log.log(level, "left by an earlier owner: %s", settled.sentence)
            if settled.outcome is Fate.FAILED:
                self._house.unsettled.set()

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
            self._house.unsettled.set()


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
