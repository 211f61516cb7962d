"""Opens what a budget's manager needs, and lets it run: devices, guardian, node meter, record, socket, and what it
says on standard error."""

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path

from autocap import events
from autocap.clock import Clock, MonotonicClock
from autocap.config import NODE_POWER
from autocap.devices import node as node_power
from autocap.devices.base import PowerSource
from autocap.devices.inventory import HoldableDevice, HoldableInventory, named
from autocap.errors import AutocapError, DeviceError, DeviceLocked, DeviceUnavailable, ExporterError
from autocap.events import Event
from autocap.job.keeper import keeper
from autocap.limits.guard import LimitGuard
from autocap.limits.state_dir import StateDir, default_path
from autocap.limits.times import LOCKED_S, TRY_AGAIN_S
from autocap.plugins.fleet import events as budget
from autocap.plugins.fleet.budget.connection import SOCKET
from autocap.plugins.fleet.budget.ledger import Ledger
from autocap.plugins.fleet.budget.protocol import Standing
from autocap.plugins.fleet.config import BudgetConfig, holdable
from autocap.plugins.fleet.manager.budget_target import Beginning
from autocap.plugins.fleet.manager.enforcer import BudgetEnforcer
from autocap.plugins.fleet.manager.finding import Claims, Weights
from autocap.plugins.fleet.manager.loop import Manager, Signals
from autocap.plugins.fleet.manager.supervising import BudgetState, forget
from autocap.plugins.fleet.manager.tuner_server import TunerServer
from autocap.plugins.fleet.reports.document import present_budget
from autocap.records import Sample
from autocap.reports.live.terminal import Reporter
from autocap.runlog.directory import REPORT, RunDirectory
from autocap.session.guarding import Guarded, Records, guarded
from autocap.session.preparing import settle_leftovers
from autocap.session.recorder import Recorder
from autocap.session.via import Actuation, actuation
from autocap.text import note
from autocap.wire import listening
from autocap.wire.listening import NotListening


class StderrReporter(Reporter):
    """Takes what happens; says what a user who watches wants to know."""

    def __init__(self) -> None:
        self._not_back = 0  # limits, as far as is known

    def event(self, event: Event) -> None:
        self._not_back += isinstance(event, events.LimitRestored) and event.restored is not True
        text = _sentence(event, self._not_back)
        if text is not None:
            note(text)

    def sample(self, sample: Sample) -> None:
        """Nothing is said of it."""


def _sentence(event: Event, not_back: int) -> str | None:
    match event:
        case budget.BudgetChanged():
            return f"{event.budget_w:g} W are shared from now on, {event.policy}: {event.why}"
        case budget.JobJoined():
            how = "with a tuner" if event.tuned else "untuned"
            return f"{event.name} has come, {how}, on {len(event.uuids)} GPU{'s' * (len(event.uuids) > 1)}"
        case budget.JobLeft():
            return f"{event.name} has left: {event.why}"
        case budget.JobWeighed():
            return f"{event.name} has the weight {event.weight:g} from now on: {event.why}"
        case budget.BudgetShort(short_w=short_w) if short_w > 0:
            names = ", ".join(event.pause)
            return f"the lowest caps exceed the budget by {short_w:.0f} W; pause {names}, or raise the budget"
        case budget.BudgetShort():
            return "the budget can be kept again"
        case events.Warned():
            return f"warning: {event.text}"
        case events.RunEnded():
            but = f", but for {not_back} of them" if not_back else ""
            return f"the budget has ended: {event.ended_because}; the limits found are back{but}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a budget holds on a machine. node: the meter of its power. notes: sentences on what it leaves alone."""

    inventory: HoldableInventory
    device: HoldableDevice
    node: PowerSource | None
    notes: tuple[str, ...]

    def enforcer(
        self, plan: BudgetConfig, guard: LimitGuard, ledger: Ledger, say: Callable[[Event], None], t_s: float,
        before: BudgetState | None,
    ) -> BudgetEnforcer:  # fmt: skip
        """Who has its GPUs from now on. before: what an earlier manager of it knew."""
        least_w = [max(gpu.cap_range.min_w, plan.floor_w or 0.0) for gpu in self.device.gpus]
        made = BudgetEnforcer(device=self.device, guard=guard, ledger=ledger, least_w=least_w, say=say, node=self.node)
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


def manage(plan: BudgetConfig, parent_fd: int, resumed: bool) -> int:
    """The whole life of a manager; its exit status. parent_fd: readable once our supervisor is gone. resumed: a killed
    one is followed. Raises AutocapError where it cannot begin."""
    clock, state_dir = MonotonicClock(), default_path()
    StateDir(state_dir).close()
    with ExitStack() as stack:
        signals = stack.enter_context(Signals())
        begun = Beginning.of(plan, state_dir, resumed=resumed)
        there = held_by(plan, clock, stack)
        directory = record_of(plan, resumed, stack)
        recorder = Recorder(directory, StderrReporter())
        way = actuation(plan.via, there.device)
        held = guarded_for(way, recorder, clock, stack, LOCKED_S if resumed else 0.0)
        if not resumed:  # of a budget that was held already every moment counts, and its limits were settable
            held.rehearse()
        ledger = Ledger(begun.watts, policy=begun.policy)
        recorder.event(
            replace(
                begun.started(clock.now()),
                gpus=there.device.gpus,
                original_w=held.guardian.original_w,
                driver=there.device.driver,
                node=None if there.node is None else there.node.name,
                openadr=None if plan.openadr is None else plan.openadr.url,
            )
        )
        for chosen in way.chosen(clock.now()):
            recorder.event(chosen)
        for text in there.notes:
            recorder.warn(clock.now(), text)
        held.record_notes()
        status, why = 1, "internal fault"
        try:
            enforcer = there.enforcer(plan, held.guardian, ledger, recorder.event, clock.now(), begun.before)
            manager = Manager(
                clock=clock,
                enforcer=enforcer,
                shares=ledger,
                listings=there.listings,
                recorder=recorder,
                directory=str(directory.path.absolute()),
                policy=begun.policy,
                course=begun.course(lambda text: recorder.warn(clock.now(), text), stack),
                ends_s=begun.ends_s(clock.now()),
                state_dir=state_dir,
                parent_fd=parent_fd,
            )
            export(plan, lambda: manager.latest, stack)
            manager.pass_time()  # the budget is held before anybody is let in
            with listening_at(state_dir, plan.group) as listener:
                tuner_server = TunerServer(listener, enforcer, manager, clock.now)
                enforcer.tell = tuner_server.tell
                stack.callback(tuner_server.close)
                note(
                    f"{begun.watts:g} W are shared among {len(there.device.gpus)} GPUs; the record is {directory.path}"
                )
                why, status = manager.run(tuner_server, signals), 0
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


def values_of(standing: Standing | None) -> dict[str, list[tuple[dict[str, str], float]]]:
    """What is exported of it, by metric; nothing before anything is known."""
    if standing is None:
        return {}
    jobs = [
        (
            {
                "job": job.name if job.node is None else f"{job.node}: {job.name}",
                "tuned": "true" if job.tuned else "false",
            },
            job,
        )
        for job in standing.jobs
    ]
    return {
        "autocap_budget_watts": [({"policy": standing.policy}, standing.budget_w)],
        "autocap_budget_power_watts": [] if standing.power_w is None else [({}, standing.power_w)],
        "autocap_budget_reserved_watts": [({}, standing.reserved_w)],
        "autocap_budget_room_watts": [({}, standing.room_w)],
        "autocap_budget_short_watts": [({}, standing.short_w)],
        "autocap_budget_job_cap_watts": [(labels, job.cap_w) for labels, job in jobs],
        "autocap_budget_job_ceiling_watts": [
            (labels, job.ceiling_w) for labels, job in jobs if job.ceiling_w is not None
        ],
        "autocap_budget_job_power_watts": [(labels, job.draw_w) for labels, job in jobs if job.draw_w is not None],
        "autocap_budget_job_slowdown_ratio": [(labels, job.slowdown) for labels, job in jobs],
    }


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
