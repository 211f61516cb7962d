"""A client's end of a connection: requests out, answers back in their order, each waited for so long."""

import os
import socket
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from contextlib import suppress
from typing import Any, Generic, TypeVar

from autocap.errors import PeerLost
from autocap.wire.json_lines import BadMessage
from autocap.wire.stream import LineStream

A = TypeVar("A")
Q = TypeVar("Q")
_K = TypeVar("_K")


class Client(ABC, Generic[Q, A]):
    """Requests are of the type Q, answers of the type A. connected: to the server; it is taken over. other: what
    messages call the server. most_bytes: of an answer, with its newline. within_s: for an answer, unless it is said
    otherwise. heard_s: when something was last heard, on the monotonic clock."""

    def __init__(self, connected: socket.socket, within_s: float, *, other: str, most_bytes: int) -> None:
        self._within_s, self._other, self._ids = within_s, other, 0
        self._waiting: deque[tuple[int, Q, float]] = deque()  # for an answer: id, what was asked, and when
        self._aside: list[A] = []  # that came before the one that was waited for
        self._socket = connected
        self._stream = LineStream(self._socket, self._socket, most_bytes)
        self.heard_s = time.monotonic()
        _live.add(self)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def unanswered(self) -> int:
        """How many requests wait for their answer."""
        return len(self._waiting)

    @property
    def mute_s(self) -> float:
        """For how long the oldest request has waited for its answer, seconds; 0 where none does."""
        return time.monotonic() - self._waiting[0][2] if self._waiting else 0.0

    def post(self, request: Q) -> None:
        """Send a request, whose answer is taken by `drain`. Raises PeerLost where it takes none."""
        self._ids += 1
        self._stream.say(self._encoded(self._ids, request))
        self._waiting.append((self._ids, request, time.monotonic()))
        # Where it has closed its end, what it said before, it may say why, is still to be read.
        if not self._stream.deliver(self._within_s) and not self._stream.broken:
            raise PeerLost(f"{self._other} takes no messages any more")

    def answer_to(self, request: Q, within_s: float | None = None) -> A:
        """The answer to a request; those to earlier ones are left to `drain`. Raises PeerLost."""
        within_s = self._within_s if within_s is None else within_s
        deadline_s = time.monotonic() + within_s
        self.post(request)
        while (answer := self._next(deadline_s)) is not None and self._waiting:
            self._aside.append(answer)
        if answer is None:
            raise PeerLost(f"{self._other} has not answered for {within_s:g} s")
        return answer

    def drain(self, wait_s: float) -> list[A]:
        """The answers that are there, or come within so many seconds where some are waited for. Raises PeerLost."""
        deadline_s = time.monotonic() + wait_s
        found, self._aside = self._aside, []
        while self._waiting and (answer := self._next(deadline_s)) is not None:
            found.append(answer)
        if not self._waiting:  # unasked, it has most likely ended the connection
            self._next(0.0)
        return found

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def expected(self, answer: Any, kind: type[_K]) -> _K:
        """An answer, which is to be of that kind. Raises PeerLost."""
        if not isinstance(answer, kind):
            raise PeerLost(f"{self._other} answered something else than it was asked")
        return answer

    def _next(self, deadline_s: float) -> A | None:
        """The next answer to a request; `None` where none has come in time. Raises PeerLost."""
        while True:
            try:
                while (line := self._stream.take()) is None:
                    if self._stream.ended:
                        raise PeerLost(f"{self._other} has ended the connection")
                    if not self._stream.is_readable(deadline_s - time.monotonic()):
                        return None
                    self._stream.read()
                expected, request, _ = self._waiting[0] if self._waiting else (None, None, 0.0)
                id, answer = self._decoded(line, request)
            except BadMessage as error:
                raise PeerLost(f"{self._other} does not speak version 1 of the protocol: {error}") from error
            self.heard_s = time.monotonic()
            if self._is_unasked(id, answer):
                continue
            if expected is None or id not in (None, expected):
                raise PeerLost(f"{self._other} answered another question")
            self._waiting.popleft()
            return answer

    # What a protocol has to say.

    @abstractmethod
    def _encoded(self, id: int, request: Q) -> bytes:
        """A request as a line."""

    @abstractmethod
    def _decoded(self, line: bytes, request: Q | None) -> tuple[int | None, A]:
        """The id and the answer in a line, to a request where one waits. Raises BadMessage."""

    def _is_unasked(self, id: int | None, answer: A) -> bool:
        """Whether it is no answer to a request, and was taken in. Raises PeerLost where it ends the connection."""
        return False


_live: "weakref.WeakSet[Client[Any, Any]]" = weakref.WeakSet()


def _forget_in_child() -> None:
    """A forked child must not keep a connection open beyond its parent's death."""
    for client in list(_live):
        client.close()


os.register_at_fork(after_in_child=_forget_in_child)
