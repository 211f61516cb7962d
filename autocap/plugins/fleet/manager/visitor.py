"""One connection of a budget's manager."""

import socket
from dataclasses import dataclass

from autocap.limits.helper.guests import Guest
from autocap.limits.helper.who import Peer
from autocap.plugins.fleet.manager.tenant import Tenant
from autocap.wire.stream import LineStream


@dataclass(slots=True, kw_only=True)
class Visitor:
    """One connection. tenant: what it tunes, `None` unless it has joined. put_off: what it has said, which has to wait,
    as its user says too much."""

    connection: socket.socket
    lines: LineStream
    guest: Guest
    tenant: Tenant | None = None
    put_off: bytes | None = None
    over: bool = False

    @property
    def peer(self) -> Peer:
        return self.guest.peer

    @property
    def heard_s(self) -> float:
        return self.guest.heard_s
