"""Runs, attaches and tuned blocks: joins a job, its devices, its search and its record, and reports what came of it.

Everything that can be refused is refused before a child starts. Once it runs, no fault of ours ends it or changes
its status: it goes on untuned, and the report says why. A job that is attached to was not started by us: there a
fault that keeps us from tuning is an error.
"""

import math
import os
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from enum import Enum

from autocap import events
from autocap.config import RunConfig
from autocap.devices.base import DeviceSource, Tunable
from autocap.errors import AutocapError, DeviceError, DeviceUnavailable, EngineUnavailable
from autocap.job import child as child_job
from autocap.job.attached import FollowedJob
from autocap.job.child import ChildJob
from autocap.job.command_path import JobCommand
from autocap.job.keeper import user_behind_sudo
from autocap.job.signals import EndedBySignal, SignalClock, deaf
from autocap.knobs import known
from autocap.limits.background_call import BackgroundCall
from autocap.progress.counting import Counting
from autocap.session.backend import Backend
from autocap.session.inbox import SignalInbox
from autocap.session.output import RunOutput
from autocap.session.preparing import found_command, open_prices, tell_of_command
from autocap.session.roles import Follower
from autocap.session.search_space import checker, require_turnable
from autocap.session.tuning import SearchPlan, Tuning
from autocap.session.warm_start import JobMemory, warm_start
from autocap.strategies import registry

_OPENED_WITHIN_S = 60.0  # a driver that was not loaded takes seconds; one that hangs keeps no job from its start


class JobOrigin(Enum):
    """Where the job comes from; the value is what the run log calls it."""

    RUN = "run"  # we start it
    ATTACH = "attach"  # it runs already
    TUNE = "tune"  # it runs already, and asked for it


def run(config: RunConfig, clock: SignalClock, place: Backend | None = None, follower: Follower | None = None) -> int:
    """Start the command, tune it while it runs, report; the child's exit status. place: `None` for this machine.

    Raises AutocapError for what is wrong before the child runs.
    """
    return _session(config, clock, JobOrigin.RUN, place or Backend(), follower)


def attach(config: RunConfig, clock: SignalClock, place: Backend) -> int:
    """Tune a job that runs already until it ends or a signal ends us; 0.

    Raises AutocapError where it cannot be tuned (or, under --observe, measured).
    """
    _session(config, clock, JobOrigin.ATTACH, place)
    return 0


def inside(config: RunConfig, clock: SignalClock, place: Backend) -> int:
    """Tune the process that asked for it (`autocap.tune`), once it uses a device, until it ends or asks no more; 0.

    Raises AutocapError for what has nothing to do with the device; where that cannot be tuned, the job runs untuned.
    """
    _session(config, clock, JobOrigin.TUNE, place)
    return 0


def _session(
    config: RunConfig, clock: SignalClock, origin: JobOrigin, place: Backend, follower: Follower | None = None
) -> int:
    with ExitStack() as stack:
        user = user_behind_sudo()
        with clock.preparing():
            plan = _plan(config)
            attached = None if origin is JobOrigin.RUN else place.job(stack)
            if attached is not None:
                config = replace(config, command=attached.command)
            if plan.warm_start is not None:
                plan.warm_start.require_command(config.command)
            command = JobCommand(argv=config.command)
            if attached is None:
                command = found_command(config, clock, user)
            source, why_not = _source_or_why(config, clock, plan, origin, place, stack)
            if source is not None:
                place.require(config)
            notes = place.leftovers(observe=config.tune.observe)
            device = None
            if attached is not None and source is not None and origin is JobOrigin.ATTACH:
                device = _device_now(source, attached, stack)
            node = None if source is None else place.node(config, clock, stack)
            prices = None if source is None else open_prices(config, clock, stack)
            memory = None
            if config.memory and source is not None and (attached is None or place.remembers):
                memory = JobMemory.of(config.command, None if attached is None else attached.pid, user)
            if plan.warm_start is not None and source is not None:
                plan.warm_start.require_node(None if node is None else node.name)
        progress = "none" if source is None else config.progress
        ours = origin is not JobOrigin.ATTACH
        counting = stack.enter_context(place.counting(progress, ours=ours, step_map_fd=config.step_map_fd))
        if attached is not None:
            counting.follow(attached.identity)
        output = stack.enter_context(RunOutput(config, clock, node))
        try:
            clock.end_if_asked()
        except EndedBySignal:
            output.directory.discard()
            raise
        job = attached or _start(command, clock, output, counting)
        if attached is None:
            counting.follow(job.identity)
        recorder = output.begin(plan, origin.value, job.pid, notes, follower)
        tell_of_command(config, command, recorder, clock.now())
        inbox = SignalInbox(job, recorder, config.kill_after_s, follower)
        tuning = Tuning(
            config=config,
            clock=clock,
            job=job,
            inbox=inbox,
            recorder=recorder,
            plan=plan,
            counting=counting,
            node=node,
            memory=memory,
            prices=prices,
            place=place,
        )
        if source is None:
            status = tuning.untuned(why_not)
        elif device is None:
            status = tuning.tuned(source)
        else:
            try:
                status = tuning.tune(device)
            except AutocapError:  # it never began
                output.directory.discard()
                raise
        ended_s = clock.now()
        counting.drain(clock)
        if follower is not None:
            follower.finish(ended_s, status, signalled=inbox.signalled)
        tuning.remember()
        if attached is None:
            ended = None if follower is None else follower.ended_because
            output.end(ended or tuning.ended_because, status)
        elif origin is JobOrigin.TUNE and attached.left_because is not None:
            nothing_before = tuning.ended_because in (events.JOB_ENDED, events.ASKED)
            output.end(events.BLOCK_ENDED if nothing_before else tuning.ended_because)
        else:
            output.end(attached.left_because or tuning.ended_because)
    return status


def _plan(config: RunConfig) -> SearchPlan:
    factory = registry.find(config.strategy)
    return SearchPlan(
        factory=factory,
        options=registry.option_values(factory, config.strategy_options, known(config.tune.knob)),
        warm_start=None if config.warm_start is None else warm_start(config.warm_start),
    )


def _source_or_why(
    config: RunConfig,
    clock: SignalClock,
    plan: SearchPlan,
    origin: JobOrigin,
    place: Backend,
    stack: ExitStack,
) -> tuple[DeviceSource | None, str]:
    """The source of devices, open until the stack closes; where there is none that can be used, the reason, also where
    agents cannot be started on the nodes of a job that is to be started.

    Raises DeviceError for that where the job is not there yet and --device is not auto, and where nothing but tuning is
    to be done.
    """
    owner_uid = None if origin is JobOrigin.RUN else os.geteuid()
    try:
        found = _opened(place, lambda: place.source(config, clock, checker(config.tune, plan.required_w), owner_uid))
    except EngineUnavailable as error:
        if origin is JobOrigin.ATTACH:
            raise
        return None, str(error)
    except DeviceError as error:
        none_there = config.device == "auto" and isinstance(error, DeviceUnavailable)
        if origin is JobOrigin.ATTACH or (origin is JobOrigin.RUN and not none_there):
            raise
        return None, f"no device to tune: {error}"
    stack.enter_context(found)
    if found.known is not None:
        require_turnable(config, plan.factory, found.known)
    if origin is JobOrigin.RUN and plan.warm_start is not None and found.known is not None:
        plan.warm_start.require_device(found.known, as_shares=plan.takes_shares)
    return found, ""


def _opened(place: Backend, open_source: Callable[[], DeviceSource]) -> DeviceSource:
    """Raises what that raises, and DeviceUnavailable where a driver does not answer: no job waits for it."""
    if not place.attends:
        return open_source()
    aside = BackgroundCall[DeviceSource]()
    with deaf():
        aside.begin(open_source)
    if not aside.is_done(_OPENED_WITHIN_S):
        raise DeviceUnavailable(f"the driver has not answered for {_OPENED_WITHIN_S:g} s")
    found = aside.take()
    aside.end()
    return found


def _device_now(source: DeviceSource, job: FollowedJob, stack: ExitStack) -> Tunable:
    """The devices that a job uses at this moment, open until the stack closes. Raises DeviceError for none."""
    device = source.find(job.identity, math.inf)
    if device is None:
        raise DeviceError(
            f"process {job.pid} and its descendants use no GPU; attach once the job computes on one, or pass --gpus"
        )
    stack.callback(device.close)
    return device


def _start(command: JobCommand, clock: SignalClock, output: RunOutput, counting: Counting) -> ChildJob:
    try:
        with clock.lifted(), counting.child_stdout() as stdout:
            return child_job.start(command.argv, command.environment(counting.environment(os.environ)), stdout)
    except AutocapError:
        output.directory.discard()
        raise
