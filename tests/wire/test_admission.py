"""Who is let in where many want to be: in virtual time, without sockets."""

from collections.abc import Sequence
from pathlib import Path

from autocap.clock import VirtualClock
from autocap.wire.admission import AdmittedClient, AdmittedClients, Bounds
from autocap.wire.refusal import Code, Refusal
from autocap.wire.who import Peer, Subordinates

ALICE, BOB, CAROL, DAVE = range(20_001, 20_005)
BOUNDS = Bounds(clients=8, clients_of_uid=4, kept_places=2)


class Room:
    """closed: in which order connections were ended, each with its user."""

    def __init__(self, bounds: Bounds = BOUNDS) -> None:
        self.clock = VirtualClock()
        self.admitted_clients = AdmittedClients(bounds, self.clock.now)
        self.closed: list[int] = []

    def come(
        self, uid: int, *, subordinate_to: int | None = None, namespace: str | None = "here"
    ) -> AdmittedClient | Refusal:
        peer = Peer(uid=uid, pid=1, groups=(), subordinate_to=subordinate_to, namespace=namespace)
        self.clock.wait_until(self.clock.now() + 0.01)
        return self.admitted_clients.admit(peer, lambda: self.closed.append(uid))

    def crowd(self, uid: int, count: int) -> list[AdmittedClient]:
        found = [self.come(uid) for _ in range(count)]
        return [one for one in found if isinstance(one, AdmittedClient)]


def came(found: Sequence[AdmittedClient | Refusal]) -> list[bool]:
    return [isinstance(one, AdmittedClient) for one in found]


def test_who_has_fewer_connections_takes_the_place_of_the_longest_silent_one_of_who_has_most() -> None:
    room = Room()
    room.crowd(ALICE, 4)
    room.crowd(BOB, 2)
    assert isinstance(room.come(CAROL), AdmittedClient)
    assert isinstance(room.come(CAROL), AdmittedClient)
    assert room.closed == [ALICE, ALICE]
    assert isinstance(room.come(CAROL), Refusal)  # all have as many now


def test_a_connection_to_which_something_is_lent_makes_no_room() -> None:
    room = Room()
    held = room.crowd(ALICE, 4)
    room.crowd(BOB, 2)
    assert [one.lend() for one in held[:3]] == [True] * 3
    assert isinstance(room.come(CAROL), AdmittedClient)
    assert room.closed == [ALICE]
    assert not held[3].lend()  # it is on its way out
    room.clock.wait_until(room.clock.now() + 2.0)
    assert isinstance(room.come(CAROL), AdmittedClient)
    assert room.closed == [ALICE, BOB]
    assert all(one.lends for one in held[:3])


def test_root_gets_in_however_many_others_there_are() -> None:
    room = Room()
    for uid in (ALICE, BOB, CAROL):
        for one in room.crowd(uid, 2):
            one.lend()
    assert isinstance(room.come(DAVE), Refusal)
    assert came([room.come(0), room.come(0)]) == [True, True]
    assert room.closed == []
    for uid in range(30_000, 30_010):
        room.come(uid)
    assert isinstance(room.come(0), Refusal)  # eight are lent to, or are root's own


def test_the_root_of_a_container_is_not_ours() -> None:
    room = Room()
    for uid in (ALICE, BOB, CAROL):
        for one in room.crowd(uid, 2):
            one.lend()
    refused = [room.come(0, namespace=name) for name in ("pid:[1]", None)]
    assert came(refused) == [False, False]


def test_an_idle_connection_of_the_same_user_makes_room_and_a_busy_one_does_not() -> None:
    room = Room()
    admitted_clients = room.crowd(ALICE, 4)
    refusal = room.come(ALICE)
    assert refusal.code is Code.TOO_MANY
    room.clock.wait_until(room.clock.now() + 2.0)
    for one in admitted_clients[:3]:
        one.heard_s = room.clock.now()
    assert isinstance(room.come(ALICE), AdmittedClient)
    assert admitted_clients[3].lend() is False
    assert isinstance(room.come(ALICE), Refusal)


def test_subordinate_users_count_as_their_owner() -> None:
    room = Room()
    found = [room.come(uid, subordinate_to=ALICE) for uid in range(100_000, 100_006)]
    assert came(found) == [True] * 4 + [False] * 2


def test_who_has_left_counts_no_more() -> None:
    room = Room()
    admitted_clients = room.crowd(ALICE, 4)
    room.admitted_clients.leave(admitted_clients[0])
    room.admitted_clients.leave(admitted_clients[0])
    assert isinstance(room.come(ALICE), AdmittedClient)


def test_subordinate_users_are_their_owners(tmp_path: Path) -> None:
    table = tmp_path / "subuid"
    subordinates = Subordinates(table)
    assert subordinates.owner_of(100_000) is None
    table.write_text(
        "20001:100000:65536\nroot:300000:10\nnobody-at-all:400000:9\n\n# x\n7:0:5\n20002:x:y\n20003:165536:1"
    )
    owners = [subordinates.owner_of(uid) for uid in (99_999, 100_000, 165_535, 165_536, 300_009, 400_000, 0, 1)]
    assert owners == [None, 20_001, 20_001, 20_003, 0, None, None, None]
    table.write_text("20004:100000:1\n")
    assert subordinates.owner_of(100_000) == 20_004
    table.write_bytes(b"\xff\xfe:::\n" * 100)
    assert subordinates.owner_of(100_000) is None
