"""A client's end of a connection to the manager of a budget."""

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TypeVar

from autocap.errors import AutocapError, DeviceLocked, PeerLost
from autocap.limits.helper.connection import error_of
from autocap.limits.state_dir import ROOTS_PATH, VARIABLE, default_path
from autocap.limits.times import ANSWER_WITHIN_S
from autocap.plugins.fleet.budget.protocol import (
    MOST_BYTES,
    Answer,
    CeilingChanged,
    Refusal,
    Request,
    decode_answer,
    encode_request,
)
from autocap.wire.client import Client
from autocap.wire.stream import dialled

A = TypeVar("A", bound=Answer)
SOCKET, SITE_SOCKET = "budget.sock", "budget.site.sock"  # of a machine's manager; of a budget over several nodes


class NoBudget(AutocapError):
    """No budget runs on this machine."""


def socket_paths(name: str = SOCKET) -> tuple[Path, ...]:
    """Where a budget's manager may listen: our own state directory, and root's."""
    named = os.environ.get(VARIABLE) or ROOTS_PATH  # under sudo it is root's
    return tuple(dict.fromkeys(Path(folder) / name for folder in (default_path(), named, ROOTS_PATH)))


def holder_paths() -> tuple[Path, ...]:
    """Where who holds the whole budget may listen: one over several nodes goes before this node's part of it."""
    return (*socket_paths(SITE_SOCKET), *socket_paths())


def require_none() -> None:
    """Raises DeviceLocked where a budget runs here already."""
    try:
        with closing(call(holder_paths())) as there:
            raise DeviceLocked(f"a budget runs here already, at {there.path}; see `autocap budget status`, or end it")
    except NoBudget:
        return


def call(paths: Sequence[Path] | None = None, within_s: float = ANSWER_WITHIN_S) -> "BudgetConnection":
    """A connection to the budget that runs on this machine. Raises NoBudget where there is none, or not for us."""
    denied = ""
    for path in socket_paths() if paths is None else paths:
        try:
            return BudgetConnection(path, within_s)
        except PermissionError:
            denied = f"{path} is not open to you; have who runs it pass `--group` with a group of yours"
        except BlockingIOError:
            denied = f"so many connect to {path} that none of our tries got through; try again"
        except OSError:
            continue
    if denied:
        raise NoBudget(f"the budget here cannot be asked: {denied}")
    raise NoBudget("no budget runs here; start one with `autocap budget WATTS`")


class BudgetConnection(Client[Request, Answer | Refusal]):
    """path: of the manager's socket. told: the ceilings that it has told of, asked or not, in the order in which they
    came. Raises OSError where nobody listens."""

    def __init__(self, path: Path, within_s: float = ANSWER_WITHIN_S) -> None:
        super().__init__(dialled(path, within_s), within_s, other="the budget's manager", most_bytes=MOST_BYTES)
        self.path = path
        self.told: list[CeilingChanged] = []

    def ask(self, request: Request, kind: type[A], within_s: float | None = None) -> A:
        """The answer to a request. Raises what the manager's refusal stands for, PeerLost."""
        answer = self.answer_to(request, within_s)
        if isinstance(answer, Refusal):
            raise error_of(answer)
        return self.expected(answer, kind)

    def _encoded(self, id: int, request: Request) -> bytes:
        return encode_request(id, request)

    def _decoded(self, line: bytes, request: Request | None) -> tuple[int | None, Answer | Refusal]:
        return decode_answer(line)

    def _is_unasked(self, id: int | None, answer: Answer | Refusal) -> bool:
        if isinstance(answer, CeilingChanged):
            self.told.append(answer)
        elif id is None:
            why = answer.text if isinstance(answer, Refusal) else "an answer has no id"
            raise PeerLost(f"the budget's manager has ended the connection: {why}")
        return id is None
