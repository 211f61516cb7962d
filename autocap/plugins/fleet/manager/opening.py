"""Opens what a budget's manager needs, and lets it run: devices, guardian, node meter, record, socket."""

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from autocap import __version__, events
from autocap.clock import Clock, MonotonicClock
from autocap.config import NODE_POWER
from autocap.devices import node as node_power
from autocap.devices.base import PowerSource
from autocap.devices.inventory import HoldableDevice, HoldableInventory, named
from autocap.errors import AutocapError, DeviceError, DeviceLocked, DeviceUnavailable, ExporterError, UsageError
from autocap.events import Event
from autocap.job.keeper import keeper
from autocap.limits.guard import LimitGuard
from autocap.limits.state_dir import StateDir, default_path
from autocap.limits.times import LOCKED_S, TRY_AGAIN_S
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.calling import SOCKET
from autocap.plugins.fleet.budget.ledger import Ledger
from autocap.plugins.fleet.budget.schedule import Schedule, read_schedule
from autocap.plugins.fleet.budget.words import Standing
from autocap.plugins.fleet.config import BudgetConfig
from autocap.plugins.fleet.holdable import holdable
from autocap.plugins.fleet.manager.claims import Claims
from autocap.plugins.fleet.manager.course import course_of
from autocap.plugins.fleet.manager.hall import Hall
from autocap.plugins.fleet.manager.loop import Signals, ends_at
from autocap.plugins.fleet.manager.manager import Manager
from autocap.plugins.fleet.manager.spoken import Spoken
from autocap.plugins.fleet.manager.standing import values_of
from autocap.plugins.fleet.manager.state import BudgetState, forget, load
from autocap.plugins.fleet.manager.steward import Steward
from autocap.plugins.fleet.manager.weights import Weights
from autocap.plugins.fleet.openadr.credentials import find_credentials
from autocap.plugins.fleet.reports.document import present_budget
from autocap.printing import note
from autocap.runlog.directory import REPORT, RunDirectory
from autocap.session.actuating import Actuation, actuation
from autocap.session.guarding import Guarded, Records, guarded
from autocap.session.preparing import settle_leftovers
from autocap.session.recorder import Recorder
from autocap.wire import listening
from autocap.wire.listening import NotListening


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a budget holds on a machine. node: the meter of its power. notes: sentences on what it leaves alone."""

    inventory: HoldableInventory
    device: HoldableDevice
    node: PowerSource | None
    notes: tuple[str, ...]

    def steward(
        self, plan: BudgetConfig, guard: LimitGuard, ledger: Ledger, say: Callable[[Event], None], t_s: float,
        before: BudgetState | None,
    ) -> Steward:  # fmt: skip
        """Who has its GPUs from now on. before: what an earlier manager of it knew."""
        least_w = [max(gpu.cap_range.min_w, plan.floor_w or 0.0) for gpu in self.device.gpus]
        made = Steward(device=self.device, guard=guard, ledger=ledger, least_w=least_w, say=say, node=self.node)
        made.presence = Claims(self.inventory.pids).look
        made.weights = Weights(() if before is None else before.weights)
        made.begin(t_s)
        return made

    def listings(self) -> dict[str, Sequence[int]]:
        """Who uses each GPU; nobody one that is lost."""
        found = dict[str, Sequence[int]]()
        for gpu in self.device.gpus:
            with suppress(DeviceError):
                found[gpu.uuid] = self.inventory.pids(gpu.uuid) or ()
        return found


def held_by(plan: BudgetConfig, clock: Clock, stack: ExitStack) -> Held:
    """Until the stack closes. Raises AutocapError."""
    notes = settle_leftovers(observe=False)
    inventory = stack.enter_context(holdable(plan.device))
    device, more = devices_of(plan, inventory, clock)
    node = None
    if plan.node_power != NODE_POWER:
        node = node_power.open_source(plan.node_power, clock)
        stack.callback(node.close)
    return Held(inventory=inventory, device=device, node=node, notes=(*notes, *more))


def manage(plan: BudgetConfig, leash: int, resumed: bool) -> int:
    """The whole life of a manager; its exit status. leash: readable once our supervisor is gone. resumed: a killed one
    is followed. Raises AutocapError where it cannot begin."""
    clock, state_dir = MonotonicClock(), default_path()
    StateDir(state_dir).close()
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        before = load(state_dir) if resumed else None
        began_wall_s = time.time() if before is None else before.began_wall_s
        schedule = None if plan.schedule is None else read_schedule(plan.schedule, began_wall_s)
        if plan.openadr is not None and not resumed:
            find_credentials(plan.openadr.credentials)
        watts = first_watts(plan, schedule, before)
        there = held_by(plan, clock, stack)
        directory = record_of(plan, resumed, stack)
        recorder = Recorder(directory, Spoken())
        way = actuation(plan.actuator, there.device)
        held = guarded_for(way, recorder, clock, stack, LOCKED_S if resumed else 0.0)
        if not resumed:  # of a budget that was held already every moment counts, and its limits were settable
            held.rehearse()
        policy = plan.policy if before is None else before.policy
        ledger = Ledger(watts, policy=policy)
        recorder.event(
            budget.BudgetStarted(
                t_s=clock.now(),
                autocap_version=__version__,
                started_at=datetime.now().astimezone().isoformat(timespec="seconds"),
                pid=os.getpid(),
                budget_w=watts,
                policy=policy,
                gpus=there.device.gpus,
                original_w=held.guardian.original_w,
                driver=there.device.driver,
                node=None if there.node is None else there.node.name,
                schedule=plan.schedule,
                openadr=None if plan.openadr is None else plan.openadr.url,
                resumed=before is not None,
            )
        )
        for chosen in way.chosen(clock.now()):
            recorder.event(chosen)
        for text in there.notes:
            recorder.warn(clock.now(), text)
        held.record_notes()
        status, why = 1, "internal fault"
        try:
            steward = there.steward(plan, held.guardian, ledger, recorder.event, clock.now(), before)
            manager = Manager(
                clock=clock,
                steward=steward,
                shares=ledger,
                listings=there.listings,
                recorder=recorder,
                directory=str(directory.path.absolute()),
                policy=policy,
                course=course_of(
                    plan, watts, schedule, before, began_wall_s, lambda text: recorder.warn(clock.now(), text), stack
                ),
                ends_s=ends_at(plan.for_s, began_wall_s, clock.now()),
                state_dir=state_dir,
                leash=leash,
            )
            export(plan, lambda: manager.latest, stack)
            manager.pass_time()  # the budget is held before anybody is let in
            with listening_at(state_dir, plan.group) as listener:
                hall = Hall(listener, steward, manager, clock.now)
                steward.tell = hall.tell
                stack.callback(hall.close)
                note(f"{watts:g} W are shared among {len(there.device.gpus)} GPUs; the record is {directory.path}")
                why, status = manager.run(hall, signals), 0
            forget(state_dir)
        except AutocapError as error:
            why = str(error)
            recorder.warn(clock.now(), f"the budget ends: {why}")
            forget(state_dir)
        except Exception as error:
            why = recorder.reason(error)
            raise
        finally:
            held.put_back()
            recorder.event(events.RunEnded(t_s=clock.now(), ended_because=why))
            report_on(directory, recorder)
    return status


def report_on(directory: RunDirectory, recorder: Recorder) -> None:
    """What came of it, beside its record."""
    try:
        directory.finish()
        report = present_budget(directory.path, recorder.events)
        directory.put_result(report.result)
        directory.put(REPORT, report.page)
    except Exception as error:  # noqa: BLE001 - the limits are back, and the record is there
        note(f"warning: there is no report: {recorder.reason(error)}")


def export(plan: BudgetConfig, latest: Callable[[], Standing | None], stack: ExitStack) -> None:
    """Raises ExporterError."""
    if plan.prometheus is None:
        return
    try:
        from autocap.reports.prometheus.exporter import BudgetExporter
    except ImportError as error:  # what the client itself may lack is named
        raise ExporterError(
            f"--prometheus needs the package prometheus-client ({error}); install it with: "
            "pip install prometheus-client"
        ) from error
    stack.callback(BudgetExporter(*plan.prometheus, lambda: values_of(latest())).close)


def first_watts(plan: BudgetConfig, schedule: Schedule | None, before: BudgetState | None) -> float:
    """Raises UsageError where neither the command line nor the schedule says how many there are now."""
    step = None if schedule is None else schedule.at(time.time())
    if step is not None:
        return step.watts
    if before is not None:
        return before.watts
    if plan.watts is None:
        raise UsageError(f"{plan.schedule} says nothing of the time until its first row; add WATTS for until then")
    return plan.watts


def devices_of(plan: BudgetConfig, inventory: HoldableInventory, clock: Clock) -> tuple[HoldableDevice, list[str]]:
    """The devices whose limits the budget sets, and sentences on those that it leaves alone. Raises DeviceError."""
    there = inventory.devices()
    if not there:
        raise DeviceUnavailable("; ".join(inventory.unreadable))
    if plan.gpus is not None:
        uuids = named(there, plan.gpus)
        refused = [one.obstacle for one in there if one.uuid in uuids and one.obstacle is not None]
        if refused:
            raise DeviceError(f"{refused[0]}; name the others with --gpus")
        return inventory.hold(uuids, clock), []
    outside = [one for one in there if one.obstacle is not None]
    if len(outside) == len(there):
        raise DeviceError(f"no {inventory.noun} here takes a power limit: {outside[0].obstacle}")
    notes = [f"{one.where} is outside the budget, and draws what it draws: {one.obstacle}" for one in outside]
    return inventory.hold(tuple(one.uuid for one in there if one.obstacle is None), clock), notes


def guarded_for(way: Actuation, recorder: Records, clock: Clock, stack: ExitStack, patience_s: float) -> Guarded:
    """Raises as `guarded`; where somebody has a device, tries again for a while."""
    until_s = clock.now() + patience_s
    while True:
        try:
            return guarded(way, None, recorder, clock, stack)
        except DeviceLocked:
            if clock.now() >= until_s:
                raise
        time.sleep(TRY_AGAIN_S)


def record_of(plan: BudgetConfig, resumed: bool, stack: ExitStack) -> RunDirectory:
    """A manager that follows a killed one begins a record of its own."""
    out = plan.out
    if resumed and out is not None:
        out = out.with_name(f"{out.name}-{os.getpid()}")
    return stack.enter_context(RunDirectory.create(out, plan.force, datetime.now().astimezone()))


@contextmanager
def listening_at(state_dir: Path, group: str | None, name: str = SOCKET) -> Iterator[socket.socket]:
    """Raises AutocapError where there can be no socket."""
    root = keeper()
    if root is not None:
        try:
            with root.listen() as listener:
                yield listener
        except OSError as error:
            raise NotListening(f"no socket can be had: {error.strerror}") from error
        return
    gid = None if group is None else listening.gid_of(group)
    if gid is not None:
        state_dir.chmod(0o711)  # its files stay our own
    with listening.own(state_dir / name, gid) as listener:
        yield listener
