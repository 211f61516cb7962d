"""One connection of a budget's manager: lines in, lines out, without waiting."""

import socket
from dataclasses import dataclass, field

from autocap.budget.words import MOST_BYTES, Lines
from autocap.helper.who import Peer
from autocap.manager.tenant import Tenant

_MOST_WAITING = 1 << 20  # bytes that a client has not taken
_READ_BYTES = 1 << 16


@dataclass(slots=True, kw_only=True)
class Visitor:
    """One connection. tenant: what it tunes, `None` unless it has joined."""

    connection: socket.socket
    peer: Peer
    heard_s: float
    lines: Lines = field(default_factory=lambda: Lines(MOST_BYTES))
    waiting: bytearray = field(default_factory=bytearray)
    tenant: Tenant | None = None
    over: bool = False

    def hear(self, now_s: float) -> None:
        """Take in what has arrived; the end of a connection too."""
        try:
            data = self.connection.recv(_READ_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.over |= not data
        self.heard_s = now_s
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
