"""What the helper and its clients say to each other, version 1: one JSON object a line, strict in both directions.

    line = encode_request(Request(id=1, op=Op.LEND, devices=("GPU-…",)))
    encode_answer(1, Lent(original_w=(300.0,), min_w=(100.0,), max_w=(300.0,)))
    id, answer = decode_answer(line, Op.LEND)      # a Lent, or a Refusal

docs/helper.md says what each message means. Watts and seconds; an unknown is null.
"""

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from autocap.limits.guarded_limit import Restored
from autocap.wire.codec import decode, encode
from autocap.wire.json_lines import BadMessage, answer_in, line_of, request_in
from autocap.wire.refusal import Code, Refusal

__all__ = ["BadMessage", "Code", "Refusal", "Restored"]  # what is spoken with, beside what stands here

VERSION = 1
SOCKET_VARIABLE = "AUTOCAP_HELPER"  # names another socket than the usual one
MOST_REQUEST_BYTES, MOST_ANSWER_BYTES = 4096, 65536  # of a line, with its newline
MOST_DEVICES = 32  # of one request


def socket_path() -> Path:
    """Where the helper listens: what `AUTOCAP_HELPER` says, or the usual place."""
    return Path(os.environ.get(SOCKET_VARIABLE) or "/run/autocap/helper.sock")


class Op(StrEnum):
    """What can be asked."""

    HELLO = "hello"
    DEVICES = "devices"
    LEND = "lend"
    REHEARSE = "rehearse"
    SET = "set"
    BEAT = "beat"
    RESTORE = "restore"
    GIVE_BACK = "give_back"
    STATUS = "status"
    END_LEASES = "end_leases"
    LEAVE_OUT = "leave_out"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """devices: UUIDs, for LEND, END_LEASES and LEAVE_OUT. watts: a cap for each device lent, in the order lent, for
    SET."""

    id: int
    op: Op
    devices: tuple[str, ...] = ()
    watts: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """server: its name and version. uid: the client's, as the kernel gives it. hang_s: silence that ends a lease."""

    server: str
    uid: int
    hang_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who has a device; `None` where it is not known. uid: of the user. pid: of the process that asked."""

    uid: int | None
    pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """One device as the helper sees it for this client. min_w, max_w: what may be set there, narrowed by the policy and
    the limit found; `None` where the device does not say. allowed: it would be lent now, were it free. why: a
    sentence, for both answers. lent_to: `None` while it is free."""

    uuid: str
    kind: str
    name: str
    min_w: float | None
    max_w: float | None
    requested_w: float | None
    allowed: bool
    why: str
    lent_to: Holder | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Devices:
    devices: tuple[Offer, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lent:
    """In the order asked for. original_w: the limits found. min_w, max_w: what may be set. notes: for the user."""

    original_w: tuple[float | None, ...]
    min_w: tuple[float, ...]
    max_w: tuple[float, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """To REHEARSE and SET."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Beaten:
    """put_back: limits were, or may have been, put back since the last beat. notes: sentences that are new."""

    put_back: bool
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PutBack:
    """To RESTORE and GIVE_BACK, in the order lent; to LEAVE_OUT, in the order asked for."""

    restored: tuple[Restored, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseStatus:
    """One lease. caps_w: last set, `None` where the limit found holds. since: ISO 8601."""

    uid: int
    user: str
    pid: int
    devices: tuple[str, ...]
    caps_w: tuple[float | None, ...]
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    leases: tuple[LeaseStatus, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """lease: as it was. restored: what became of its limits, in the order lent, nothing where it had not begun; `None`
    where it is not over yet, or that is not known."""

    lease: LeaseStatus
    restored: tuple[Restored, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeasesEnded:
    ended: tuple[Ended, ...]


Answer = Hello | Devices | Lent | Done | Beaten | PutBack | Status | LeasesEnded
ANSWERS: dict[Op, type[Answer]] = {
    Op.HELLO: Hello,
    Op.DEVICES: Devices,
    Op.LEND: Lent,
    Op.REHEARSE: Done,
    Op.SET: Done,
    Op.BEAT: Beaten,
    Op.RESTORE: PutBack,
    Op.GIVE_BACK: PutBack,
    Op.STATUS: Status,
    Op.END_LEASES: LeasesEnded,
    Op.LEAVE_OUT: PutBack,
}
_OPS = {str(op): op for op in Op}
_OWN_KEYS = {
    Op.LEND: "devices",
    Op.SET: "watts",
    Op.END_LEASES: "devices",
    Op.LEAVE_OUT: "devices",
}  # of a request, beside v, id and op


def encode_request(request: Request) -> bytes:
    """One line. Raises BadMessage where it would be too long."""
    body: dict[str, object] = {"v": VERSION, "id": request.id, "op": request.op}
    own = _OWN_KEYS.get(request.op)
    if own is not None:
        body[own] = getattr(request, own)
    return line_of(body, MOST_REQUEST_BYTES)


def encode_answer(id: int | None, answer: Answer | Refusal) -> bytes:
    """One line. id: of the request, `None` where it was not understood. Raises BadMessage where it would be too
    long."""
    body: dict[str, object] = {"v": VERSION, "id": id, "ok": not isinstance(answer, Refusal)}
    said = encode(answer, strict=True)
    assert isinstance(said, dict)
    if isinstance(answer, Refusal):
        body["error"] = {name: value for name, value in said.items() if value is not None}
    else:
        body.update(said)
    return line_of(body, MOST_ANSWER_BYTES)


def decode_request(line: bytes) -> Request:
    """The request in a line, with or without its newline. Raises BadMessage for whatever is not exactly one."""
    id, op, body = request_in(line, MOST_REQUEST_BYTES, VERSION, _OPS)
    own = _OWN_KEYS.get(op)
    if body.keys() != {own} - {None}:
        raise BadMessage(f"{op} has the keys v, id, op{f' and {own}' if own else ' and no others'}", id)
    try:
        made = decode(Request, {"id": id, "op": op, **body}, strict=True)
    except BadMessage as error:
        raise BadMessage(str(error), id) from None
    if own is not None:
        values = getattr(made, own)
        if not 0 < len(values) <= MOST_DEVICES or (own == "devices" and len(set(values)) < len(values)):
            raise BadMessage(f"{own} are not 1 to {MOST_DEVICES}, or one stands there twice", id)
    return made


def decode_answer(line: bytes, op: Op) -> tuple[int | None, Answer | Refusal]:
    """The id and the answer in a line, to a request of that kind; keys that are not known are left out. Raises
    BadMessage."""
    id, body = answer_in(line, MOST_ANSWER_BYTES, VERSION)
    if type(body.get("ok")) is not bool:
        raise BadMessage(f"it is no answer of version {VERSION}")
    if body["ok"]:
        return id, decode(ANSWERS[op], body, strict=True)
    return id, decode(Refusal, body.get("error"), strict=True)
