"""Where words to a budget are taken: a line in, a line out, from the one thread of whoever holds it. Whatever a client
does or leaves undone holds up nobody else."""

import logging
import os
import select
import socket
from collections.abc import Callable
from typing import Protocol

from autocap.errors import AutocapError
from autocap.limits.helper.attendant import refuse
from autocap.limits.helper.bounds import Bounds, Buckets, Rate
from autocap.limits.helper.guests import Guests
from autocap.limits.helper.who import Peer
from autocap.plugins.fleet.budget.words import (
    MOST_BYTES,
    Answer,
    Ask,
    BadMessage,
    Change,
    Code,
    Done,
    End,
    Refusal,
    Request,
    Standing,
    Weigh,
    decode_request,
    encode_answer,
)
from autocap.plugins.fleet.manager.visitor import Visitor
from autocap.wire.stream import LineStream

log = logging.getLogger(__name__)

_AT_ONCE = 2048  # connections that are taken before anything else is done
_WORDS = Rate(burst=400, per_s=200)  # of one user; who says more waits
_BYTES_A_WORD = 512  # a long one counts for several
_MOST_WAITING = 1 << 20  # bytes that a client has not taken


class Control(Protocol):
    """What may be asked of the budget itself."""

    def change(self, watts: float | None, policy: str | None, why: str) -> None:
        """Raises AutocapError for what is no budget."""

    def weigh(self, pid: int, weight: float, why: str) -> None:
        """Raises AutocapError for a process of no job."""

    def end(self, why: str) -> None:
        """Raises AutocapError where it is somebody else's to end."""

    def standing(self) -> Standing: ...


class Reception:
    """Clients of a listening socket, who may ask how the budget stands, and change it where it is theirs. now: seconds,
    on the clock of whoever holds it."""

    def __init__(self, listener: socket.socket, control: Control, now: Callable[[], float]) -> None:
        self._listener, self._control, self._now = listener, control, now
        self._bounds = Bounds()
        self._guests, self._visitors = Guests(self._bounds, now), dict[int, Visitor]()
        self._words = Buckets(_WORDS, now)
        self._answers: dict[type[Request], Callable[[Visitor, Request], Answer]] = {
            Change: self._change,
            Weigh: self._weigh,
            Ask: lambda visitor, request: self._control.standing(),
            End: self._end,
        }
        listener.setblocking(False)

    def watch(self, poll: "select.poll") -> None:
        """Have a poll wake up for whoever speaks."""
        poll.register(self._listener, select.POLLIN)
        for fd, visitor in self._visitors.items():
            wanted = (0 if visitor.put_off is not None else select.POLLIN) | (
                select.POLLOUT if visitor.lines.waiting else 0
            )
            if wanted:  # else it would wake up for one who has gone meanwhile, again and again
                poll.register(fd, wanted)

    def serve(self, ready: set[int]) -> None:
        """Hear those who are ready, by their descriptors. Raises as the steward does where a limit cannot be set."""
        if self._listener.fileno() in ready:
            for _ in range(_AT_ONCE):
                if not self._accept():
                    break
        for fd, visitor in list(self._visitors.items()):
            if fd in ready or visitor.put_off is not None:
                self._hear(visitor)
                visitor.lines.flush()
        self._dismiss()

    def pass_time(self) -> None:
        """End connections that are of no use to anybody."""
        for visitor in self._visitors.values():
            if visitor.tenant is None and self._now() - visitor.heard_s >= self._bounds.idle_s:
                visitor.over = True
        self._dismiss()

    def close(self) -> None:
        for visitor in self._visitors.values():
            visitor.lines.flush()
            visitor.connection.close()
        self._visitors.clear()

    def _left(self, visitor: Visitor) -> None:
        """A connection has ended."""

    def _accept(self) -> bool:
        """Take a connection; whether there may be another one."""
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            log.debug("no connection could be taken: %s", error)
            return False
        try:
            connection.setblocking(False)
            fd, peer = connection.fileno(), self._guests.greet(connection)
        except OSError:
            connection.close()
            return True
        if isinstance(peer, Refusal):  # of a flood that has to be turned away as fast as it comes
            connection.close()
            return True
        guest = self._guests.admit(peer, lambda: self._show_out(fd))
        if isinstance(guest, Refusal):
            refuse(connection, encode_answer(None, guest))
            return True
        self._visitors[fd] = Visitor(
            connection=connection, lines=LineStream(connection, connection, MOST_BYTES), guest=guest
        )
        return True

    def _show_out(self, fd: int) -> None:
        self._visitors[fd].over = True

    def _hear(self, visitor: Visitor) -> None:
        if visitor.put_off is None:
            self._read(visitor)
        while not visitor.over:
            try:
                line, visitor.put_off = visitor.put_off, None
                line = visitor.lines.take() if line is None else line
                if line is None:
                    return
                if self._words.take(visitor.peer.account) > 0:
                    visitor.put_off = line
                    return
                self._counts(visitor, len(line) / _BYTES_A_WORD)
                id, request = decode_request(line)
            except BadMessage as error:
                visitor.over = error.id is None
                refusal = Refusal(code=Code.BAD_MESSAGE, text=f"not understood: {error}")
                self._say(visitor, encode_answer(error.id, refusal))
                continue
            answer: Answer | Refusal
            try:
                answer = self._asked(visitor, request)
            except Refused as error:
                answer = error.refusal
            self._say(visitor, encode_answer(id, answer))

    def _read(self, visitor: Visitor) -> None:
        if visitor.lines.read():
            visitor.guest.heard_s = self._now()
        visitor.over |= visitor.lines.ended

    def _say(self, visitor: Visitor, line: bytes) -> None:
        visitor.lines.say(line)
        visitor.over |= visitor.lines.broken or visitor.lines.waiting > _MOST_WAITING

    def _counts(self, visitor: Visitor, words: float) -> None:
        """What was said takes as long as so many words."""
        self._words.charge(visitor.peer.account, words)

    def _dismiss(self) -> None:
        for fd, visitor in list(self._visitors.items()):
            if visitor.over:
                del self._visitors[fd]
                self._guests.leave(visitor.guest)
                visitor.connection.close()
                self._left(visitor)

    def _asked(self, visitor: Visitor, request: Request) -> Answer:
        answer = self._answers.get(type(request))
        if answer is None:
            raise refused(Code.NO_LEASE, "nothing is lent here; a tuner registers with its node's manager")
        return answer(visitor, request)

    # The requests.

    def _change(self, visitor: Visitor, request: Request) -> Done:
        assert isinstance(request, Change)
        self._require_control(visitor)
        try:
            self._control.change(request.watts, request.policy, f"{visitor.peer.name} asked for it")
        except AutocapError as error:
            raise refused(Code.BAD_MESSAGE, str(error)) from error
        return Done()

    def _weigh(self, visitor: Visitor, request: Request) -> Done:
        assert isinstance(request, Weigh)
        self._require_control(visitor)
        try:
            self._control.weigh(request.pid, request.weight, f"{visitor.peer.name} asked for it")
        except AutocapError as error:
            raise refused(Code.BAD_MESSAGE, str(error)) from error
        return Done()

    def _end(self, visitor: Visitor, request: Request) -> Done:
        self._require_control(visitor)
        try:
            self._control.end(f"{visitor.peer.name} asked for it")
        except AutocapError as error:
            raise refused(Code.NOT_ALLOWED, str(error)) from error
        return Done()

    def _require_control(self, visitor: Visitor) -> None:
        if not is_owner(visitor.peer):
            raise refused(Code.NOT_ALLOWED, f"the budget is not {visitor.peer.name}'s to change; ask who started it")


def is_owner(peer: Peer) -> bool:
    """Whether it is root, or who holds the budget; not the user of that number in a container."""
    return peer.is_user(0, os.geteuid())


class Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal


def refused(code: Code, text: str) -> Refused:
    return Refused(Refusal(code=code, text=text))
