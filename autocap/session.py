"""Runs and attaches: joins a job, its devices, its search and its record, and reports what came of it.

Everything that can be refused is refused before a child starts. Once it runs, no fault of ours ends it or changes
its status: it goes on untuned, and the report says why. A job that was attached to is nobody's to start: there a fault
that keeps us from tuning is an error.
"""

import json
import math
import os
import sys
from contextlib import ExitStack, suppress
from dataclasses import replace
from datetime import datetime

from autocap import __version__, events, nodepower, registry, target
from autocap.attached import AttachedJob
from autocap.config import NODE_POWER, RunConfig
from autocap.counting import Counting
from autocap.errors import AutocapError, DeviceError, DeviceUnavailable, GuardError, RunDirectoryError, UsageError
from autocap.events import MetricInfo, OptionValue
from autocap.guardian import Fate, settle
from autocap.inbox import AttachInbox, Inbox
from autocap.opening import Source, source
from autocap.powersource import PowerSource
from autocap.privileges import InvokingUser, invoking_user
from autocap.recorder import Recorder
from autocap.reporters import summary as summary_report
from autocap.reporters import terminal
from autocap.runlog import RunDirectory, to_json_dict
from autocap.signals import SignalClock
from autocap.summarise import summarise
from autocap.target import Target
from autocap.tuning import SearchPlan, Tuning
from autocap.warmstart import earlier_run

_NO_NEWS = (Fate.IN_USE, Fate.UNCHANGED)  # another run's device, and what never was changed


def run(config: RunConfig, clock: SignalClock) -> int:
    """Start the command, tune it while it runs, report; the child's exit status.

    Raises AutocapError for what is wrong before the child runs.
    """
    user = invoking_user()
    plan = _plan(config, user)
    with ExitStack() as stack:
        device, why_not = _source_if_any(config, clock, plan)
        if device is not None:
            stack.enter_context(device)
        if plan.earlier is not None:
            plan.earlier.require_command(config.command)
            if device is not None and device.known is not None:
                plan.earlier.require_device(device.known)
        notes = _settle(config)
        node = None if device is None else _node_power(config, plan, clock, stack)
        started = datetime.now().astimezone()
        counting = Counting(config.progress if device else "none", user)
        stack.enter_context(counting)
        directory = stack.enter_context(RunDirectory.create(config.out, config.force, user, started))
        job = _start(config, clock, directory, user, counting)
        reporter = terminal.for_stream(sys.stderr, quiet=config.quiet, job_output_is_ours_too=sys.stdout.isatty())
        recorder = Recorder(directory, reporter)
        recorder.event(_started(config, plan, "run", job.pid, started))
        _tell_of_node(config, node, recorder, clock.now())
        for note in notes:
            recorder.warn(clock.now(), note)
        inbox = Inbox(job, recorder, config.kill_after_s)
        tuning = Tuning(
            config=config, clock=clock, job=job, inbox=inbox, recorder=recorder, plan=plan, counting=counting, node=node
        )
        status = tuning.untuned(why_not) if device is None else tuning.tuned(device)
        counting.drain(clock)
        _tell_of_node(config, node, recorder, clock.now())
        recorder.event(events.RunEnded(t_s=clock.now(), ended_because=tuning.ended_because, exit_status=status))
        _report(config, directory, recorder, reporter)
    return status


def attach(config: RunConfig, clock: SignalClock, pid: int) -> int:
    """Tune a process that runs already until it ends or a signal ends us; 0.

    Raises AutocapError where it cannot be tuned (or, under --observe, measured).
    """
    user = invoking_user()
    plan = _plan(config, user)
    with ExitStack() as stack:
        job = stack.enter_context(AttachedJob(pid))
        config = replace(config, command=job.command)
        if plan.earlier is not None:
            plan.earlier.require_command(job.command)
        owner_uid = os.getuid() if user is None else user.uid
        finder = stack.enter_context(source(config, clock, plan.required_w, owner_uid))
        notes = _settle(config)
        device = finder.find(job.identity, math.inf)
        if device is None:
            raise DeviceError(
                f"process {pid} and its descendants use no GPU; attach once the job computes on one, or pass --gpus"
            )
        stack.callback(device.close)
        node = _node_power(config, plan, clock, stack)
        started = datetime.now().astimezone()
        counting = stack.enter_context(Counting(config.progress, user, ours=False))
        directory = stack.enter_context(RunDirectory.create(config.out, config.force, user, started))
        reporter = terminal.for_stream(sys.stderr, quiet=config.quiet, job_output_is_ours_too=False)
        recorder = Recorder(directory, reporter)
        recorder.event(_started(config, plan, "attach", pid, started))
        _tell_of_node(config, node, recorder, clock.now())
        for note in notes:
            recorder.warn(clock.now(), note)
        inbox = AttachInbox(job, recorder)
        tuning = Tuning(
            config=config, clock=clock, job=job, inbox=inbox, recorder=recorder, plan=plan, counting=counting, node=node
        )
        try:
            tuning.tune(device)
        except AutocapError:  # it never began
            reporter.close()
            directory.discard()
            raise
        ended_because = job.left_because or tuning.ended_because
        _tell_of_node(config, node, recorder, clock.now())
        recorder.event(events.RunEnded(t_s=clock.now(), ended_because=ended_because))
        _report(config, directory, recorder, reporter)
    return 0


def _source_if_any(config: RunConfig, clock: SignalClock, plan: SearchPlan) -> tuple[Source | None, str]:
    """The source of devices; under `auto` none where there is none, with the reason."""
    try:
        return source(config, clock, plan.required_w), ""
    except DeviceUnavailable as error:
        if config.device != "auto":
            raise
        return None, f"no device to tune: {error}"


def _node_power(config: RunConfig, plan: SearchPlan, clock: SignalClock, stack: ExitStack) -> PowerSource | None:
    """The source that --node-power names, opened until the stack ends; `None` for none.

    Raises DeviceUnavailable where it tells no power, and WarmStartRefused where the earlier run had another.
    """
    node = None
    if config.node_power != NODE_POWER:
        with clock.lifted():  # a meter must feel it when it is asked to end
            node = nodepower.open_source(config.node_power, clock)
        stack.callback(node.close)
    if plan.earlier is not None:
        plan.earlier.require_node(None if node is None else node.name)
    return node


def _tell_of_node(config: RunConfig, node: PowerSource | None, recorder: Recorder, t_s: float) -> None:
    if node is not None:
        recorder.event(
            events.NodeMetered(
                t_s=t_s,
                source=node.name,
                whole=node.whole,
                refresh_s=node.refresh_s,
                idle_w=config.idle_w,
                standard_idle_w=config.standard_idle_w,
            )
        )


def _settle(config: RunConfig) -> list[str]:
    """Put back what dead runs left, on whatever device; sentences on it."""
    if config.tune.observe:
        return []
    try:
        return [found.sentence for found in settle() if found.outcome not in _NO_NEWS]
    except GuardError as error:  # what is to be guarded will be refused for it; a job without a device need not be
        return [str(error)]


def _plan(config: RunConfig, user: InvokingUser | None) -> SearchPlan:
    if user is not None and ":" in config.strategy:
        raise UsageError(
            f"strategy {config.strategy} would run as root under sudo; register it as a plug-in, or run without sudo"
        )
    if user is not None and config.node_power.startswith(nodepower.COMMAND):
        raise UsageError(
            f"--node-power {config.node_power} would run as root under sudo; choose another source, or run without sudo"
        )
    factory = registry.find(config.strategy)
    return SearchPlan(
        factory=factory,
        options=registry.option_values(factory, config.strategy_options),
        earlier=None if config.warm_start is None else earlier_run(config.warm_start),
    )


def _start(
    config: RunConfig, clock: SignalClock, directory: RunDirectory, user: InvokingUser | None, counting: Counting
) -> Target:
    try:
        with clock.lifted(), counting.child_stdout() as stdout:
            return target.start(config.command, counting.environment(os.environ), user, stdout)
    except AutocapError:
        directory.discard()
        raise


def _started(config: RunConfig, plan: SearchPlan, mode: str, pid: int, started: datetime) -> events.RunStarted:
    metric = config.tune.metric
    return events.RunStarted(
        t_s=0.0,
        autocap_version=__version__,
        mode=mode,
        command=config.command,
        pid=pid,
        started_at=started.isoformat(timespec="seconds"),
        metric=MetricInfo(
            name=metric.name,
            k=metric.k,
            max_slowdown=metric.max_slowdown,
            energy_price=metric.energy_price,
            hour_price=metric.hour_price,
        ),
        strategy=config.strategy,
        strategy_options=tuple(OptionValue(name=name, value=value) for name, value in plan.options.items()),
        observe=config.tune.observe,
    )


def _report(config: RunConfig, directory: RunDirectory, recorder: Recorder, reporter: terminal.Quiet) -> None:
    reporter.close()
    result = summarise(recorder.events)
    try:
        directory.write_result(result)
    except RunDirectoryError as error:
        reporter.say([f"warning: {error}"])
    untuned = result.device is None  # which was said when it began
    told = [] if untuned else summary_report.lines(result, reporter.width)
    reporter.say([*told, f"run directory: {directory.path}"])
    if config.json:
        with suppress(OSError):
            print(json.dumps(to_json_dict(result), allow_nan=False), flush=True)
