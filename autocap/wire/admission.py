"""Who is connected to a service, how much of everything each may have, and who makes room for whom: so that no crowd,
and no single client, keeps others out."""

import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from autocap.wire.refusal import Code, Refusal
from autocap.wire.who import Peer, is_nobody_known, owner_of, peer_of, uid_at


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """So many at once, and then so many a second."""

    burst: float
    per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """clients: connections in all; clients_of_uid: of one user; kept_places: for root and our own user alone. connects,
    looks, lends: of one user (looking asks the driver for all that there is; a lease begins with a new watchdog
    process). messages: of one connection. sets: of one device. idle_s: until a connection without a lease is closed.
    send_s: until one is closed that does not read its answers.
    """

    clients: int = 256
    clients_of_uid: int = 96
    kept_places: int = 16
    connects: Rate = Rate(burst=128, per_s=32)
    messages: Rate = Rate(burst=100, per_s=50)
    looks: Rate = Rate(burst=128, per_s=8)
    lends: Rate = Rate(burst=16, per_s=1)
    sets: Rate = Rate(burst=20, per_s=4)
    idle_s: float = 60.0
    send_s: float = 0.5


class Bucket:
    """Counts against a rate. now: the clock, seconds."""

    def __init__(self, rate: Rate, now: Callable[[], float]) -> None:
        self._rate, self._now = rate, now
        self._asked = rate  # the one that was asked for last
        self._left, self._at_s = rate.burst, now()

    def wait_s(self, per_s: float | None = None) -> float:
        """Seconds until one may be had, 0 when it may be now. per_s: less than usual, and at once as much less."""
        rate = self._rate
        if per_s is not None and per_s < rate.per_s:
            rate = Rate(burst=max(1.0, rate.burst * per_s / rate.per_s), per_s=per_s)
        self._asked, now_s = rate, self._now()
        self._left = min(rate.burst, self._left + rate.per_s * (now_s - self._at_s))
        self._at_s = now_s
        return max(0.0, (1.0 - self._left) / rate.per_s)

    def take(self, count: float = 1.0) -> None:
        """Have one, or as much as so many; `wait_s` was 0."""
        self._left -= count

    def is_full(self) -> bool:
        """Whether it is as good as a new one. It is only looked at: what flows in until it is asked again does so at
        the rate that is asked for then."""
        rate = self._asked
        return self._left + rate.per_s * (self._now() - self._at_s) >= rate.burst


class Buckets:
    """One for each user, or device; they outlive connections. From any thread."""

    def __init__(self, rate: Rate, now: Callable[[], float]) -> None:
        self._rate, self._now = rate, now
        self._lock = threading.Lock()
        self._of: dict[Hashable, Bucket] = {}

    def charge(self, whose: Hashable, count: float) -> None:
        """What was taken counts for so many more; what is short of them is waited for by the next one."""
        with self._lock:
            self._of.setdefault(whose, Bucket(self._rate, self._now)).take(count)

    def take(self, *whose: Hashable, per_s: float | None = None) -> float:
        """Have one of each of them, or of none: then the seconds until it may be had."""
        with self._lock:
            for gone in [one for one, bucket in self._of.items() if one not in whose and bucket.is_full()]:
                del self._of[gone]
            buckets = [self._of.setdefault(one, Bucket(self._rate, self._now)) for one in whose]
            wait_s = max((bucket.wait_s(per_s) for bucket in buckets), default=0.0)
            if wait_s == 0.0:
                for bucket in buckets:
                    bucket.take()
            return wait_s


_IDLE_S = 1.0  # of a connection that makes room for another one of its own user


class AdmittedClient:
    """One connection. close: ends it, from any thread, and waits for nothing. heard_s: when it was last heard."""

    def __init__(self, peer: Peer, heard_s: float, close: Callable[[], object]) -> None:
        self.peer, self.heard_s, self.close = peer, heard_s, close
        self._lock = threading.Lock()
        self._lends = self._is_out = False

    def lend(self) -> bool:
        """From now on something is lent to it, so it makes no room for others; whether it still may have that."""
        with self._lock:
            self._lends = not self._is_out
            return self._lends

    def lent_no_more(self) -> None:
        with self._lock:
            self._lends = False

    @property
    def lends(self) -> bool:
        return self._lends

    def show_out(self) -> bool:
        """Whether it has made room."""
        with self._lock:
            if self._lends:
                return False
            self._is_out = True
        self.close()
        return True


class AdmittedClients:
    """All of a service. From any thread. now: the clock, seconds.

    Users have equal rights to the room, by `Peer.account`. Where there is none left, who comes takes the place of a
    connection to which nothing is lent, the longest silent one of whoever has most: more than who comes. Some places
    are for root and our own user alone.
    """

    def __init__(self, bounds: Bounds, now: Callable[[], float]) -> None:
        self._bounds, self._now = bounds, now
        self._connects = Buckets(bounds.connects, now)
        self._lock = threading.Lock()
        self._there: set[AdmittedClient] = set()

    def greet(self, connection: socket.socket) -> Peer | Refusal:
        """Who has connected, or why they are not listened to. A flood is turned away before it is looked at closely.
        Raises OSError."""
        uid = uid_at(connection)
        is_ours = uid in (0, os.geteuid())  # or a number of theirs in a container
        owner = owner_of(uid)
        wait_s = 0.0 if is_ours else self._connects.take(uid if owner is None else owner)
        if wait_s == 0 and is_nobody_known(uid):
            text = "you come from a user namespace whose users cannot be told apart here; connect from outside of it"
            return Refusal(code=Code.NOT_ALLOWED, text=text)
        peer = peer_of(connection) if wait_s == 0 else None
        if is_ours and peer is not None:
            wait_s = self._connects.take(peer.account)
        if peer is None or wait_s > 0:
            text = f"user {uid} connects too often; wait {wait_s:.2f} s"
            return Refusal(code=Code.TOO_FAST, text=text, wait_s=wait_s)
        return peer

    def admit(self, peer: Peer, close: Callable[[], object]) -> AdmittedClient | Refusal:
        """A new connection, or why there can be none."""
        with self._lock:
            refusal = self._make_room(peer)
            if refusal is not None:
                return refusal
            admitted = AdmittedClient(peer, self._now(), close)
            self._there.add(admitted)
            return admitted

    def leave(self, admitted: AdmittedClient) -> None:
        """It has ended."""
        with self._lock:
            self._there.discard(admitted)

    def _make_room(self, peer: Peer) -> Refusal | None:
        counts = Counter(one.peer.account for one in self._there)
        own = counts[peer.account]
        if own >= self._bounds.clients_of_uid:
            before_s = self._now() - _IDLE_S
            if self._show_out([one for one in self._there if one.peer.account == peer.account], before_s):
                return None
            return Refusal(code=Code.TOO_MANY, text=f"{own} connections of {peer.name} are open; close one of them")
        others = [one for one in self._there if not _has_places(one.peer)]
        taken = len(self._there) if _has_places(peer) else len(others)
        most = self._bounds.clients - (0 if _has_places(peer) else self._bounds.kept_places)
        if taken < most:
            return None
        crowded = [one for one in others if not one.lends and counts[one.peer.account] > own]
        largest = max((counts[one.peer.account] for one in crowded), default=0)
        if self._show_out([one for one in crowded if counts[one.peer.account] == largest], self._now()):
            return None
        return Refusal(code=Code.TOO_MANY, text=f"{taken} clients are connected; try again later")

    def _show_out(self, some: list[AdmittedClient], before_s: float) -> bool:
        """Whether one of some, which was last heard before that, has made room."""
        for one in sorted(some, key=lambda one: one.heard_s):
            if one.heard_s <= before_s and one.show_out():
                self._there.discard(one)
                return True
        return False


def _has_places(peer: Peer) -> bool:
    return peer.is_user(0, os.geteuid())
