"""Who connects to a socket of ours is let in, or told why not; and a server that a single thread can have beside its
other work. Whatever a client does or leaves undone holds up nobody else."""

import logging
import select
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

from autocap.wire.admission import AdmittedClient, AdmittedClients, Bounds, Buckets, Rate
from autocap.wire.json_lines import BadMessage
from autocap.wire.refusal import Refusal
from autocap.wire.stream import LineStream
from autocap.wire.who import Peer

log = logging.getLogger(__name__)

T = TypeVar("T")
_TIRED_S = 0.05  # until a connection is taken again, where none could be
_BYTES_A_WORD = 512  # a long one counts for several
_MOST_WAITING = 1 << 20  # bytes that a client has not taken


class ClientAdmission:
    """A listening socket. now: seconds, on the clock of whoever serves. told: the line that says why somebody is turned
    away."""

    def __init__(
        self, listener: socket.socket, bounds: Bounds, now: Callable[[], float], told: Callable[[Refusal], bytes]
    ) -> None:
        self._listener, self._now, self._told = listener, now, told
        self._again_s = now()
        self.admitted_clients = AdmittedClients(bounds, now)
        listener.setblocking(False)

    def watch(self, poll: "select.poll") -> float | None:
        """Have a poll wake up for who comes; seconds after which to ask anew where nobody can be taken for now."""
        wait_s = self._again_s - self._now()
        if wait_s > 0:
            return wait_s
        poll.register(self._listener, select.POLLIN)
        return None

    def enter(
        self, at_once: int, close: Callable[[socket.socket], object]
    ) -> Iterator[tuple[socket.socket, AdmittedClient]]:
        """Who has come, up to so many. close: ends a connection, from any thread, and waits for nothing."""
        for _ in range(at_once):
            try:
                connection, _ = self._listener.accept()
            except BlockingIOError:
                return
            except OSError as error:  # no descriptors are left, or the client is gone already
                log.warning("a connection could not be taken: %s", error)
                self._again_s = self._now() + _TIRED_S
                return
            try:
                peer = self.admitted_clients.greet(connection)
            except OSError:  # the client is gone
                connection.close()
                continue
            admitted = self.admitted_clients.admit(peer, partial(close, connection)) if isinstance(peer, Peer) else peer
            if isinstance(admitted, AdmittedClient):
                yield connection, admitted
            else:
                self.turn_away(connection, admitted)

    def turn_away(self, connection: socket.socket, why: Refusal) -> None:
        """Say why a client is not served, as far as it listens, and close."""
        with connection, suppress(OSError):
            connection.setblocking(False)
            connection.send(self._told(why), socket.MSG_NOSIGNAL)


@dataclass(slots=True, kw_only=True)
class ClientConnection(Generic[T]):
    """One connection. lent: what is lent to it, `None` for nothing. put_off: what it has said, which has to
    wait, as its user says too much."""

    connection: socket.socket
    stream: LineStream
    admitted: AdmittedClient
    lent: T | None = None
    put_off: bytes | None = None
    over: bool = False

    @property
    def peer(self) -> Peer:
        return self.admitted.peer

    @property
    def heard_s(self) -> float:
        return self.admitted.heard_s

    def say(self, line: bytes) -> None:
        """Have a line sent as soon as it is taken."""
        self.stream.say(line)
        self.over |= self.stream.waiting > _MOST_WAITING


class Server(ABC, Generic[T]):
    """Clients of a listening socket: a line in, a line out, from one thread. words: of one user; who says more waits.
    most_bytes: of a line. at_once: connections that are taken before anything else is done. now, told: as
    `ClientAdmission` has them."""

    def __init__(
        self,
        listener: socket.socket,
        *,
        words: Rate,
        most_bytes: int,
        at_once: int,
        now: Callable[[], float],
        told: Callable[[Refusal], bytes],
    ) -> None:
        self._listener, self._now = listener, now
        self._most_bytes, self._at_once, self._bounds = most_bytes, at_once, Bounds()
        self._door = ClientAdmission(listener, self._bounds, now, told)
        self._words = Buckets(words, now)
        self._clients: dict[int, ClientConnection[T]] = {}

    def watch(self, poll: "select.poll") -> None:
        """Have a poll wake up for whoever speaks."""
        self._door.watch(poll)
        for fd, client in self._clients.items():
            wanted = select.POLLIN if client.put_off is None else 0
            wanted |= select.POLLOUT if client.stream.waiting else 0
            if wanted:  # else it would wake up for one who has gone meanwhile, again and again
                poll.register(fd, wanted)

    def serve(self, ready: set[int]) -> None:
        """Hear those who are ready, by their descriptors."""
        if self._listener.fileno() in ready:
            for connection, admitted in self._door.enter(self._at_once, self._show_out):
                stream = LineStream(connection, connection, self._most_bytes)
                self._clients[connection.fileno()] = ClientConnection(
                    connection=connection, stream=stream, admitted=admitted
                )
        for fd, client in list(self._clients.items()):
            if fd in ready or client.put_off is not None:
                self._hear(client)
                client.stream.flush()
        self._dismiss()

    def pass_time(self) -> None:
        """End connections that are of no use to anybody."""
        for client in self._clients.values():
            client.over |= client.lent is None and self._now() - client.heard_s >= self._bounds.idle_s
        self._dismiss()

    def close(self) -> None:
        for client in self._clients.values():
            client.stream.flush()
            client.connection.close()
        self._clients.clear()

    def _show_out(self, connection: socket.socket) -> None:
        self._clients[connection.fileno()].over = True

    def _hear(self, client: ClientConnection[T]) -> None:
        if client.put_off is None:
            if client.stream.read():
                client.admitted.heard_s = self._now()
            client.over |= client.stream.ended
        while not client.over:
            line, client.put_off = client.put_off, None
            try:
                line = client.stream.take() if line is None else line
                if line is None:
                    return
                if self._words.take(client.peer.account) > 0:
                    client.put_off = line
                    return
                self._counts(client, len(line) / _BYTES_A_WORD)
                client.say(self._answered(client, line))
            except BadMessage as error:
                client.over = error.id is None
                client.say(self._complaint(error))

    def _counts(self, client: ClientConnection[T], words: float) -> None:
        """What was said takes as long as so many words."""
        self._words.charge(client.peer.account, words)

    def _dismiss(self) -> None:
        for fd, client in list(self._clients.items()):
            if client.over or client.stream.broken:
                del self._clients[fd]
                self._door.admitted_clients.leave(client.admitted)
                client.connection.close()
                self._left(client)

    # What a protocol has to say.

    @abstractmethod
    def _answered(self, client: ClientConnection[T], line: bytes) -> bytes:
        """The answer to a line. Raises BadMessage."""

    @abstractmethod
    def _complaint(self, error: BadMessage) -> bytes:
        """The answer to what is no message."""

    def _left(self, client: ClientConnection[T]) -> None:
        """A connection has ended."""
