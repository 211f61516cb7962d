"""Where words to a budget are taken: a line in, a line out, from the one thread of whoever holds it. Whatever a client
does or leaves undone holds up nobody else."""

import os
import socket
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

from autocap.errors import AutocapError
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
from autocap.plugins.fleet.manager.tenant import Tenant
from autocap.wire.guests import Rate
from autocap.wire.refusal import Refused, refused
from autocap.wire.server import Server, Visitor
from autocap.wire.who import Peer

_AT_ONCE = 2048  # connections that are taken before anything else is done
_WORDS = Rate(burst=400, per_s=200)  # of one user; who says more waits


Client = Visitor[Tenant]


class Control(Protocol):
    """What may be asked of the budget itself."""

    def change(self, watts: float | None, policy: str | None, why: str) -> None:
        """Raises AutocapError for what is no budget."""

    def weigh(self, pid: int, weight: float, why: str) -> None:
        """Raises AutocapError for a process of no job."""

    def end(self, why: str) -> None:
        """Raises AutocapError where it is somebody else's to end."""

    def standing(self) -> Standing: ...


class Reception(Server[Tenant]):
    """Clients of a listening socket, who may ask how the budget stands, and change it where it is theirs. now: seconds,
    on the clock of whoever holds it. `serve` raises as the steward does where a limit cannot be set."""

    def __init__(self, listener: socket.socket, control: Control, now: Callable[[], float]) -> None:
        super().__init__(listener, words=_WORDS, most_bytes=MOST_BYTES, at_once=_AT_ONCE, now=now, told=_told)
        self._control = control
        self._answers: dict[type[Request], Callable[[Client, Any], Answer]] = {
            Change: self._change,
            Weigh: self._weigh,
            Ask: lambda visitor, request: self._control.standing(),
            End: self._end,
        }

    def _answered(self, visitor: Client, line: bytes) -> bytes:
        id, request = decode_request(line)
        try:
            return encode_answer(id, self._asked(visitor, request))
        except Refused as error:
            return encode_answer(id, error.refusal)

    def _complaint(self, error: BadMessage) -> bytes:
        return encode_answer(error.id, Refusal(code=Code.BAD_MESSAGE, text=f"not understood: {error}"))

    def _asked(self, visitor: Client, request: Request) -> Answer:
        answer = self._answers.get(type(request))
        if answer is None:
            raise refused(Code.NO_LEASE, "nothing is lent here; a tuner registers with its node's manager")
        return answer(visitor, request)

    # The requests.

    def _change(self, visitor: Client, request: Change) -> Done:
        return self._done(visitor, Code.BAD_MESSAGE, partial(self._control.change, request.watts, request.policy))

    def _weigh(self, visitor: Client, request: Weigh) -> Done:
        return self._done(visitor, Code.BAD_MESSAGE, partial(self._control.weigh, request.pid, request.weight))

    def _end(self, visitor: Client, request: End) -> Done:
        return self._done(visitor, Code.NOT_ALLOWED, self._control.end)

    def _done(self, visitor: Client, otherwise: Code, act: Callable[[str], None]) -> Done:
        """Do what only the owner may ask for. act: is told who wants it."""
        if not is_owner(visitor.peer):
            raise refused(Code.NOT_ALLOWED, f"the budget is not {visitor.peer.name}'s to change; ask who started it")
        try:
            act(f"{visitor.peer.name} asked for it")
        except AutocapError as error:
            raise refused(otherwise, str(error)) from error
        return Done()


def _told(why: Refusal) -> bytes:
    """A flood has to be turned away as fast as it comes, and hears nothing."""
    return b"" if why.code is Code.TOO_FAST else encode_answer(None, why)


def is_owner(peer: Peer) -> bool:
    """Whether it is root, or who holds the budget; not the user of that number in a container."""
    return peer.is_user(0, os.geteuid())
