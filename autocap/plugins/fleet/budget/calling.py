"""A client's end of a connection to the manager of a budget: requests out, answers back, each waited for so long."""

import select
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from autocap.errors import AutocapError, GuardError
from autocap.job.invoking_user import privileged
from autocap.limits.helper.connection import error_of
from autocap.limits.helper.dialling import dialled
from autocap.limits.state_dir import ROOTS_PATH, default_path
from autocap.limits.times import ANSWER_WITHIN_S
from autocap.plugins.fleet.budget.words import (
    MOST_BYTES,
    Answer,
    BadMessage,
    Lines,
    Refusal,
    Request,
    Told,
    decode_answer,
    encode_request,
)

A = TypeVar("A", bound=Answer)
SOCKET, SITE_SOCKET = "budget.sock", "budget.site.sock"  # of a machine's manager; of a budget over several nodes
_READ_BYTES = 1 << 16


class NoBudget(AutocapError):
    """No budget runs on this machine."""


class ManagerLost(GuardError):
    """The manager has ended the connection, or says nothing any more. The message is a clause."""


def socket_paths(name: str = SOCKET) -> tuple[Path, ...]:
    """Where a budget's manager may listen: our own state directory, and root's."""
    with privileged():
        return tuple(dict.fromkeys(folder / name for folder in (default_path(), ROOTS_PATH)))


def holder_paths() -> tuple[Path, ...]:
    """Where who holds the whole budget may listen: one over several nodes goes before this node's part of it."""
    return (*socket_paths(SITE_SOCKET), *socket_paths())


def call(paths: Sequence[Path] | None = None, within_s: float = ANSWER_WITHIN_S) -> "Call":
    """A connection to the budget that runs on this machine. Raises NoBudget where there is none, or not for us."""
    denied = ""
    for path in socket_paths() if paths is None else paths:
        try:
            with privileged():  # root's own, which the user behind sudo may not reach
                return Call(path, within_s)
        except PermissionError:
            denied = f"{path} is not open to you; have who runs it pass `--group` with a group of yours"
        except BlockingIOError:
            denied = f"so many connect to {path} that none of our tries got through; try again"
        except OSError:
            continue
    if denied:
        raise NoBudget(f"the budget here cannot be asked: {denied}")
    raise NoBudget("no budget runs here; start one with `autocap budget WATTS`")


class Call:
    """path: of the manager's socket. told: the ceilings that it has told of, asked or not, in the order in which they
    came. Raises OSError where nobody listens."""

    def __init__(self, path: Path, within_s: float = ANSWER_WITHIN_S) -> None:
        self.path, self._within_s = path, within_s
        self._lines, self._ids = Lines(MOST_BYTES), 0
        self._unanswered: dict[int, float] = {}  # since when
        self._answers: dict[int, Answer | Refusal] = {}
        self.told: list[Told] = []
        self.heard_s = time.monotonic()
        self._socket = dialled(path, within_s)

    def fileno(self) -> int:
        return self._socket.fileno()

    @property
    def mute_s(self) -> float:
        """For how long the oldest request has waited for its answer, seconds."""
        return time.monotonic() - min(self._unanswered.values(), default=time.monotonic())

    @property
    def unanswered(self) -> int:
        """How many requests wait for their answer."""
        return len(self._unanswered)

    def ask(self, request: Request, kind: type[A], within_s: float | None = None) -> A:
        """The answer to a request. Raises what the manager's refusal stands for, ManagerLost."""
        within_s = self._within_s if within_s is None else within_s
        deadline_s, id = time.monotonic() + within_s, self.post(request)
        while id not in self._answers:
            if not self._take(deadline_s):
                raise ManagerLost(f"the budget's manager has not answered for {within_s:g} s")
        answer = self._answers.pop(id)
        if isinstance(answer, Refusal):
            raise error_of(answer)
        if not isinstance(answer, kind):
            raise ManagerLost("the budget's manager answered something else than it was asked")
        return answer

    def post(self, request: Request) -> int:
        """Send a request, whose answer may be taken later; its id. Raises ManagerLost."""
        self._ids += 1
        try:
            self._socket.sendall(encode_request(self._ids, request), socket.MSG_NOSIGNAL)
        except TimeoutError as error:
            raise ManagerLost("the budget's manager takes no messages any more") from error
        except OSError as error:
            raise ManagerLost("the budget's manager has ended the connection") from error
        self._unanswered[self._ids] = time.monotonic()
        return self._ids

    def drain(self, wait_s: float) -> list[Answer | Refusal]:
        """The answers to what was posted that are there, or come within so many seconds. Raises ManagerLost."""
        deadline_s = time.monotonic() + wait_s
        while self._unanswered and self._take(deadline_s):
            pass
        while self._take(0.0):
            pass
        found = list(self._answers.values())
        self._answers.clear()
        return found

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def _take(self, deadline_s: float) -> bool:
        """Take in one line; whether one came in time. Raises ManagerLost."""
        try:
            while (line := self._lines.take()) is None:
                channel = select.poll()
                channel.register(self._socket, select.POLLIN)
                if not channel.poll(1000 * max(0.0, deadline_s - time.monotonic())):
                    return False
                self._read()
            id, answer = decode_answer(line)
        except BadMessage as error:
            raise ManagerLost(f"the budget's manager does not speak our protocol: {error}") from error
        self.heard_s = time.monotonic()
        if isinstance(answer, Told):
            self.told.append(answer)
        if id is None and isinstance(answer, Told):
            return True
        if id is None and isinstance(answer, Refusal):
            raise ManagerLost(f"the budget's manager has ended the connection: {answer.text}")
        if id in self._unanswered:
            del self._unanswered[id]
            self._answers[id] = answer
        else:
            raise ManagerLost("the budget's manager answered another question")
        return True

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError as error:
            raise ManagerLost("the budget's manager has ended the connection") from error
        if not data:
            raise ManagerLost("the budget's manager has ended the connection")
        self._lines.feed(data)
