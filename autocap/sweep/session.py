"""A sweep from its options to its report: the plan, the run directory, the runs, and what they came to.

An interrupted sweep goes on in its run directory, provided that its plan is still the same.
"""

import logging
import shlex
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path

from autocap import __version__, events
from autocap.config.sweep import SweepConfig
from autocap.devices.base import Tunable
from autocap.errors import AutocapError, RunDirectoryError, SweepStopped
from autocap.events import Event, record_kind
from autocap.events.sweep import SweepPlan
from autocap.job.keeper import user_behind_sudo
from autocap.job.signals import SignalClock
from autocap.reports import text
from autocap.reports.live.plain import PlainLines, Reporter
from autocap.runlog.directory import SWEEP, RunDirectory
from autocap.runlog.event_log import read_events
from autocap.session.output import hand_out, node_metered, tell_of_settings
from autocap.session.preparing import found_command, open_node_power, settle_leftovers, tell_of_command
from autocap.session.recorder import Recorder
from autocap.sweep.document import present_sweep
from autocap.sweep.plan import observed, planned
from autocap.sweep.running import LOOK_EVERY_S, Running
from autocap.sweep.schedule import Schedule, differences
from autocap.sweep.summary import finished_runs, last_start, summarise, to_csv

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
