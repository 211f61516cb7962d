"""One connection of a budget's manager: lines in, lines out, without waiting."""

import socket
from dataclasses import dataclass, field

from autocap.limits.helper.guests import Guest
from autocap.limits.helper.who import Peer
from autocap.plugins.fleet.budget.words import MOST_BYTES, Lines
from autocap.plugins.fleet.manager.tenant import Tenant

_MOST_WAITING = 1 << 20  # bytes that a client has not taken
_READ_BYTES = 1 << 16


@dataclass(slots=True, kw_only=True)
class Visitor:
    """One connection. tenant: what it tunes, `None` unless it has joined. put_off: what it has said, which has to wait,
    as its user says too much."""

    connection: socket.socket
    guest: Guest
    lines: Lines = field(default_factory=lambda: Lines(MOST_BYTES))
    waiting: bytearray = field(default_factory=bytearray)
    tenant: Tenant | None = None
    put_off: bytes | None = None
    over: bool = False

    @property
    def peer(self) -> Peer:
        return self.guest.peer

    @property
    def heard_s(self) -> float:
        return self.guest.heard_s

    def next_line(self) -> bytes | None:
        """What it says next; `None` while that has not arrived. Raises BadMessage."""
        line, self.put_off = self.put_off, None
        return self.lines.take() if line is None else line

    def hear(self, now_s: float) -> None:
        """Take in what has arrived; the end of a connection too."""
        try:
            data = self.connection.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.over |= not data
        self.guest.heard_s = now_s
        self.lines.feed(data)

    def say(self, line: bytes) -> None:
        """Have a line sent, by `flush`."""
        self.waiting += line
        self.over |= len(self.waiting) > _MOST_WAITING

    def flush(self) -> None:
        """Send what can be sent."""
        try:
            while self.waiting:
                del self.waiting[: self.connection.send(self.waiting, socket.MSG_NOSIGNAL)]
        except BlockingIOError:
            pass
        except OSError:
            self.over = True
