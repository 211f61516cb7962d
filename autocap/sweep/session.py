"""A sweep from its options to its report: the plan, the run directory, the runs, and what they came to.

An interrupted sweep goes on in its run directory, provided that its plan is still the same.
"""

import logging
import shlex
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from autocap import __version__, devices, events
from autocap.clock import Clock
from autocap.config import TuneConfig
from autocap.config.sweep import COOL_DOWN_SECONDS, SweepConfig
from autocap.devices.base import Tunable
from autocap.errors import AutocapError, DeviceError, RunDirectoryError, SweepStopped
from autocap.events import Event, record_kind
from autocap.events.sweep import GpuSet, SweepPlan
from autocap.job.keeper import user_behind_sudo
from autocap.job.signals import SignalClock
from autocap.records import GpuInfo
from autocap.reports import text
from autocap.reports.live.terminal import PlainLines, Reporter
from autocap.runlog.directory import SWEEP, RunDirectory
from autocap.runlog.event_log import read_events
from autocap.session.output import hand_out, node_metered, tell_of_settings
from autocap.session.preparing import found_command, open_node_power, settle_leftovers, tell_of_command
from autocap.session.recorder import Recorder
from autocap.session.search_space import cap_grid, checker, common_range, limits_found
from autocap.sweep.document import present_sweep
from autocap.sweep.running import LOOK_EVERY_S, Running, required_way
from autocap.sweep.schedule import Schedule, default_step_w, differences
from autocap.sweep.summary import finished_runs, last_start, summarise, to_csv

MOST_RUNS = 20_000


def planned(config: SweepConfig, clock: Clock, stack: ExitStack) -> tuple[SweepPlan, dict[str, Tunable]]:
    """Look at the devices, and plan; nothing is set.

    Also returns the devices of each set by its label, open until the stack closes; a set is not there where only the
    command makes its devices. Raises AutocapError for what cannot be done on them.
    """
    sets: list[GpuSet] = []
    ahead: dict[str, Tunable] = {}
    emulated = False
    for names in config.gpu_sets or (None,):
        finder = stack.enter_context(devices.open_source(config.run_on(names), clock, checker(config.run.tune)))
        opened = finder.ahead()
        device = opened or finder.known
        if device is None:
            raise DeviceError(
                "which of the GPUs here the command uses shows only once it runs, and its caps are set before that; "
                "pass --gpus, or set CUDA_VISIBLE_DEVICES"
            )
        gpus = device.gpus
        if opened is not None:
            stack.enter_context(closing(opened))
            gpus = _settable(config, opened)
        one = gpu_set(config.run.tune, gpus, limits_found(device))
        sets.append(one)
        emulated = emulated or device.emulated
        if opened is not None:
            ahead[one.label] = opened
    label, times = Counter(one.label for one in sets).most_common(1)[0]
    if times > 1:
        raise DeviceError(f"--gpus names GPU {label} as a set {times} times; give each set once")
    runs = config.repeats * sum(len(one.caps_w) for one in sets)
    if runs > MOST_RUNS:
        raise DeviceError(
            f"these are {runs} runs of the command, and a sweep has at most {MOST_RUNS}; pass a larger --cap-step, or "
            "fewer --repeats"
        )
    cool_down_s = config.cool_down_s
    if cool_down_s is None:
        cool_down_s = 0.0 if emulated else COOL_DOWN_SECONDS
    plan = SweepPlan(
        command=config.run.command,
        name=config.name,
        device=config.run.device,
        emulated=emulated,
        sets=tuple(sets),
        repeats=config.repeats,
        order=config.order,
        seed=config.seed,
        discard=config.discard,
        cool_down_s=cool_down_s,
        stop_slowdown=config.stop_slowdown,
        node_power=config.run.node_power,
    )
    return plan, ahead


def _settable(config: SweepConfig, device: Tunable) -> tuple[GpuInfo, ...]:
    """The devices, with the caps that may be set there. Raises DeviceError where none may be, and one is to be."""
    if config.run.tune.observe:
        return device.gpus
    if device.refusal is not None:
        raise DeviceError(device.refusal)
    return required_way(config, device).gpus


def observed(plan: SweepPlan) -> SweepPlan:
    """What is left of a plan when nothing may be set: the runs at the limit found on arrival."""
    sets = tuple(replace(one, caps_w=(one.baseline_w,)) for one in plan.sets)
    return replace(plan, sets=sets, observe=True)


def gpu_set(tune: TuneConfig, gpus: Sequence[GpuInfo], original_w: Sequence[float]) -> GpuSet:
    """The caps of one set, with the limit found on arrival among them: what they are compared with."""
    allowed = common_range(gpus)
    baseline_w = min(max(min(original_w), allowed.min_w), allowed.max_w)
    low_w, high_w = tune.min_cap_w or allowed.min_w, tune.max_cap_w or baseline_w
    stepped = replace(tune, step_w=tune.step_w or default_step_w(low_w, high_w))
    caps_w = {*cap_grid(stepped, gpus, original_w), baseline_w}
    return GpuSet(
        label=",".join(str(gpu.index) for gpu in gpus),
        gpus=tuple(gpus),
        baseline_w=baseline_w,
        caps_w=tuple(sorted(caps_w, reverse=True)),
    )


_COMPLETE = "every run is done"
log = logging.getLogger(__name__)


def sweep(config: SweepConfig, clock: SignalClock) -> int:
    """Run the command under every cap, as often as asked for, and report; 0 when every run is done.

    Raises AutocapError for what is wrong before the first run, and SweepStopped where runs are left.
    """
    observe = config.run.tune.observe
    started = datetime.now().astimezone()
    with ExitStack() as stack:
        user = user_behind_sudo()
        with clock.preparing():
            notes = settle_leftovers(observe=observe)  # before the limits found on arrival are read
            whole_plan, devices = planned(config, clock, stack)
            plan = observed(whole_plan) if observe else whole_plan
            command = found_command(config.run, clock, user)
            node = open_node_power(config.run, clock, stack)
        directory, earlier = _directory(config, plan, started)
        stack.enter_context(directory)
        reporter = Reporter() if config.run.quiet else PlainLines(sys.stderr)
        recorder = Recorder(directory, reporter)
        recorder.events.extend(earlier)
        schedule = Schedule(plan, finished_runs(earlier))
        recorder.event(
            events.SweepStarted(
                t_s=clock.now(),
                autocap_version=__version__,
                started_at=started.isoformat(timespec="seconds"),
                metric=events.MetricInfo.of(config.run.tune.metric),
                plan=plan,
                runs_left=schedule.left,
            )
        )
        tell_of_settings(config.run, recorder, clock.now())
        tell_of_command(config.run, command, recorder, clock.now())
        if node is not None:
            recorder.event(node_metered(node, config.run, clock.now()))
        for note in notes:
            recorder.warn(clock.now(), note)
        if observe:
            caps_w = sorted({cap_w for one in whole_plan.sets for cap_w in one.caps_w}, reverse=True)
            recorder.event(events.WouldTry(t_s=clock.now(), settings=tuple(caps_w)))
        running = Running(config=config, plan=plan, command=command, clock=clock, recorder=recorder, node=node)
        try:
            why_not_all = _run_all(running, schedule, devices, directory)
        except AutocapError as error:
            if not finished_runs(recorder.events):  # not one run could be started, so there is nothing to keep
                directory.discard()
                raise
            why_not_all = str(error)
        if node is not None:  # by now its refresh period is known
            recorder.event(node_metered(node, config.run, clock.now()))
        recorder.event(events.RunEnded(t_s=clock.now(), ended_because=why_not_all or _COMPLETE))
        _report(config, directory, recorder, reporter, clock.now())
    if why_not_all is not None:
        raise SweepStopped(
            f"{why_not_all}; runs left: {schedule.left}; to go on, give the same options and "
            f"--out {shlex.quote(str(directory.path))}"
        )
    return 0


def _directory(config: SweepConfig, plan: SweepPlan, started: datetime) -> tuple[RunDirectory, list[Event]]:
    """The run directory, and the events of the interrupted sweep that goes on in it, if one does.

    Raises RunDirectoryError where it holds a run, a sweep that is complete, or one of another plan.
    """
    out = config.run.out
    if out is not None and not config.run.force:
        earlier = _interrupted(out)
        if earlier:
            before = last_start(earlier).plan
            changed = differences(before, plan)
            if changed:
                raise RunDirectoryError(
                    f"{out} holds an unfinished sweep with another plan: {'; '.join(changed)}; give its options to go "
                    "on, choose another --out, or start over with --force"
                )
            return RunDirectory.reopen(out), earlier
    return RunDirectory.create(out, config.run.force, started, samples=False), []


def _interrupted(out: Path) -> list[Event]:
    """The events of a sweep in a directory that is not complete; none where there is no such sweep."""
    try:
        earlier = read_events(out, log.debug)
    except AutocapError:
        return []
    if record_kind(earlier) != "sweep":
        return []
    return earlier if summarise(earlier).runs_left else []


def _run_all(
    running: Running, schedule: Schedule, devices: Mapping[str, Tunable], directory: RunDirectory
) -> str | None:
    """Run what the schedule says until nothing is left, or something keeps us from it: the reason then."""
    recorder, sets = running.recorder, {one.label: one for one in running.plan.sets}
    pause_s = 0.0 if running.node is None else LOOK_EVERY_S  # rapl has no reading at once
    while (run := schedule.next()) is not None:
        running.rest(run, devices.get(run.gpus), pause_s)
        if running.ended_by is not None:
            return f"{running.ended_by} ended the sweep"
        finished = running.run(run, sets[run.gpus], devices.get(run.gpus))
        schedule.add(finished)
        recorder.event(events.SweepRunEnded(t_s=running.clock.now(), finished=finished))
        recorder.record(running.clock.now(), lambda: directory.put(SWEEP, to_csv(summarise(recorder.events))))
        if running.ended_by is None and schedule.hopeless is not None:
            return schedule.hopeless
        pause_s = running.plan.cool_down_s
    return None


def _report(config: SweepConfig, directory: RunDirectory, recorder: Recorder, reporter: Reporter, t_s: float) -> None:
    report = present_sweep(recorder.events)
    recorder.record(t_s, lambda: directory.put_result(report.result))
    reporter.close()
    lines = text.lines(report.document, reporter.width, reporter.encoding)
    hand_out(directory, recorder, report, lines, reporter, config.run, shared=True)
