"""Opens what a node's manager needs, and lets it run; what happens is told to the site, which records it."""

import select
import sys
import time
from contextlib import ExitStack, closing

from autocap import events
from autocap.clock import Clock, MonotonicClock
from autocap.errors import AutocapError, DeviceLocked
from autocap.events import Event
from autocap.limits import Restored
from autocap.limits.state_dir import StateDir, default_path
from autocap.limits.times import LAST_WORDS_S, LOCKED_S, REPLACED_S, TRY_AGAIN_S
from autocap.plugins.fleet.budget.calling import NoBudget, call
from autocap.plugins.fleet.budget.ledger import Ledger
from autocap.plugins.fleet.budget.words import Done, End
from autocap.plugins.fleet.config import BudgetConfig
from autocap.plugins.fleet.manager.course import course_of
from autocap.plugins.fleet.manager.hall import Hall
from autocap.plugins.fleet.manager.loop import ASKED, Manager, Signals
from autocap.plugins.fleet.manager.opening import guarded_for, held_by, listening_at
from autocap.plugins.fleet.manager.supervising import forget, load
from autocap.plugins.fleet.nodes.agent.standard_streams import Inbox, Outbox, hello
from autocap.plugins.fleet.nodes.protocol import Done as Did
from autocap.plugins.fleet.nodes.protocol import Failed, Found, Note
from autocap.plugins.fleet.site.node.tie import Bond, NodeControl, Tie
from autocap.records import Sample
from autocap.session.actuating import actuation


class Told:
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


def manage_part(plan: BudgetConfig, number: int, node: str, out: int, leash: int, resumed: bool) -> int:
    """The whole life of a node's manager; its exit status. number, node: of this node, and its name. out: the
    descriptor for lines to the site. leash, resumed: as `autocap.plugins.fleet.manager.opening.manage` has them."""
    clock, outbox = MonotonicClock(), Outbox(out)
    told = Told(outbox)
    outbox.put(hello(node))
    try:
        status = _manage(plan, number, clock, told, leash, resumed)
    except AutocapError as error:
        told.failed(str(error))
        status = error.exit_status
    except Exception as error:
        told.failed(f"an internal fault: {type(error).__name__}: {error}")
        raise
    finally:
        outbox.deliver(LAST_WORDS_S)
    return status


def _manage(plan: BudgetConfig, number: int, clock: Clock, told: Told, leash: int, resumed: bool) -> int:
    state_dir, outbox = default_path(), told.outbox
    StateDir(state_dir).close()
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        before = load(state_dir) if resumed else None
        there = held_by(plan, clock, stack)
        if _is_alone():
            return 0
        replaced = _replace_another()
        way = actuation(plan.actuator, there.device)
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
            steward = there.steward(plan, held.guardian, ledger, told.event, clock.now(), before)
            manager = Manager(
                clock=clock,
                steward=steward,
                shares=ledger,
                listings=there.listings,
                recorder=told,
                directory="",
                policy=plan.policy,
                course=course_of(
                    plan, ledger.budget_w, None, None, time.time(), lambda text: told.warn(clock.now(), text), stack
                ),
                ends_s=float("inf"),
                state_dir=state_dir,
                leash=leash,
            )
            bond = Bond(number, steward, clock.now())
            bond.pass_time(clock.now())
            manager.pass_time()  # the floor is held before anybody is let in
            with listening_at(state_dir, plan.group) as listener:
                hall = Hall(listener, steward, NodeControl(manager, bond), clock.now)
                steward.tell = hall.tell
                stack.callback(hall.close)
                outbox.put(Found.of(there.device, held.guardian.original_w, way, there.node))
                inbox = Inbox(sys.stdin.fileno(), number)
                why = manager.run(
                    Tie(bond=bond, hall=hall, end=manager.end, clock=clock, inbox=inbox, outbox=outbox), signals
                )
        finally:
            told.restored = tuple(held.guardian.restore())
            forget(state_dir)
        if bond.end is not None:
            outbox.put(Did(number=bond.end, restored=told.restored))
        elif why == ASKED:  # else another end may take its place
            told.failed(why)
    return 0 if bond.end is not None or why == ASKED else 1


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
