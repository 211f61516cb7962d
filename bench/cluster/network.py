"""Agents and the way to them in virtual time: each on its own clock, with messages that take their time or are lost.

What an agent does happens at its moment of the one virtual time; the controller sees it when the line has arrived.
Lines are those of the protocol, so that writing and reading them costs what it costs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np

from autocap import __version__
from autocap.limits import Restored
from autocap.limits.lease import Lease
from autocap.limits.times import ALONE_S, HOLDS_S
from autocap.plugins.fleet.nodes.protocol import (
    VERSION,
    Begin,
    Command,
    CommandKind,
    Done,
    Fault,
    Found,
    Heartbeat,
    HeartbeatReply,
    Hello,
    JobEnded,
    Message,
    Row,
    Rows,
    line_of,
    said,
)
from autocap.records import GpuInfo, NodeReading, Reading, SensorInfo, StepReading
from bench.simulation.clock import EventClock

_PHASES = 4
_LOSABLE = (
    Heartbeat,
    Command,
    Rows,
    HeartbeatReply,
    Done,
)  # which are said again, or whose successors stand in for them


class Machine(Protocol):
    """The devices of one node."""

    gpus: tuple[GpuInfo, ...]
    sensor: SensorInfo

    def read(self) -> tuple[Reading, ...]: ...

    def steps(self) -> StepReading | None: ...

    def node(self) -> NodeReading | None: ...

    def set_caps(self, caps_w: Sequence[float]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """delay_s: of a message, the shortest and the longest, in each direction. lost: the share of messages."""

    delay_s: tuple[float, float] = (0.0, 0.0)
    lost: float = 0.0


@dataclass(slots=True, kw_only=True)
class VirtualAgent:
    """One agent. ahead_s, drift: of its clock, seconds at zero and relative rate. dead: it hears and says nothing, as
    if it were stopped. refuses: what it says of each SET, where it does not do it. story: what it did when."""

    number: int
    machine: Machine
    clock: EventClock
    say: Callable[[int, Message], None]
    ahead_s: float = 0.0
    drift: float = 0.0
    boot_id: str = "theirs"
    dead: bool = False
    refuses: Fault | None = None
    story: list[tuple[float, str]] = field(default_factory=list)
    _original_w: tuple[float, ...] = ()
    _holds: bool = False
    _put_backs: int = 0
    lease: Lease = field(init=False)
    _interval_s: float = 0.1
    _next_row: int = 0
    _done: dict[int, Done] = field(default_factory=dict)
    _sampling: bool = False

    def __post_init__(self) -> None:
        self.lease = Lease(self.clock.now(), restore_s=HOLDS_S, leave_s=ALONE_S)

    def own_s(self) -> float:
        """What its clock shows now."""
        return self.stamp(self.clock.now())

    def stamp(self, t_s: float) -> float:
        """A virtual time on its clock."""
        return t_s * (1 + self.drift) + self.ahead_s

    def hello(self) -> None:
        """The first that it says."""
        name = f"node{self.number + 1}"
        self.say(
            self.number,
            Hello(
                version=VERSION, autocap_version=__version__, node=name, pid=1, boot_id=self.boot_id, clock_id="clock"
            ),
        )

    def hear(self, message: Message) -> None:
        """What arrives."""
        if self.dead:
            return
        match message:
            case Begin():
                self._find()
            case Heartbeat(number=number, interval_s=interval_s, since=since):
                self._interval_s = interval_s
                self.lease.heard(number - since[self.number])
                self.lease.answer(number, self.clock.now())
                heard_s = self.own_s()
                self.say(
                    self.number,
                    HeartbeatReply(number=number, heard_s=heard_s, said_s=heard_s, put_backs=self._put_backs),
                )
            case Command():
                self._do(message)
            case _:
                raise AssertionError(f"an agent hears no {type(message).__name__}")

    def leave(self) -> None:
        """Its input has ended."""
        if not self.dead:
            self._restore()
            self.dead = True

    def end_job(self) -> None:
        """The job's processes here end."""
        self._restore()
        self.say(self.number, JobEnded())

    def interrupt(self) -> None:
        """Its watchdog puts the limits back."""
        self._restore()
        self._put_backs += 1

    def _find(self) -> None:
        machine = self.machine
        self._original_w = tuple(reading.requested_w or 0.0 for reading in machine.read())
        node = machine.node()
        self.say(
            self.number,
            Found(
                kind="simulated",
                emulated=True,
                driver=None,
                gpus=machine.gpus,
                sensor=machine.sensor,
                original_w=self._original_w,
                node_power=None if node is None else "meter",
                whole=node is not None and node.whole,
            ),
        )
        if not self._sampling:
            self._sampling = True
            self._sample()

    def _do(self, order: Command) -> None:
        done = self._done.get(order.number)
        if done is None:
            if order.what is CommandKind.SET and self.lease.is_lapsed(self.clock.now()):
                return
            self.story.append((self.clock.now(), order.what.value))
            restored: tuple[Restored, ...] = ()
            fault = self.refuses if order.what is CommandKind.SET else None
            if order.what is CommandKind.SET and fault is None:
                self.machine.set_caps(order.caps_w)
                self._holds = True
            elif order.what in (CommandKind.RESTORE, CommandKind.END):
                self._restore()
                restored = tuple(
                    Restored(uuid=gpu.uuid, original_w=limit_w, final_w=limit_w, restored=True)
                    for gpu, limit_w in zip(self.machine.gpus, self._original_w, strict=True)
                )
            why = None if fault is None else "its devices take none"
            done = self._done[order.number] = Done(number=order.number, fault=fault, why=why, restored=restored)
        self.say(self.number, done)

    def _restore(self) -> None:
        if self._holds:
            self.machine.set_caps(self._original_w)
            self.story.append((self.clock.now(), "back"))
        self._holds = False

    def _sample(self) -> None:
        now_s = self.clock.now()
        if not self.dead:
            if self.lease.lapses(now_s) and self._holds:
                self.interrupt()
            self.say(self.number, Rows(first=self._next_row, rows=(self._row(),), put_backs=self._put_backs))
            self._next_row += 1
        phase_s = self._interval_s * (self.number % _PHASES) / _PHASES  # not all sample in step
        begun = round((now_s - phase_s) / self._interval_s)
        self.clock.at(max(now_s + 1e-3, (begun + 1) * self._interval_s + phase_s), self._sample)

    def _row(self) -> Row:
        steps, node = self.machine.steps(), self.machine.node()
        return Row(
            t_s=self.own_s(),
            readings=tuple(replace(one, t_s=self.stamp(one.t_s)) for one in self.machine.read()),
            steps=None if steps is None else replace(steps, t_s=self.stamp(steps.t_s)),
            node=None if node is None else replace(node, t_s=self.stamp(node.t_s)),
        )


class VirtualChannel:
    """A `Channel` in virtual time. Messages keep their order, each way of each agent, as in a pipe."""

    job = None  # the names are given
    descriptors = ()

    def __init__(self, clock: EventClock, network: Network, seed: int = 0) -> None:
        self._clock, self._network = clock, network
        self._rng = np.random.default_rng(seed)
        self._agents: list[VirtualAgent] = []
        self._arrived: list[tuple[int, bytes]] = []
        self._latest_s: dict[tuple[str, int], float] = {}

    def add(self, agent: VirtualAgent) -> None:
        """The next agent, which says hello."""
        self._agents.append(agent)
        self._clock.at(self._clock.now(), agent.hello)

    def send(self, message: Message, to: Sequence[int] | None = None) -> None:
        """As Channel has it; the line is written once, and read for all."""
        heard = said(line_of(message, to))
        for agent in self._agents if to is None else [self._agents[one] for one in to]:
            self._carry("to", agent.number, message, lambda agent=agent: agent.hear(heard))  # type: ignore[misc]

    def receive(self) -> list[tuple[int, Message]]:
        """As Channel has it."""
        arrived, self._arrived = self._arrived, []
        return [(number, said(line)) for number, line in arrived]

    def leave(self) -> None:
        """The agents' input ends: each puts back and says no more."""
        for agent in self._agents:
            self._clock.at(self._clock.now() + self._network.delay_s[1], agent.leave)

    close = leave  # nothing is held

    def say(self, number: int, message: Message) -> None:
        """From an agent."""
        line = line_of(message)
        self._carry("from", number, message, lambda: self._arrived.append((number, line)))

    def _carry(self, way: str, number: int, message: Message, arrive: Callable[[], None]) -> None:
        if isinstance(message, _LOSABLE) and self._rng.random() < self._network.lost:
            return
        at_s = self._clock.now() + float(self._rng.uniform(*self._network.delay_s))
        at_s = self._latest_s[way, number] = max(at_s, self._latest_s.get((way, number), 0.0))
        self._clock.at(at_s, arrive)
