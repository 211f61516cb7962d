"""A helper without processes: devices in memory, virtual time, and clients that are only spoken for."""

import itertools
import os
import threading
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from autocap.clock import VirtualClock
from autocap.devices.base import LimitPort
from autocap.devices.inventory import Inventory, ListedDevice
from autocap.devices.rapl.source import RaplInventory
from autocap.limits import Guardian
from autocap.limits.helper.conversation import Conversation
from autocap.limits.helper.policy import DROP_INS, PolicyFiles
from autocap.limits.helper.protocol import Answer, Op, Refusal, Request, decode_answer, encode_request
from autocap.limits.helper.service_state import ServiceState
from autocap.limits.vital_signs import Look
from autocap.records import CapRange
from autocap.wire.admission import AdmittedClient, Bounds
from autocap.wire.who import Peer
from bench.faults.virtual import Unwatched

ALICE, BOB = 20_001, 20_002  # users whom nobody knows
MIN_W, MAX_W, FOUND_W = 100.0, 300.0, 260.0


@dataclass
class Card:
    """pids: who computes there, `None` where the driver keeps no list. fails: with what its setter fails. answers: set
    while its driver does."""

    limit_w: float = FOUND_W
    pids: tuple[int, ...] | None = ()
    kind: str = "nvml"
    obstacle: str | None = None
    fails: Exception | None = None
    answers: threading.Event = field(default_factory=threading.Event)
    sets: list[float] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.answers.set()


class Cards(LimitPort):
    """A machine of some cards, gpu0 and so on, and their setter."""

    def __init__(self, count: int) -> None:
        self.cards = {f"gpu{number}": Card() for number in range(count)}

    def inventories(self) -> dict[str, Inventory]:
        return {"nvml": CardsOfAKind(self, "nvml"), "rapl": CardsOfAKind(self, "rapl", RaplInventory.shared)}

    def devices(self) -> tuple[ListedDevice, ...]:
        cap_range = CapRange(min_w=MIN_W, max_w=MAX_W, default_w=MAX_W)
        return tuple(
            ListedDevice(
                index=number,
                uuid=uuid,
                kind=card.kind,
                name="Card",
                address=f"0000:{number:02x}:00.0",
                cap_range=cap_range,
                requested_w=card.limit_w,
                obstacle=card.obstacle,
            )
            for number, (uuid, card) in enumerate(self.cards.items())
        )

    def requested_w(self, uuid: str) -> float | None:
        return self.cards[uuid].limit_w

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        card = self.cards[uuid]
        card.answers.wait()
        if card.fails is not None:
            raise card.fails
        card.limit_w = cap_w
        card.sets.append(cap_w)

    def limits_w(self) -> list[float]:
        return [card.limit_w for card in self.cards.values()]


@dataclass
class CardsOfAKind(Inventory):
    cards: Cards
    kind: str
    shared: str | None = None

    def devices(self) -> tuple[ListedDevice, ...]:
        return tuple(device for device in self.cards.devices() if device.kind == self.kind)

    def pids(self, uuid: str) -> tuple[int, ...] | None:
        return self.cards.cards[uuid].pids

    def limits(self) -> LimitPort:
        return self.cards


class Client:
    """Speaks for somebody. look: what the kernel shows of their process. is_there: whether it lives."""

    def __init__(self, service_state: ServiceState, clock: VirtualClock, peer: Peer) -> None:
        self.seen: Look | None = None
        self.is_there = True
        admitted = AdmittedClient(peer, clock.now(), lambda: None)
        self.talk = Conversation(service_state, admitted, lambda *, threads: self.seen, lambda: self.is_there)
        self._clock, self._ids = clock, itertools.count(1)

    def ask(self, op: Op, *, devices: tuple[str, ...] = (), watts: tuple[float, ...] = ()) -> Answer | Refusal:
        id = next(self._ids)
        line, _ = self.talk.hear(encode_request(Request(id=id, op=op, devices=devices, watts=watts)))
        answered, answer = decode_answer(line, op)
        assert answered == id
        return answer

    def wait(self, seconds: float) -> None:
        """Say nothing for so long; the helper does what is due as it would."""
        until_s = self._clock.now() + seconds
        while (due_s := self._clock.now() + max(1e-6, self.talk.wait_s())) <= until_s and self.talk.over is None:
            self._clock.wait_until(due_s)
            self.talk.pass_time()
        self._clock.wait_until(until_s)

    def beat_for(self, seconds: float) -> list[Answer | Refusal]:
        """Beat as a client does, for so long."""
        answers = []
        for _ in range(round(2 * seconds)):
            self.wait(0.5)
            answers.append(self.ask(Op.BEAT))
        return answers


class HelperRig:
    """A helper, and its machine of two cards. To be closed."""

    def __init__(self, folder: Path, bounds: Bounds | None = None) -> None:
        self.clock, self.machine = VirtualClock(), Cards(2)
        self.state_dir = folder / "state"
        self.state_dir.mkdir(mode=0o700, exist_ok=True)
        self.drop_ins = self.state_dir / DROP_INS
        self._pids = itertools.count(1001)
        self._clients: list[Client] = []
        self.service_state = ServiceState(
            inventories=self.machine.inventories(),
            policy=PolicyFiles(None, self.drop_ins, os.geteuid()),
            state_dir=self.state_dir,
            bounds=bounds,
            now=self.clock.now,
            new_guardian=partial(Guardian, sync=lambda fd: None, start_watch=Unwatched),
        )

    def client(self, uid: int = ALICE, groups: tuple[int, ...] = (100,)) -> Client:
        self._clients.append(Client(self.service_state, self.clock, Peer(uid=uid, pid=next(self._pids), groups=groups)))
        return self._clients[-1]

    def close(self) -> None:
        """Every client is gone."""
        for client in self._clients:
            client.talk.end("closed")

    def lent(self, *uuids: str, uid: int = ALICE) -> Client:
        """A client that has these devices."""
        client = self.client(uid)
        answer = client.ask(Op.LEND, devices=uuids or ("gpu0",))
        assert not isinstance(answer, Refusal), answer
        return client
