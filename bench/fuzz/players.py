"""Processes that play cases against a served helper, each as one user, one case after the other: what was said, what
was answered, and what is wrong about that."""

import json
import os
import select
import signal
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any  # what JSON holds

from bench.fuzz.law import ARRIVALS_MW, Law
from bench.fuzz.speech import Case, Step, script
from bench.helper.people import become

_ANSWER_BYTES = 65536
_PATIENCE_S = 10.0  # in which something more must be answered
_AT_CONNECT = ("too_many", "too_fast", "not_allowed")
_CODES = {
    *("bad_message", "too_fast", "too_many", "unknown_device", "not_allowed", "in_use", "no_lease", "refused"),
    *("foreign", "guard"),
}


class Listener:
    """answered: messages that were. complaints: what is wrong about the answers."""

    def __init__(self, path: str, law: Law, uid: int) -> None:
        self._law, self._uid = law, uid
        self.complaints: list[str] = []
        self._said, self._held = bytearray(), b""
        self.answered, self._open = 0, True
        self._lease: tuple[int, ...] | None = None
        self._mute = False
        self.wait_s: float | None = None  # after which to connect again, where it was too often
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.settimeout(_PATIENCE_S)
        self._socket.connect(path)
        self._socket.setblocking(False)

    @property
    def _messages(self) -> int:
        """Lines said so far."""
        return self._said.count(b"\n")

    def send(self, data: bytes) -> None:
        """Say something; what is answered meanwhile is read, unless it is not to be."""
        deadline_s = time.monotonic() + (0.8 if self._mute else _PATIENCE_S)
        while data and self._open and time.monotonic() < deadline_s:
            try:
                sent = self._socket.send(data, socket.MSG_NOSIGNAL)
            except BlockingIOError:
                events = select.POLLOUT if self._mute else select.POLLOUT | select.POLLIN
                self._poll(events, 0.1)
                if not self._mute:
                    self._take()
                continue
            except OSError:
                break  # it has closed its end
            self._said += data[:sent]
            data = data[sent:]

    def read(self) -> None:
        """Until all is answered, or the end."""
        deadline_s = time.monotonic() + _PATIENCE_S
        while self._open and self.answered < self._messages:
            before = self.answered
            self._poll(select.POLLIN, 0.2)
            self._take()
            if self.answered > before:
                deadline_s = time.monotonic() + _PATIENCE_S
            if time.monotonic() > deadline_s:
                self.complaints.append(f"{self._messages - self.answered} messages were not answered")
                return

    def look(self, wait_s: float) -> None:
        """Whether it is refused at once, which is the only thing that is said unasked."""
        self._poll(select.POLLIN, wait_s)
        self._take()

    def stop_reading(self) -> None:
        self._mute = True

    def half(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._socket.close()
        self._open = False

    def _poll(self, events: int, wait_s: float) -> None:
        channel = select.poll()
        channel.register(self._socket, events)
        channel.poll(1000 * wait_s)

    def _take(self) -> None:
        try:
            data = self._socket.recv(_ANSWER_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._open = False
            return
        *lines, self._held = (self._held + data).split(b"\n")
        for line in lines:
            self._hear(line)
        if len(self._held) > _ANSWER_BYTES:
            self.complaints.append("an answer is longer than 65536 bytes")
            self.close()

    def _hear(self, line: bytes) -> None:
        try:
            answer = json.loads(line.decode(), parse_constant=_refuse)
            self._check(answer)
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            self.complaints.append(f"answer {line[:200]!r} to {self._line()[:200]!r}: {type(error).__name__} {error}")
        self.answered += 1

    def _line(self) -> bytes:
        """What the next answer is to."""
        lines = bytes(self._said).split(b"\n")
        return lines[self.answered] if self.answered < len(lines) else b""

    def _check(self, answer: dict[str, Any]) -> None:
        """Raises ValueError for what is wrong about an answer, and what comes of taking apart what is none."""
        _require(answer["v"] == 1 and type(answer["ok"]) is bool, "no answer of version 1")
        request = _object(self._line())
        own = request.get("id")
        if not answer["ok"]:
            error = answer["error"]
            _require(error["code"] in _CODES and error["text"].isprintable() and error["text"] != "", "no such error")
            _require(answer["id"] is None or answer["id"] == own, "not the id of the request")
            if answer["id"] is None and error["code"] in _AT_CONNECT and self.answered == 0:
                self.wait_s = error.get("wait_s")
            return
        _require(answer["id"] == own and own is not None, "not the id of the request")
        match request["op"]:
            case "hello":
                _require(answer["uid"] == self._uid, "another user than it is")
            case "devices":
                for offer in answer["devices"]:
                    gpu = self._law.uuids.index(offer["uuid"])
                    _require(offer["allowed"] == (self._law.may(self._uid, gpu) is not None), f"GPU {gpu} is offered")
            case "lend":
                gpus = tuple(self._law.uuids.index(uuid) for uuid in request["devices"])
                _require(all(self._law.may(self._uid, gpu) is not None for gpu in gpus), f"GPUs {gpus} are lent")
                _require([round(1000 * one) for one in answer["original_w"]] == [ARRIVALS_MW[one] for one in gpus],
                         "other limits were found")  # fmt: skip
                self._lease = gpus
            case "set":
                _require(self._lease is not None, "set without a lease")
                for gpu, cap_w in zip(self._lease or (), request["watts"], strict=True):
                    low_mw, high_mw = self._law.may(self._uid, gpu) or (1, 0)
                    inside = low_mw <= round(1000 * cap_w, 6) <= high_mw or round(1000 * cap_w) == ARRIVALS_MW[gpu]
                    _require(inside, f"GPU {gpu} is set to {cap_w} W")
            case "restore" | "give_back":
                _require(all(one["restored"] for one in answer["restored"]), "a limit is not back")


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise ValueError(text)


def _refuse(constant: str) -> float:
    raise ValueError(f"{constant} is no JSON")


def _object(line: bytes) -> dict[str, Any]:
    try:
        found = json.loads(line.decode())
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


_BEHIND = 10  # nice: a client in a hurry shall not be what keeps others from being served, on a machine of two cores
_TRIES = 20  # to connect where that was too often


@dataclass(frozen=True, slots=True, kw_only=True)
class Door:
    """path: of the socket. refuses_s: how long it may take until one is refused who connects too often."""

    path: str
    refuses_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """One case. messages: that were answered. began_s, ended_s: by the system's monotonic clock."""

    index: int
    messages: int
    began_s: float
    ended_s: float
    complaints: tuple[str, ...]


def start(cases: Sequence[Case], uid: int, law: Law, door: Door, log: Path) -> int:
    """PID of a process that plays them as a user, and writes a line for each into a file."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.nice(_BEHIND)
            with open(log, "w", buffering=1) as file:  # before it is another user's
                become(uid)
                for case in cases:
                    file.write(json.dumps(asdict(play(case, uid, law, door))) + "\n")
            status = 0
        finally:
            os._exit(status)
    return pid


def read(log: Path) -> list[Played]:
    """What was played so far."""
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [Played(**{**found, "complaints": tuple(found["complaints"])}) for found in map(json.loads, lines)]


def play(case: Case, uid: int, law: Law, door: Door) -> Played:
    """Play one case, and judge its answers."""
    steps = script(case.random(), law, uid)
    began_s = time.monotonic()
    if steps[0].act == "die":
        messages, complaints = _dying(steps[1:], law, uid, door)
    else:
        messages, complaints = _carried_out(steps, law, uid, door)
    return Played(
        index=case.index,
        messages=messages,
        began_s=began_s,
        ended_s=time.monotonic(),
        complaints=tuple(complaints),
    )


def _dying(steps: Sequence[Step], law: Law, uid: int, door: Door) -> tuple[int, list[str]]:
    """In a process that is killed before it can close anything."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            told = json.dumps(_carried_out(steps, law, uid, door, leave_open=True))
            os.write(writer, told.encode())
        finally:
            os.kill(os.getpid(), signal.SIGKILL)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        text = file.read()
    os.waitpid(pid, 0)
    messages, complaints = json.loads(text) if text else (0, ["the case could not be played"])
    return messages, complaints


def _carried_out(
    steps: Sequence[Step], law: Law, uid: int, door: Door, leave_open: bool = False
) -> tuple[int, list[str]]:
    there: dict[int, Listener] = {}
    complaints: list[str] = []
    try:
        for step in steps:
            if step.act == "open":
                there[step.connection] = _connected(door, law, uid)
            elif step.act == "wait":
                time.sleep(step.seconds)
            else:
                _done(step, there[step.connection])
    except OSError as error:
        complaints.append(f"{type(error).__name__}: {error}")
    for one in there.values():
        complaints += one.complaints
        if not leave_open:
            one.close()
    return sum(one.answered for one in there.values()), complaints


def _done(step: Step, one: Listener) -> None:
    match step.act:
        case "send":
            one.send(step.data)
        case "read":
            one.read()
        case "mute":
            one.stop_reading()
        case "half":
            one.half()
        case "close":
            one.close()


def _connected(door: Door, law: Law, uid: int) -> Listener:
    """A connection that the helper takes, where it takes one; or the last that it did not."""
    for _ in range(_TRIES):
        one = Listener(door.path, law, uid)
        one.look(door.refuses_s)
        if one.wait_s is None:
            break
        with suppress(OSError):
            one.close()
        time.sleep(one.wait_s)
    return one
