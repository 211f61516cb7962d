"""Runs, attaches and tuned blocks: joins a job, its devices, its search and its record, and reports what came of it.

Everything that can be refused is refused before a child starts. Once it runs, no fault of ours ends it or changes
its status: it goes on untuned, and the report says why. A job that was attached to is nobody's to start: there a fault
that keeps us from tuning is an error.
"""

import math
import os
from contextlib import ExitStack
from dataclasses import replace

from autocap.config import NODE_POWER, RunConfig
from autocap.devices import node as node_power
from autocap.devices.base import PowerSource
from autocap.devices.sources import Source, source
from autocap.errors import AutocapError, DeviceError, DeviceUnavailable, GuardError, UsageError
from autocap.guardian import Fate, settle
from autocap.job import child as child_job
from autocap.job.attached import AttachedJob
from autocap.job.child import ChildJob
from autocap.job.invoking_user import InvokingUser, invoking_user
from autocap.job.signals import SignalClock
from autocap.progress.counter import IterationCounter
from autocap.session.caps import checker
from autocap.session.inbox import AttachInbox, Inbox
from autocap.session.output import RunOutput
from autocap.session.tuning import SearchPlan, Tuning
from autocap.session.warm_start import earlier_run
from autocap.strategies import registry

_NO_NEWS = (Fate.IN_USE, Fate.UNCHANGED)  # another run's device, and what never was changed


def run(config: RunConfig, clock: SignalClock) -> int:
    """Start the command, tune it while it runs, report; the child's exit status.

    Raises AutocapError for what is wrong before the child runs.
    """
    user = invoking_user()
    plan = _plan(config, user)
    with ExitStack() as stack:
        device, why_not = _source_or_why(config, clock, plan, required=True)
        if device is not None:
            stack.enter_context(device)
        if plan.earlier is not None:
            plan.earlier.require_command(config.command)
            if device is not None and device.known is not None:
                plan.earlier.require_device(device.known)
        notes = settle_leftovers(observe=config.tune.observe)
        node = None if device is None else _node_power(config, plan, clock, stack)
        counting = IterationCounter(config.progress if device else "none", _owner(user))
        stack.enter_context(counting)
        books = stack.enter_context(RunOutput(config, clock, user, node))
        job = _start(config, clock, books, user, counting)
        recorder = books.begin(plan, "run", job.pid, notes)
        inbox = Inbox(job, recorder, config.kill_after_s)
        tuning = Tuning(
            config=config, clock=clock, job=job, inbox=inbox, recorder=recorder, plan=plan, counting=counting, node=node
        )
        status = tuning.untuned(why_not) if device is None else tuning.tuned(device)
        counting.drain(clock)
        books.end(tuning.ended_because, status)
    return status


def attach(config: RunConfig, clock: SignalClock, pid: int) -> int:
    """Tune a process that runs already until it ends or a signal ends us; 0.

    Raises AutocapError where it cannot be tuned (or, under --observe, measured).
    """
    user = invoking_user()
    plan = _plan(config, user)
    with ExitStack() as stack:
        job, config = _joined(config, plan, pid, stack)
        finder = stack.enter_context(source(config, clock, checker(config.tune, plan.required_w), _owner_uid(user)))
        notes = settle_leftovers(observe=config.tune.observe)
        device = finder.find(job.identity, math.inf)
        if device is None:
            raise DeviceError(
                f"process {pid} and its descendants use no GPU; attach once the job computes on one, or pass --gpus"
            )
        stack.callback(device.close)
        node = _node_power(config, plan, clock, stack)
        counting = stack.enter_context(IterationCounter(config.progress, _owner(user), ours=False))
        books = stack.enter_context(RunOutput(config, clock, user, node))
        recorder = books.begin(plan, "attach", pid, notes)
        inbox = AttachInbox(job, recorder)
        tuning = Tuning(
            config=config, clock=clock, job=job, inbox=inbox, recorder=recorder, plan=plan, counting=counting, node=node
        )
        try:
            tuning.tune(device)
        except AutocapError:  # it never began
            books.directory.discard()
            raise
        books.end(job.left_because or tuning.ended_because)
    return 0


def inside(config: RunConfig, clock: SignalClock, pid: int) -> int:
    """Tune the process that asked for it (`autocap.tune`), once it uses a device, until it ends or asks no more; 0.

    Raises AutocapError for what has nothing to do with the device; where that cannot be tuned, the job runs untuned.
    """
    user = invoking_user()
    plan = _plan(config, user)
    with ExitStack() as stack:
        job, config = _joined(config, plan, pid, stack)
        device, why_not = _source_or_why(config, clock, plan, _owner_uid(user), required=False)
        if device is not None:
            stack.enter_context(device)
        notes = settle_leftovers(observe=config.tune.observe)
        counting = stack.enter_context(IterationCounter(config.progress, _owner(user), step_map=config.step_map))
        books = stack.enter_context(RunOutput(config, clock, user))
        recorder = books.begin(plan, "tune", pid, notes)
        inbox = AttachInbox(job, recorder)
        tuning = Tuning(
            config=config, clock=clock, job=job, inbox=inbox, recorder=recorder, plan=plan, counting=counting
        )
        if device is None:
            tuning.untuned(why_not)
        else:
            tuning.tuned(device)
        books.end(tuning.ended_because if job.left_because is None else "the tuned block ended")
    return 0


def _joined(config: RunConfig, plan: SearchPlan, pid: int, stack: ExitStack) -> tuple[AttachedJob, RunConfig]:
    """A job that runs already, and the settings with its command. Raises AutocapError."""
    job = stack.enter_context(AttachedJob(pid))
    if plan.earlier is not None:
        plan.earlier.require_command(job.command)
    return job, replace(config, command=job.command)


def _owner(user: InvokingUser | None) -> tuple[int, int] | None:
    return None if user is None else user.owner


def _owner_uid(user: InvokingUser | None) -> int:
    return os.getuid() if user is None else user.uid


def _source_or_why(
    config: RunConfig, clock: SignalClock, plan: SearchPlan, owner_uid: int | None = None, *, required: bool
) -> tuple[Source | None, str]:
    """The source of devices; where there is none that can be used, the reason. owner_uid: as `source` takes it.

    required: then raises DeviceError for that, unless --device is auto and there is no device at all.
    """
    try:
        return source(config, clock, checker(config.tune, plan.required_w), owner_uid), ""
    except DeviceError as error:
        if required and not (config.device == "auto" and isinstance(error, DeviceUnavailable)):
            raise
        return None, f"no device to tune: {error}"


def _node_power(config: RunConfig, plan: SearchPlan, clock: SignalClock, stack: ExitStack) -> PowerSource | None:
    """As `open_node_power`. Raises WarmStartRefused where the earlier run had another."""
    node = open_node_power(config, clock, stack)
    if plan.earlier is not None:
        plan.earlier.require_node(None if node is None else node.name)
    return node


def open_node_power(config: RunConfig, clock: SignalClock, stack: ExitStack) -> PowerSource | None:
    """The source that --node-power names, open until the stack closes; `None` for none.

    Raises DeviceUnavailable where it tells no power.
    """
    if config.node_power == NODE_POWER:
        return None
    with clock.lifted():  # a meter must feel it when it is asked to end
        node = node_power.open_source(config.node_power, clock)
    stack.callback(node.close)
    return node


def refuse_as_root(config: RunConfig, user: InvokingUser | None) -> None:
    """Raises UsageError where code of the user who called sudo would run with root's rights. user: `None` without
    sudo."""
    if user is None:
        return
    if ":" in config.strategy:
        raise UsageError(
            f"strategy {config.strategy} would run as root under sudo; register it as a plug-in, or run without sudo"
        )
    if config.node_power.startswith(node_power.COMMAND):
        raise UsageError(
            f"--node-power {config.node_power} would run as root under sudo; choose another source, or run without sudo"
        )


def settle_leftovers(*, observe: bool) -> list[str]:
    """Put back what dead runs left, on whatever device, unless nothing is to be set; sentences on it."""
    if observe:
        return []
    try:
        return [found.sentence for found in settle() if found.outcome not in _NO_NEWS]
    except GuardError as error:  # what is to be guarded will be refused for it; a job without a device need not be
        return [str(error)]


def _plan(config: RunConfig, user: InvokingUser | None) -> SearchPlan:
    refuse_as_root(config, user)
    factory = registry.find(config.strategy)
    return SearchPlan(
        factory=factory,
        options=registry.option_values(factory, config.strategy_options),
        earlier=None if config.warm_start is None else earlier_run(config.warm_start),
    )


def _start(
    config: RunConfig, clock: SignalClock, books: RunOutput, user: InvokingUser | None, counting: IterationCounter
) -> ChildJob:
    try:
        with clock.lifted(), counting.child_stdout() as stdout:
            return child_job.start(config.command, counting.environment(os.environ), user, stdout)
    except AutocapError:
        books.directory.discard()
        raise
