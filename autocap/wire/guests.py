"""Who is connected to a service, and who makes room for whom: so that no crowd keeps others out."""

import os
import socket
import threading
from collections import Counter
from collections.abc import Callable

from autocap.wire.bounds import Bounds, Buckets
from autocap.wire.refusal import Code, Refusal
from autocap.wire.subordinates import owner_of
from autocap.wire.who import Peer, is_nobody_known, peer_of, uid_at

_IDLE_S = 1.0  # of a connection that makes room for another one of its own user


class Guest:
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


class Guests:
    """All of a service. From any thread. now: the clock, seconds.

    Users have equal rights to the room, by `Peer.account`. Where there is none left, who comes takes the place of a
    connection to which nothing is lent, the longest silent one of whoever has most: more than who comes. Some places
    are for root and our own user alone.
    """

    def __init__(self, bounds: Bounds, now: Callable[[], float]) -> None:
        self._bounds, self._now = bounds, now
        self._connects = Buckets(bounds.connects, now)
        self._lock = threading.Lock()
        self._there: set[Guest] = set()

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

    def admit(self, peer: Peer, close: Callable[[], object]) -> Guest | Refusal:
        """A new connection, or why there can be none."""
        with self._lock:
            refusal = self._make_room(peer)
            if refusal is not None:
                return refusal
            guest = Guest(peer, self._now(), close)
            self._there.add(guest)
            return guest

    def leave(self, guest: Guest) -> None:
        """It has ended."""
        with self._lock:
            self._there.discard(guest)

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

    def _show_out(self, some: list[Guest], before_s: float) -> bool:
        """Whether one of some, which was last heard before that, has made room."""
        for one in sorted(some, key=lambda one: one.heard_s):
            if one.heard_s <= before_s and one.show_out():
                self._there.discard(one)
                return True
        return False


def _has_places(peer: Peer) -> bool:
    return peer.is_user(0, os.geteuid())
