"""Where a run is recorded and shown: its directory, the terminal, the exporter, and the report at the end."""

import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from datetime import datetime

from autocap import __version__, events
from autocap.clock import Clock
from autocap.config import RunConfig
from autocap.devices.base import PowerSource
from autocap.errors import ExporterError, RunDirectoryError, TrackerUnavailable
from autocap.events import MetricInfo, OptionValue
from autocap.reports import rendering, text
from autocap.reports.live import terminal
from autocap.reports.live.terminal import Reporter
from autocap.reports.rendering import Presentation
from autocap.runlog.directory import REPORT, RunDirectory
from autocap.session.recorder import Recorder
from autocap.session.roles import Follower, trackers
from autocap.session.tuning import SearchPlan
from autocap.text import put_json


class RunOutput:
    """Opened before the job starts, so that what cannot be written or served is refused by then. A context manager."""

    def __init__(self, config: RunConfig, clock: Clock, node: PowerSource | None = None) -> None:
        """node: of the machine's power, where that counts. Raises ExporterError, TrackerUnavailable and
        RunDirectoryError."""
        self._config, self._clock, self._node = config, clock, node
        self._stack = ExitStack()
        self._started = datetime.now().astimezone()
        self._logs = trackers(config.log_to)
        with ExitStack() as opened:
            self._exporters = _exporters(config, opened)
            self.directory = opened.enter_context(RunDirectory.create(config.out, config.force, self._started))
            self._stack = opened.pop_all()
        self._reporter = Reporter()
        self._trackers: list[Reporter] = []

    def __enter__(self) -> "RunOutput":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def begin(
        self, plan: SearchPlan, mode: str, pid: int, notes: Sequence[str], follower: Follower | None = None
    ) -> Recorder:
        """The first entries, now that the job is there. notes: what is to be warned of at once. follower: of the run,
        where there is one."""
        self._reporter = terminal.for_stream(sys.stderr, quiet=self._config.quiet)
        self._stack.callback(self._reporter.close)
        self._mode = mode
        unlogged = self._start_trackers()
        followers = () if follower is None else (follower.reporter,)
        self._recorder = Recorder(self.directory, self._reporter, *self._exporters, *self._trackers, *followers)
        self._recorder.event(self._run_started(plan, mode, pid))
        tell_of_settings(self._config, self._recorder, self._clock.now())
        self._tell_of_node()
        for note in (*notes, *unlogged):
            self._recorder.warn(self._clock.now(), note)
        if follower is not None:
            follower.begin(self._recorder, self._clock.now(), self.directory.path)
        return self._recorder

    def end(self, ended_because: str, exit_status: int | None = None) -> None:
        """The last entry, and the report."""
        self._tell_of_node()  # by now its refresh period is known
        t_s = self._clock.now()
        self._recorder.event(events.RunEnded(t_s=t_s, ended_because=ended_because, exit_status=exit_status))
        self._reporter.close()
        try:
            self._report()
        except Exception as error:  # noqa: BLE001 - the job has its exit status by now
            self._reporter.say([f"warning: there is no report: {self._recorder.reason(error)}"])
        if self._logs is not None:
            self._reporter.say([f"warning: {trouble}" for trouble in self._logs.await_end(self._trackers)])

    def _start_trackers(self) -> list[str]:
        """Sentences on those that cannot be started: the job runs by now."""
        unlogged: list[str] = []
        if self._logs is None:
            return unlogged
        for name in dict.fromkeys(self._config.log_to):
            try:
                tracker = self._logs.start(name, self.directory.path)
            except TrackerUnavailable as error:
                unlogged.append(str(error))
                continue
            self._stack.callback(tracker.close)
            self._trackers.append(tracker)
        return unlogged

    def _report(self) -> None:
        report = rendering.present_run(self.directory.path, self._recorder.events)
        try:
            self.directory.put_result(report.result)
            self.directory.finish()  # so that the page shows the last samples as well
        except RunDirectoryError as error:
            self._reporter.say([f"warning: {error}"])
        tuned = any(isinstance(event, events.DeviceFound) for event in self._recorder.events)
        shown = self._reporter
        # Why it was not was said when it began.
        lines = text.lines(report.document, shown.width, shown.encoding) if tuned else []
        hand_out(self.directory, self._recorder, report, lines, shown, self._config, shared=self._mode == "run")

    def _tell_of_node(self) -> None:
        if self._node is not None:
            self._recorder.event(node_metered(self._node, self._config, self._clock.now()))

    def _run_started(self, plan: SearchPlan, mode: str, pid: int) -> events.RunStarted:
        return events.RunStarted(
            t_s=0.0,
            autocap_version=__version__,
            mode=mode,
            command=self._config.command,
            pid=pid,
            started_at=self._started.isoformat(timespec="seconds"),
            metric=MetricInfo.of(self._config.tune.metric),
            strategy=self._config.strategy,
            strategy_options=tuple(OptionValue(name=name, value=value) for name, value in plan.options.items()),
            observe=self._config.tune.observe,
            rates=self._config.rates,
        )


def tell_of_settings(config: RunConfig, recorder: Recorder, t_s: float) -> None:
    """Which settings the command line did not give."""
    if config.taken:
        recorder.event(events.SettingsTaken(t_s=t_s, settings=config.taken))


def node_metered(node: PowerSource, config: RunConfig, t_s: float) -> events.NodeMetered:
    """What is known of the source of the machine's power, and of the machine at rest."""
    return events.NodeMetered(
        t_s=t_s,
        source=node.name,
        whole=node.whole,
        refresh_s=node.refresh_s,
        idle_w=config.idle_w,
        standard_idle_w=config.standard_idle_w,
    )


def hand_out(
    directory: RunDirectory,
    recorder: Recorder,
    report: Presentation,
    lines: Sequence[str],
    reporter: Reporter,
    config: RunConfig,
    *,
    shared: bool = False,
) -> None:
    """What whoever ran it gets at the end: the page, the text, and the result on stdout where that was asked for.

    lines: the text; it may be empty. shared: the job has that stdout too.
    """
    try:
        directory.put(REPORT, report.page)
    except RunDirectoryError as error:
        reporter.say([f"warning: {error}"])
    except Exception as error:  # noqa: BLE001 - the run is over, and has its exit status
        reporter.say([f"warning: {REPORT} could not be made: {recorder.reason(error)}"])
    reporter.say([*lines, f"run directory: {directory.path}"])
    if config.json:
        with suppress(OSError):
            put_json(report.result, shared=shared)


def _exporters(config: RunConfig, stack: ExitStack) -> list[Reporter]:
    """The exporter that was asked for, listening. Raises ExporterError."""
    if config.prometheus is None:
        return []
    try:
        from autocap.reports.prometheus.exporter import Exporter
    except ImportError as error:  # what the client itself may lack is named
        raise ExporterError(
            f"--prometheus needs the package prometheus-client ({error}); install it with: "
            "pip install prometheus-client"
        ) from error
    exporter = Exporter.start(*config.prometheus)
    stack.callback(exporter.close)
    return [exporter]
