"""A site: opens what it needs, the nodes, the record and the socket; hears clients and nodes, shares the budget among
the nodes, and tells them."""

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from autocap import events
from autocap.clock import MonotonicClock
from autocap.errors import AutocapError, EngineUnavailable, UsageError
from autocap.limits.state_dir import StateDir, default_path
from autocap.limits.times import LEASE_S, NOBODY_S, SITE_ENDS_S
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.connection import SITE_SOCKET
from autocap.plugins.fleet.budget.orders import ROUNDING_W, Decision
from autocap.plugins.fleet.budget.protocol import Standing
from autocap.plugins.fleet.config import BudgetConfig
from autocap.plugins.fleet.manager.budget_target import Beginning, require_budget
from autocap.plugins.fleet.manager.loop import Loop, Signals
from autocap.plugins.fleet.manager.opening import StderrReporter, export, listening_at, record_of, report_on
from autocap.plugins.fleet.manager.supervising import SITE_STATE, forget
from autocap.plugins.fleet.manager.tuner_server import ControlServer
from autocap.plugins.fleet.multinode.node_allocations import EventsFromReports, NodeAllocations
from autocap.plugins.fleet.multinode.nodes import BEGINNING_S, Nodes
from autocap.plugins.fleet.nodes.guardian import Reopen
from autocap.records import Reading, Sample
from autocap.reports import html
from autocap.session.recorder import Recorder
from autocap.text import note, printable_json
from autocap.wire.codec import encode

_LOOK_S = 0.2
_WAIT_S = 0.02  # for the answer to a word
_NODE = (sys.executable, "-P", "-m", "autocap.plugins.fleet.multinode.node")


@dataclass(kw_only=True, eq=False)
class NodeAllocator(Loop):
    """nodes: to be opened. shares: the parts of the nodes."""

    nodes: Nodes
    shares: NodeAllocations

    def __post_init__(self) -> None:
        super().__post_init__()
        self._reported, self._decision = EventsFromReports(self.recorder.event), Decision(orders=())
        self._someone_s = self.clock.now()
        self.nodes.policy = self.policy

    def begin(self, signals: Signals, *, patient: bool) -> None:
        """Until all nodes hold their floors. patient: those that cannot be reached are tried again, as their ends of an
        earlier site may be leaving. Raises EngineUnavailable where a node is not there, and UsageError where the budget
        is less than all floors."""
        until_s = self.clock.now() + BEGINNING_S
        while not self.nodes.are_all_there and self.ended_because is None:
            self.nodes.open()
            for name, why in () if patient else self.nodes.gone.items():
                raise EngineUnavailable(f"{name} has no part in the budget: {why}")
            if self.clock.now() > until_s:
                missing = [name for name in self.nodes.names if not self.shares.is_heard(name)]
                whys = "".join(f"; {why}" for why in dict.fromkeys(self.nodes.gone.values()))
                raise EngineUnavailable(f"nothing was heard of {', '.join(missing)} within {BEGINNING_S:g} s{whys}")
            self._wait(signals, None, _LOOK_S)
            self.nodes.tend()
        floor_w, budget_w = self.shares.floor_w, self.shares.budget_w
        if self.ended_because is None and budget_w < floor_w - ROUNDING_W:
            raise UsageError(_below(budget_w, floor_w))

    def pass_time(self) -> None:
        """Do what is due by now. Raises EngineUnavailable once no node is left."""
        super().pass_time()
        now_s = self.clock.now()
        self._turn()
        if any(self.shares.is_heard(name) for name in self.nodes.names):
            self._someone_s = now_s
        elif self.nodes.have_all_left or now_s > self._someone_s + NOBODY_S:
            whys = "; ".join(dict.fromkeys(self.nodes.gone.values())) or "nothing was heard of any"
            raise EngineUnavailable(f"no node is left: {whys}")
        if now_s >= self._next_record_s:
            self._record(now_s, Sample(t_s=now_s, readings=self._readings(now_s)))

    def _turn(self) -> None:
        """Hear the nodes, and tell them what follows from it."""
        try:
            self.nodes.open()
        except EngineUnavailable as error:
            self._warn(str(error))
        self.nodes.tend()
        now_s = self.clock.now()
        self._decision = self.shares.decide(now_s)
        if self._decision.orders:
            self.nodes.say()
        for text in self.nodes.notes:
            self._warn(text)
        self.nodes.notes.clear()
        self._reported.write(now_s, self.shares, self._decision)

    # Control, as clients and signals have it.

    def change(self, watts: float | None, policy: str | None, why: str) -> None:
        """Lower caps hold on return, or have had the time. Raises UsageError for what is no budget, or less than all
        floors, or no policy."""
        require_budget(watts, policy)
        floor_w = self.shares.floor_w
        if watts is not None and watts < floor_w - ROUNDING_W:
            raise UsageError(_below(watts, floor_w))
        super().change(watts, policy, why)
        until_s = time.monotonic() + LEASE_S
        while self.shares.room_w < -ROUNDING_W and time.monotonic() < until_s:
            time.sleep(_WAIT_S)
            self._turn()

    def weigh(self, pid: int, weight: float, why: str) -> None:
        raise UsageError("a job's weight is given on its node: say `autocap budget weight` there")

    def standing(self) -> Standing:
        heard = {name: self.shares.books[name] for name in self.nodes.names if self.shares.is_heard(name)}
        powers_w = [books.power_w for books in heard.values()]
        known_w = [w for w in powers_w if w is not None]
        outside = tuple(
            f"{name} is outside the budget, and counted with its limits found: {why}"
            for name, why in self.nodes.gone.items()
        )
        return Standing(
            budget_w=self.shares.budget_w,
            policy=self.policy,
            reserved_w=sum(books.reserved_w for books in heard.values()),
            room_w=self.shares.room_w,
            power_w=sum(known_w) if len(known_w) == len(self.nodes.names) else None,
            short_w=self._decision.short_w,
            pause=self._decision.pause,
            jobs=tuple(
                replace(job.at, node=name, lowest_w=job.caps_w[0])
                for name, books in heard.items()
                for job in books.jobs
            ),
            free=tuple(uuid for books in heard.values() for uuid in books.free),
            record=self.directory,
            pid=os.getpid(),
            follows=self.course.follows,
            failed=(*outside, *(f"{name}: {text}" for name, books in heard.items() for text in books.failed)),
        )

    def _due_s(self) -> float:
        return min(self.nodes.next_s, self._next_record_s, self.clock.now() + _LOOK_S)

    def _descriptors(self) -> Sequence[int]:
        return self.nodes.descriptors

    def _carry_out(self) -> None:
        self.nodes.policy = self.policy
        self._turn()

    def _readings(self, now_s: float) -> tuple[Reading, ...]:
        """Of all devices, in the order of the nodes."""
        made: list[Reading] = []
        for name in self.nodes.names:
            books, found = self.shares.books[name], self.nodes.found[name]
            powers_w = books.powers_w if self.shares.is_heard(name) else ()
            made += [Reading(t_s=now_s, power_w=w) for w in (*powers_w, *[None] * len(found.gpus))[: len(found.gpus)]]
        return tuple(made)

    def _warn(self, text: str) -> None:
        self.recorder.event(events.Warned(t_s=self.clock.now(), text=text))


def _below(watts: float, floor_w: float) -> str:
    return f"{watts:g} W are less than the {floor_w:.0f} W that the lowest caps of all nodes take; give that or more"


def node_command(config: BudgetConfig) -> tuple[str, ...]:
    """What runs on each node: the words, policy and record of the budget are the site's."""
    of_node = BudgetConfig(
        watts=None,
        gpus=config.gpus,
        via=config.via,
        node_power=config.node_power,
        floor_w=config.floor_w,
        group=config.group,
    )
    return (*_NODE, "--config", printable_json(encode(of_node)))


def hold(plan: BudgetConfig, names: Sequence[str], reach: Reopen, parent_fd: int, resumed: bool) -> int:
    """The whole life of a site; its exit status. names, reach: of the nodes, and how they are. parent_fd, resumed: as
    `manager.opening.manage` has them.

    Raises AutocapError where it cannot begin; by then nothing is set on any node."""
    clock, state_dir = MonotonicClock(), default_path()
    StateDir(state_dir).close()
    html.stylesheet()
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        begun = Beginning.of(plan, state_dir, resumed=resumed, state=SITE_STATE)
        parts = NodeAllocations(begun.watts, policy=begun.policy)
        nodes = Nodes(reach, names, parts, clock.now, time.sleep)
        directory = record_of(plan, resumed, stack)
        recorder = Recorder(directory, StderrReporter())
        site = NodeAllocator(
            clock=clock,
            nodes=nodes,
            shares=parts,
            course=begun.course(lambda text: recorder.warn(clock.now(), text), stack),
            policy=begun.policy,
            directory=str(directory.path.absolute()),
            recorder=recorder,
            state=SITE_STATE,
            ends_s=begun.ends_s(clock.now()),
            state_dir=state_dir,
            parent_fd=parent_fd,
        )
        status, why, has_begun = 1, "internal fault", False
        try:
            site.begin(signals, patient=begun.before is not None)
            recorder.event(_started(nodes, begun.started(clock.now())))
            has_begun = True
            export(plan, lambda: site.latest, stack)
            with listening_at(state_dir, plan.group, SITE_SOCKET) as listener:
                control_server = ControlServer(listener, site, clock.now)
                stack.callback(control_server.close)
                count = sum(len(found.gpus) for found in nodes.found.values())
                of = f"{count} GPUs of {len(nodes.names)} nodes"
                note(f"{begun.watts:g} W are shared among {of}; the record is {directory.path}")
                why, status = site.run(control_server, signals), 0
        except AutocapError as error:
            why = str(error)
            if not has_begun:
                raise
            recorder.warn(clock.now(), f"the budget ends: {why}")
        except Exception as error:
            why = recorder.reason(error)
            raise
        finally:
            nodes.end(SITE_ENDS_S)
            forget(state_dir, SITE_STATE)
            if has_begun:
                _record_end(recorder, nodes, clock.now(), why)
                report_on(directory, recorder)
    return status


def _started(nodes: Nodes, event: budget.BudgetStarted) -> budget.BudgetStarted:
    """With the devices of all nodes."""
    found = [nodes.found[name] for name in nodes.names]
    meters = [one.node_power for one in found if one.node_power is not None]
    return replace(
        event,
        gpus=tuple(gpu for one in found for gpu in one.gpus),
        original_w=tuple(w for one in found for w in one.original_w),
        emulated=any(one.emulated for one in found),
        driver=found[0].driver,
        node=meters[0] if meters else None,
    )


def _record_end(recorder: Recorder, nodes: Nodes, t_s: float, why: str) -> None:
    """What became of the limits, as the nodes have said; of one that has said nothing it is not known."""
    for name, restored in nodes.restored.items():
        for one in restored:
            recorder.event(events.LimitRestored(t_s=t_s, uuid=one.uuid, final=one.final_w, restored=one.restored))
            if one.note is not None:
                recorder.warn(t_s, f"{name}: {one.note}")
    for text in nodes.notes:
        recorder.warn(t_s, text)
    for name in nodes.names:
        if name not in nodes.restored:
            for gpu in nodes.found[name].gpus:
                recorder.event(events.LimitRestored(t_s=t_s, uuid=gpu.uuid, final=None, restored=None))
            recorder.warn(t_s, f"{name} has not said that its limits are back; it puts them back by itself")
    recorder.event(events.RunEnded(t_s=t_s, ended_because=why))
