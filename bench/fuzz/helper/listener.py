"""A connection of a hostile client's: what was said, what was answered, and what is wrong about that."""

import json
import select
import socket
import time
from contextlib import suppress
from typing import Any  # what JSON holds

from bench.fuzz.helper.law import ARRIVALS_MW, Law

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
