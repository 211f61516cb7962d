"""A client's end of a connection to the helper; and what the helper would lend to us, and has lent to others, asked
without having anything lent; and root ends that."""

import errno
import getpass
import grp
import logging
import socket
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from autocap.errors import (
    AutocapError,
    DeviceError,
    DeviceLocked,
    GuardError,
    LeaseEnded,
    LimitClamped,
    LimitNotEnforced,
    LimitNotPermitted,
    LimitOutside,
    LimitOvertaken,
    LimitRefused,
    LimitWithheld,
    PeerLost,
    SetterAbsent,
    SetterUnavailable,
)
from autocap.job.own_command import sudo_command
from autocap.limits.asking import ForeignLimit
from autocap.limits.helper.protocol import (
    MOST_ANSWER_BYTES,
    MOST_DEVICES,
    Answer,
    BadMessage,
    Code,
    Devices,
    Ended,
    Hello,
    LeasesEnded,
    LeaseStatus,
    Offer,
    Op,
    Refusal,
    Request,
    Status,
    decode_answer,
    encode_request,
)
from autocap.limits.times import ANSWER_WITHIN_S, ENDED_WITHIN_S
from autocap.wire.client import Client
from autocap.wire.refusal import Refused
from autocap.wire.stream import dialled

A = TypeVar("A", bound=Answer)
_LEAST_S = 0.1


class ConnectedTooOften(SetterUnavailable):
    """wait_s: seconds until another connection is taken."""

    def __init__(self, message: str, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


def connect(path: Path, within_s: float = ANSWER_WITHIN_S) -> "Connection":
    """A connection, once the helper takes one. Raises SetterUnavailable as `Connection` does."""
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            left_s = max(_LEAST_S, deadline_s - time.monotonic())
            return Connection(_dialled(path, left_s), left_s, other="the helper", where=f" at {path}", look=_LOOK)
        except ConnectedTooOften as error:
            if time.monotonic() + error.wait_s > deadline_s:
                raise
            time.sleep(error.wait_s)


class Connection(Client[Request, Answer | Refusal]):
    """connected: to the helper, or to a keeper; it is taken over. other: what messages call it. where: it is, and
    look: what shows why it is of no use, for errors. hello: what it says of itself.

    Raises SetterUnavailable where it does not answer within `within_s` seconds.
    """

    def __init__(
        self, connected: socket.socket, within_s: float, *, other: str, where: str = "", look: str = ""
    ) -> None:
        super().__init__(connected, within_s, other=other, most_bytes=MOST_ANSWER_BYTES)
        try:
            self.hello = self.ask(Op.HELLO, Hello, within_s=within_s)
        except PeerLost as error:
            self.close()
            advice = f"; {look}" if look else ""
            raise SetterUnavailable(f"{other}{where} cannot be used: {error}{advice}") from error
        except Refused as error:
            self.close()
            refused = SetterUnavailable(f"{other}{where} lends nothing: {error}")
            wait_s = error.wait_s
            raise (refused if wait_s is None else ConnectedTooOften(str(refused), wait_s)) from error

    def ask(
        self,
        op: Op,
        kind: type[A],
        *,
        devices: tuple[str, ...] = (),
        watts: tuple[float, ...] = (),
        within_s: float = ANSWER_WITHIN_S,
    ) -> A:
        """The answer to a request; those to earlier ones are left to `drain`. Raises Refused, PeerLost."""
        answer = self.answer_to(Request(id=0, op=op, devices=devices, watts=watts), within_s)
        if isinstance(answer, Refusal):
            raise Refused(answer)
        return self.expected(answer, kind)

    def ask_once_taken(
        self, op: Op, kind: type[A], *, devices: tuple[str, ...] = (), within_s: float = ANSWER_WITHIN_S
    ) -> A:
        """The same, asked again where the helper wants it later. Not with a lease, which needs beats."""
        deadline_s = time.monotonic() + within_s
        while True:
            try:
                return self.ask(op, kind, devices=devices, within_s=max(_LEAST_S, deadline_s - time.monotonic()))
            except Refused as error:
                if error.wait_s is None or time.monotonic() + error.wait_s > deadline_s:
                    raise
                time.sleep(error.wait_s)

    def _encoded(self, id: int, request: Request) -> bytes:
        return encode_request(replace(request, id=id))

    def _decoded(self, line: bytes, request: Request | None) -> tuple[int | None, Answer | Refusal]:
        if request is None:
            raise BadMessage("it answers what nobody has asked")
        id, answer = decode_answer(line, request.op)
        if id is None and not isinstance(answer, Refusal):
            raise BadMessage("an answer has no id")
        return id, answer


def _dialled(path: Path, within_s: float) -> socket.socket:
    """Raises SetterUnavailable, with the command that mends it, where no helper can be reached."""
    try:
        return dialled(path, within_s)
    except (FileNotFoundError, NotADirectoryError) as error:
        install = sudo_command("helper install")
        raise SetterAbsent(f"no helper serves {path}; an administrator sets one up with `{install}`") from error
    except OSError as error:
        raise SetterUnavailable(_unreachable(path, error)) from error


def error_of(refusal: Refusal) -> AutocapError:
    """What setting the limit without a helper would have raised."""
    text, uuid, expected_w, found_w = refusal.text, refusal.uuid, refusal.expected_w, refusal.found_w
    match refusal.code:
        case Code.REFUSED if refusal.kind == "overtaken" and found_w is not None:
            return LimitOvertaken(text, found_w)
        case Code.REFUSED if refusal.kind == "refused" and expected_w is not None:
            return LimitOutside(text, expected_w)
        case Code.REFUSED if refusal.kind == "refused" and found_w is not None:
            return LimitClamped(text, found_w)
        case Code.REFUSED if refusal.kind == "not_enforced" and found_w is not None:
            return LimitNotEnforced(text, found_w)
        case Code.REFUSED:
            return LimitRefused(text)
        case Code.FOREIGN if uuid is not None and expected_w is not None and found_w is not None:
            return ForeignLimit(uuid=uuid, expected_w=expected_w, found_w=found_w)
        case Code.NOT_ALLOWED:
            return LimitWithheld(text)
        case Code.UNKNOWN_DEVICE:
            return LimitNotPermitted(text)
        case Code.NO_LEASE:
            return LeaseEnded(text)
        case Code.IN_USE:
            return DeviceLocked(text)
        case Code.GUARD if uuid is not None:
            return DeviceError(text)
    return GuardError(text)


# Groups whose members can become root, or read what is root's: nobody is advised to put a user into one.
POWERFUL = frozenset({"root", "sudo", "wheel", "admin", "adm", "disk", "docker", "kmem", "lxd", "shadow"})
_LOOK = "an administrator sees why with `systemctl status autocap-helper`"


def _unreachable(path: Path, error: OSError) -> str:
    """Why nobody can be asked there, and the command that mends it."""
    if error.errno in (errno.EACCES, errno.EPERM):
        group = _group_of(path)
        if group in POWERFUL:  # who is in it may do more than set power limits
            return (
                f"{path} is for {group} alone: this helper serves no group of users; have an administrator run "
                "`sudo autocap helper install`, or `autocap helper serve --group` with a group made for it"
            )
        return f"{path} is for the group {group}; `sudo usermod -aG {group} {getpass.getuser()}`, and log in again"
    if error.errno == errno.EAGAIN:
        return f"so many connect to {path} that none of our tries got through; {_LOOK}"
    if error.errno == errno.ECONNREFUSED:
        return f"nobody listens at {path} any more; `sudo systemctl restart autocap-helper.socket`"
    return f"the helper at {path} cannot be reached: {error.strerror or error}; {_LOOK}"


def _group_of(path: Path) -> str:
    """The name of the group that may use the socket, or what stands for it."""
    try:
        gid = path.stat().st_gid
        return grp.getgrgid(gid).gr_name
    except OSError:  # in a folder that is closed to us
        return "gpupower"
    except KeyError:
        return str(gid)


log = logging.getLogger(__name__)


def offers_at(path: Path) -> dict[str, Offer]:
    """By UUID. Raises SetterUnavailable, with the command that mends it, where no helper answers."""
    with closing(connect(path)) as connection:
        try:
            return {offer.uuid: offer for offer in connection.ask_once_taken(Op.DEVICES, Devices).devices}
        except (PeerLost, Refused) as error:
            raise SetterUnavailable(f"the helper at {path} tells of no device: {error}") from error


def leases_at(path: Path) -> tuple[LeaseStatus, ...]:
    """What is lent at the moment. Raises SetterUnavailable where no helper answers."""
    with closing(connect(path)) as connection:
        try:
            return connection.ask_once_taken(Op.STATUS, Status).leases
        except (PeerLost, Refused) as error:
            raise SetterUnavailable(f"the helper at {path} tells of no lease: {error}") from error


def end_leases_at(path: Path, uuids: Sequence[str]) -> tuple[Ended, ...]:
    """End the leases that have one of these devices; those that were. A helper of an earlier version ends none, and one
    to which we are not root. Raises SetterUnavailable where no helper answers."""
    found: list[Ended] = []
    with closing(connect(path)) as connection:
        try:
            for first in range(0, len(uuids), MOST_DEVICES):
                some, within_s = tuple(uuids[first : first + MOST_DEVICES]), ENDED_WITHIN_S
                found += connection.ask_once_taken(Op.END_LEASES, LeasesEnded, devices=some, within_s=within_s).ended
        except (PeerLost, Refused, BadMessage) as error:
            log.debug("the helper at %s ends no lease, or no more: %s", path, error)
    return tuple(found)
