"""A client's end of a connection to the helper: requests out, answers back in their order, each waited for so long."""

import errno
import getpass
import grp
import select
import socket
import time
from collections import deque
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from autocap.errors import (
    ActuatorAbsent,
    ActuatorUnavailable,
    AutocapError,
    DeviceLocked,
    GuardError,
    LeaseEnded,
    LimitNotEnforced,
    LimitNotPermitted,
    LimitOvertaken,
    LimitRefused,
    LimitWithheld,
)
from autocap.job.own_command import sudo_command
from autocap.limits.asking import ForeignLimit
from autocap.limits.helper.dialling import dialled
from autocap.limits.helper.protocol import (
    MOST_ANSWER_BYTES,
    VERSION,
    Answer,
    BadMessage,
    Code,
    Hello,
    Lines,
    Op,
    Refusal,
    Request,
    decode_answer,
    encode_request,
)
from autocap.limits.times import ANSWER_WITHIN_S

A = TypeVar("A", bound=Answer)
_LEAST_S = 0.1
_READ_BYTES = 1 << 16


class HelperLost(GuardError):
    """The helper has ended the connection, or says nothing any more; the limits it lent are put back by it, or by its
    watchdog. The message is a clause."""


class Refused(Exception):
    """The helper did not do what it was asked."""

    def __init__(self, refusal: Refusal) -> None:
        super().__init__(refusal.text)
        self.refusal = refusal

    @property
    def wait_s(self) -> float | None:
        """Seconds until it may be asked again; `None` where that is of no use."""
        return self.refusal.wait_s if self.refusal.code is Code.TOO_FAST else None


class ConnectedTooOften(ActuatorUnavailable):
    """wait_s: seconds until another connection is taken."""

    def __init__(self, message: str, wait_s: float) -> None:
        super().__init__(message)
        self.wait_s = wait_s


def connect(path: Path, within_s: float = ANSWER_WITHIN_S) -> "Connection":
    """A connection, once the helper takes one. Raises ActuatorUnavailable as `Connection` does."""
    deadline_s = time.monotonic() + within_s
    while True:
        try:
            return Connection(path, max(_LEAST_S, deadline_s - time.monotonic()))
        except ConnectedTooOften as error:
            if time.monotonic() + error.wait_s > deadline_s:
                raise
            time.sleep(error.wait_s)


class Connection:
    """hello: what the helper says of itself.

    Raises ActuatorUnavailable, with the command that mends it, where no helper answers within `within_s` seconds.
    """

    def __init__(self, path: Path, within_s: float = ANSWER_WITHIN_S) -> None:
        self._lines, self._ids = Lines(MOST_ANSWER_BYTES), 0
        self._waiting: deque[tuple[int, Op, float]] = deque()  # for an answer: id, what was asked, and when
        self._aside: list[Answer | Refusal] = []  # that came before the one that was waited for
        try:
            self._socket = dialled(path, within_s)
        except (FileNotFoundError, NotADirectoryError) as error:
            install = sudo_command("helper install")
            raise ActuatorAbsent(f"no helper serves {path}; an administrator sets one up with `{install}`") from error
        except OSError as error:
            raise ActuatorUnavailable(_unreachable(path, error)) from error
        try:
            self.hello = self.ask(Op.HELLO, Hello, within_s=within_s)
        except HelperLost as error:
            self.close()
            raise ActuatorUnavailable(f"the helper at {path} cannot be used: {error}; {_LOOK}") from error
        except Refused as error:
            self.close()
            refused = ActuatorUnavailable(f"the helper at {path} lends nothing: {error}")
            wait_s = error.wait_s
            raise (refused if wait_s is None else ConnectedTooOften(str(refused), wait_s)) from error
        except OSError as error:
            self.close()
            raise ActuatorUnavailable(_unreachable(path, error)) from error
        self.heard_s = time.monotonic()

    @property
    def unanswered(self) -> int:
        """How many requests wait for their answer."""
        return len(self._waiting)

    @property
    def mute_s(self) -> float:
        """For how long the oldest request has waited for its answer, seconds; 0 where none does."""
        return time.monotonic() - self._waiting[0][2] if self._waiting else 0.0

    def ask(
        self,
        op: Op,
        kind: type[A],
        *,
        devices: tuple[str, ...] = (),
        watts: tuple[float, ...] = (),
        within_s: float = ANSWER_WITHIN_S,
    ) -> A:
        """The answer to a request; those to earlier ones are left to `drain`. Raises Refused, HelperLost."""
        deadline_s = time.monotonic() + within_s
        self.post(op, devices=devices, watts=watts)
        while True:
            answer = self._next(deadline_s)
            if answer is None:
                raise HelperLost(f"the helper has not answered for {within_s:g} s")
            if not self._waiting:
                break
            self._aside.append(answer)
        if isinstance(answer, Refusal):
            raise Refused(answer)
        if not isinstance(answer, kind):
            raise HelperLost("the helper answered something else than it was asked")
        return answer

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

    def post(self, op: Op, *, devices: tuple[str, ...] = (), watts: tuple[float, ...] = ()) -> None:
        """Send a request, whose answer is taken by `drain`. Raises HelperLost where it takes none."""
        self._ids += 1
        line = encode_request(Request(id=self._ids, op=op, devices=devices, watts=watts))
        self._waiting.append((self._ids, op, time.monotonic()))
        try:
            self._socket.sendall(line, socket.MSG_NOSIGNAL)
        except TimeoutError as error:
            raise HelperLost("the helper takes no messages any more") from error
        except OSError:
            pass  # it has closed its end; what it said before, it may say why, is still to be read

    def drain(self, wait_s: float) -> list[Answer | Refusal]:
        """The answers that are there, or come within so many seconds where some are waited for. Raises HelperLost."""
        deadline_s = time.monotonic() + wait_s
        found, self._aside = self._aside, []
        while self._waiting and (answer := self._next(deadline_s)) is not None:
            found.append(answer)
        if not self._waiting and self._is_readable(0.0):  # unasked, it can only have ended the connection
            self._read()
        return found

    def close(self) -> None:
        with suppress(OSError):
            self._socket.close()

    def _next(self, deadline_s: float) -> Answer | Refusal | None:
        """The next answer; `None` where none has come in time."""
        try:
            while (line := self._lines.take()) is None:
                if not self._is_readable(max(0.0, deadline_s - time.monotonic())):
                    return None
                self._read()
            id, op, _ = self._waiting.popleft()
            answered, answer = decode_answer(line, op)
        except BadMessage as error:
            raise HelperLost(f"the helper does not speak version {VERSION} of the protocol: {error}") from error
        if answered != id and not (answered is None and isinstance(answer, Refusal)):
            raise HelperLost("the helper answered another question")
        self.heard_s = time.monotonic()
        return answer

    def _is_readable(self, wait_s: float) -> bool:
        channel = select.poll()
        channel.register(self._socket, select.POLLIN)
        return bool(channel.poll(wait_s * 1000))

    def _read(self) -> None:
        try:
            data = self._socket.recv(_READ_BYTES)
        except OSError as error:
            raise HelperLost("the helper has ended the connection") from error  # killed while something was unread
        if not data:
            raise HelperLost("the helper has ended the connection")
        self._lines.feed(data)


def error_of(refusal: Refusal) -> AutocapError:
    """What setting the limit without a helper would have raised."""
    text, uuid, expected_w, found_w = refusal.text, refusal.uuid, refusal.expected_w, refusal.found_w
    match refusal.code:
        case Code.REFUSED if refusal.kind == "overtaken" and found_w is not None:
            return LimitOvertaken(text, found_w)
        case Code.REFUSED:
            return LimitNotEnforced(text) if refusal.kind == "not_enforced" else LimitRefused(text)
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
