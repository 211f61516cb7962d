"""Opens what a node's manager needs, and lets it run, with the line to its site: takes parts of the budget, tells how
the node stands, and lets a part lapse. What happens is told to the site, which records it.

The manager sees to the line in the same thread that hears clients, so that nothing is between a word and the caps."""

import math
import select
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace

import numpy as np

from autocap import events
from autocap.clock import Clock, MonotonicClock
from autocap.errors import AutocapError, DeviceLocked, UsageError
from autocap.events import Event
from autocap.limits import Restored
from autocap.limits.lease import Lease
from autocap.limits.state_dir import StateDir, default_path
from autocap.limits.times import LAST_WORDS_S, LOCKED_S, PART_HOLDS_S, REPLACED_S, SITE_GONE_S, TRY_AGAIN_S
from autocap.plugins.fleet.budget.connection import NoBudget, call
from autocap.plugins.fleet.budget.ledger import Ledger
from autocap.plugins.fleet.budget.protocol import Done, End, Standing
from autocap.plugins.fleet.config import BudgetConfig, Policy
from autocap.plugins.fleet.manager.budget_target import BudgetTarget
from autocap.plugins.fleet.manager.enforcer import BudgetEnforcer
from autocap.plugins.fleet.manager.loop import ASKED, Manager, Signals
from autocap.plugins.fleet.manager.opening import guarded_for, held_by, listening_at
from autocap.plugins.fleet.manager.supervising import forget, load
from autocap.plugins.fleet.manager.tuner_server import TunerServer
from autocap.plugins.fleet.nodes.agent.standard_streams import Inbox, Outbox, hello
from autocap.plugins.fleet.nodes.protocol import (
    Command,
    CommandKind,
    Failed,
    Found,
    JobReport,
    Message,
    NodeReport,
    Note,
    SetAllocation,
)
from autocap.plugins.fleet.nodes.protocol import Done as Did
from autocap.records import Sample
from autocap.session.via import actuation

_DIGITS = 6
_NEAR_W = 0.01


def books_of(enforcer: BudgetEnforcer, *, number: int, serial: int) -> NodeReport:
    """number, serial: as `NodeReport` has them. Where a part is held it is the ledger's budget, and may all be in
    force."""
    ledger, now = enforcer.ledger, enforcer.standing(policy="", record="")
    of_jobs_w = sum(len(one.devices) * ledger[one.name].lowest_w for one in now.jobs)
    charged_w = ledger.budget_w - ledger.room_w
    reserved_w = enforcer.rest.reserved_w
    return NodeReport(
        number=number,
        serial=serial,
        may_w=max(charged_w, ledger.budget_w if serial else 0.0),
        floor_w=ledger.least_w,
        fixed_w=ledger.least_w - of_jobs_w,
        found_w=sum(enforcer.caps.counted_w.get(gpu, w) for gpu, w in enumerate(enforcer.caps.found_w)) + reserved_w,
        reserved_w=reserved_w,
        jobs=tuple(
            JobReport(
                at=replace(one, doubt=None, most_slowdown=_most(enforcer, one.name)), **_curve(enforcer, one.name)
            )
            for one in now.jobs
        ),
        free=now.free,
        powers_w=tuple(reading.power_w for reading in enforcer.readings),
        power_w=now.power_w,
        failed=now.failed,
    )


def _most(enforcer: BudgetEnforcer, name: str) -> float | None:
    """The slowdown that is kept to as long as the budget holds for all."""
    most = enforcer.ledger[name].curve.most_slowdown
    return most if most < math.inf else None


def _curve(enforcer: BudgetEnforcer, name: str) -> dict[str, tuple[float, ...]]:
    curve = enforcer.ledger[name].wanted()
    caps_w, slowdown, energy = (
        tuple(float(f"{value:.{_DIGITS}g}") for value in column)
        for column in (curve.caps_w, curve.slowdown, np.maximum(curve.energy, 1e-6))
    )
    return {"caps_w": caps_w, "slowdown": slowdown, "energy": energy}


class AllocationTerms:
    """What a node owes its site. number: of this node. policy: as the site has said.
    end: the number of the deed that has ended it, `None` before.

    It begins without a part, as if nothing had ever been heard.
    """

    def __init__(self, number: int, enforcer: BudgetEnforcer, now_s: float) -> None:
        self._number, self._enforcer = number, enforcer
        self._lease = Lease(now_s, restore_s=PART_HOLDS_S, leave_s=SITE_GONE_S)
        self._lease.lapses_at_once()
        self._word, self._serial = 0, 0
        self.policy = Policy.FAIR
        self.end: int | None = None

    def hear(self, t_s: float, message: Message) -> bool:
        """Do what a message of the site asks for; whether it is to be answered with books."""
        self._lease.word(t_s)
        if isinstance(message, Command) and message.what is CommandKind.END:
            self.end = message.number
        if not isinstance(message, SetAllocation) or self._number >= len(message.serials):
            return False
        self._word = message.number
        if self._number < len(message.since):
            self._lease.heard(message.number - message.since[self._number])
        self._lease.answer(message.number, t_s)
        self.policy = Policy(message.policy)
        self._enforcer.ledger.policy(self.policy)
        self._hold(t_s, message.serials[self._number], message.parts_w[self._number])
        return True

    def pass_time(self, t_s: float) -> bool:
        """Fall to the floor where the lease has ended; whether the site is gone for good."""
        if self._serial and self._lease.is_lapsed(t_s):
            self._hold(t_s, 0, 0.0)
        elif not self._serial:
            self._enforcer.ledger.budget(t_s, self._enforcer.ledger.least_w)
        return self._lease.is_over(t_s)

    @property
    def has_part(self) -> bool:
        return self._serial > 0

    def books(self) -> NodeReport:
        """How the node stands."""
        return books_of(self._enforcer, number=self._word, serial=self._serial)

    def _hold(self, t_s: float, serial: int, part_w: float) -> None:
        ledger = self._enforcer.ledger
        self._serial = 0 if self._lease.is_lapsed(t_s) else serial
        ledger.budget(t_s, max(part_w, ledger.least_w) if self._serial else ledger.least_w)
        self._enforcer.act(t_s)


class AllocatorConnection:
    """The sources of a node's manager: its server of tuners, and the line to the site."""

    def __init__(
        self,
        *,
        terms: AllocationTerms,
        tuner_server: TunerServer,
        end: Callable[[str], None],
        clock: Clock,
        inbox: Inbox,
        outbox: Outbox,
    ):
        self._terms, self._tuner_server, self._end, self._clock = terms, tuner_server, end, clock
        self._inbox, self._outbox = inbox, outbox
        self._said: NodeReport | None = None

    def watch(self, poll: "select.poll") -> None:
        """As `RequestSource` has it. A site whose line has ended may come back by another one, and is waited for."""
        self._tuner_server.watch(poll)
        if not self._inbox.ended:
            poll.register(self._inbox.fd, select.POLLIN)

    def serve(self, ready: set[int]) -> None:
        """As `RequestSource` has it. Raises as the enforcer."""
        if self._inbox.fd in ready:
            for message in self._inbox.messages():
                if self._terms.hear(self._clock.now(), message):
                    self._tell(anyway=True)
            if self._terms.end is not None:
                self._end("the site has ended it")
        self._tuner_server.serve(ready)

    def pass_time(self) -> None:
        """As `RequestSource` has it."""
        self._tuner_server.pass_time()
        if self._terms.pass_time(self._clock.now()):
            self._end(f"nothing was heard of its site for {SITE_GONE_S:g} s")
        self._tell(anyway=False)
        self._outbox.flush()

    def _tell(self, *, anyway: bool) -> None:
        books = self._terms.books()
        if anyway or self._said is None or _news(books) != _news(self._said):
            self._said = books
            if not self._outbox.broken:
                self._outbox.put(books)


class NodeControl:
    """What may be asked of a node's part by who speaks to its manager: what is the site's is refused."""

    def __init__(self, manager: Manager, terms: AllocationTerms) -> None:
        self._manager, self._terms = manager, terms

    def change(self, watts: float | None, policy: str | None, why: str) -> None:
        raise UsageError("this is a node's part of a budget over several nodes; speak to it where that was started")

    def weigh(self, pid: int, weight: float, why: str) -> None:
        self._manager.weigh(pid, weight, why)

    def end(self, why: str) -> None:
        if self._terms.has_part:
            raise UsageError("this node's part is its site's to end; end the budget where that was started")
        self._manager.end(why)

    def standing(self) -> Standing:
        return replace(self._manager.standing(), policy=self._terms.policy)


def _news(books: NodeReport) -> NodeReport:
    """Without what is different every time."""
    jobs = tuple(replace(job, at=replace(job.at, draw_w=None)) for job in books.jobs)
    may_w = round(books.may_w / _NEAR_W) * _NEAR_W
    return replace(books, number=0, powers_w=(), power_w=None, jobs=jobs, may_w=may_w)


class AllocatorReporter:
    """In place of a record: sentences go to the site, which keeps it. restored: what became of the limits."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.restored: tuple[Restored, ...] = ()

    def event(self, event: Event) -> None:
        if isinstance(event, events.Warned):
            self.warn(event.t_s, event.text)

    def sample(self, sample: Sample) -> None:
        """The site has the power by the books."""

    def warn(self, t_s: float, text: str) -> None:
        self.outbox.put(Note(text=text))

    def failed(self, why: str) -> None:
        """Say why this node leaves, and what became of its limits."""
        self.outbox.put(Failed(why=why, restored=self.restored))


def manage_part(plan: BudgetConfig, number: int, node: str, out: int, parent_fd: int, resumed: bool) -> int:
    """The whole life of a node's manager; its exit status. number, node: of this node, and its name. out: the
    descriptor for lines to the site. parent_fd, resumed: as `autocap.plugins.fleet.manager.opening.manage` has them."""
    clock, outbox = MonotonicClock(), Outbox(out)
    told = AllocatorReporter(outbox)
    outbox.put(hello(node))
    try:
        status = _manage(plan, number, clock, told, parent_fd, resumed)
    except AutocapError as error:
        told.failed(str(error))
        status = error.exit_status
    except Exception as error:
        told.failed(f"an internal fault: {type(error).__name__}: {error}")
        raise
    finally:
        outbox.deliver(LAST_WORDS_S)
    return status


def _manage(
    plan: BudgetConfig, number: int, clock: Clock, told: AllocatorReporter, parent_fd: int, resumed: bool
) -> int:
    state_dir, outbox = default_path(), told.outbox
    StateDir(state_dir).close()
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        before = load(state_dir) if resumed else None
        there = held_by(plan, clock, stack)
        if _is_alone():
            return 0
        replaced = _replace_another()
        way = actuation(plan.via, there.device)
        held = guarded_for(way, told, clock, stack, LOCKED_S if resumed or replaced else 0.0)
        if not (resumed or replaced):
            held.rehearse()
        if resumed:
            told.warn(clock.now(), "its manager was killed, and is started again")
        for text in there.notes:
            told.warn(clock.now(), text)
        held.record_notes()
        ledger = Ledger(1.0)  # less than any floor is: until there is a part
        try:
            enforcer = there.enforcer(plan, held.guardian, ledger, told.event, clock.now(), before)
            manager = Manager(
                clock=clock,
                enforcer=enforcer,
                shares=ledger,
                listings=there.listings,
                recorder=told,
                directory="",
                policy=plan.policy,
                course=BudgetTarget(
                    asked_w=None,
                    there_w=ledger.budget_w,
                    began_wall_s=time.time(),
                    warn=lambda text: told.warn(clock.now(), text),
                ),
                ends_s=float("inf"),
                state_dir=state_dir,
                parent_fd=parent_fd,
            )
            terms = AllocationTerms(number, enforcer, clock.now())
            terms.pass_time(clock.now())
            manager.pass_time()  # the floor is held before anybody is let in
            with listening_at(state_dir, plan.group) as listener:
                tuner_server = TunerServer(listener, enforcer, NodeControl(manager, terms), clock.now)
                enforcer.tell = tuner_server.tell
                stack.callback(tuner_server.close)
                outbox.put(Found.of(there.device, held.guardian.original_w, way, there.node))
                inbox = Inbox(sys.stdin.fileno(), number)
                why = manager.run(
                    AllocatorConnection(
                        terms=terms, tuner_server=tuner_server, end=manager.end, clock=clock, inbox=inbox, outbox=outbox
                    ),
                    signals,
                )
        finally:
            told.restored = tuple(held.guardian.restore())
            forget(state_dir)
        if terms.end is not None:
            outbox.put(Did(number=terms.end, restored=told.restored))
        elif why == ASKED:  # else another end may take its place
            told.failed(why)
    return 0 if terms.end is not None or why == ASKED else 1


def _is_alone() -> bool:
    """Whether the site has gone before anything was set here."""
    watch = select.poll()
    watch.register(sys.stdin.fileno(), select.POLLHUP)
    return any(event & select.POLLHUP and not event & select.POLLIN for _, event in watch.poll(0))


def _replace_another() -> bool:
    """Have the manager of an earlier site leave, which is waited for as long as its part may hold; whether there was
    one. Raises DeviceLocked where it stays."""
    until_s, found, refusal = time.monotonic() + REPLACED_S, False, ""
    while time.monotonic() < until_s:
        try:
            with closing(call()) as there:
                found = True
                there.ask(End(), Done)
        except NoBudget:
            return found
        except AutocapError as error:
            refusal = str(error)
        time.sleep(TRY_AGAIN_S)
    raise DeviceLocked(f"a budget runs on this node already: {refusal or 'it does not end'}")
