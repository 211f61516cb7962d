"""What earlier runs have shown, as a new one begins from it: the run that --warm-start names, or those that are
remembered of its job, which are looked up once its devices are known, and kept when it has ended.

Their trials reach the strategy as history. It verifies them against its own first trial, and starts over where they no
longer hold. What cannot be read counts as not there, what cannot be kept is a warning: nothing of it stops a run."""

import logging
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from autocap import __version__
from autocap.devices.base import Device
from autocap.errors import WarmStartRefused
from autocap.events import (
    ASKED,
    JOB_ENDED,
    BaselineMeasured,
    Decided,
    DeviceFound,
    Event,
    MetricInfo,
    NodeMetered,
    ProgressFound,
    Remembered,
    RunStarted,
    State,
    StateEntered,
    Tally,
    TrialEnded,
)
from autocap.events.settled import settled
from autocap.job.invoking_user import InvokingUser
from autocap.knobs import POWER_LIMIT, Knob
from autocap.measurement.batches import as_at
from autocap.metrics import Metric
from autocap.records import Measurement, RelativeCurve, SensorInfo, Trial, TrialState, same_limits
from autocap.runlog.event_log import read_events
from autocap.runlog.memory.card import relative
from autocap.runlog.memory.job import Job
from autocap.runlog.memory.store import (
    FORMAT,
    Curve,
    Entry,
    MemoryStore,
    Point,
    Setup,
    default_place,
    key_of,
    shortened,
    with_curve,
    work_of,
)
from autocap.session.card_memory import NOWHERE, Elsewhere, OnCards
from autocap.strategies.grid import CapGrid

log = logging.getLogger(__name__)
_SURE = 2.0  # standard errors, as for a cap that is confirmed
_OF_A_SEARCH = (State.SEARCHING, State.CONFIRMING, State.HOLDING)  # in which a baseline is only looked at again


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStartData:
    """Curves to begin from, oldest first; perhaps none."""

    curves: tuple[Curve, ...] = ()

    def history(self, metric: Metric, progress: str, arrival_w: Sequence[float]) -> tuple[Trial, ...]:
        """As trials of one run, with their costs by that metric: a baseline, and of each cap what was measured last.

        progress: where this run's iterations come from; what was counted otherwise is left out. arrival_w: the limits
        found on arrival; curves that began at the same ones come before others.
        """
        joined = _joined([curve for curve in self.curves if curve.progress == progress], arrival_w)
        if joined is None:
            return ()
        baseline, points = joined
        return (
            _trial(min(baseline.setting), baseline, metric, baseline),
            *(_trial(point.setting, point.measurement, metric, baseline) for point in points),
        )

    def best_w(self, metric: Metric, grid: CapGrid, arrival_w: Sequence[float]) -> float | None:
        """The cap, watts, that this run had best begin at: on its grid, better than the limits found on arrival by its
        own metric beyond the error, and within its limit on slowdown; `None` where none is, or none is known of those
        limits.

        Where runs had the same metric, it is the cap that the last of them kept.
        """
        if not self.curves or not self.curves[-1].holds:
            return None
        latest = self.curves[-1]
        joined = _joined([curve for curve in self.curves if curve.progress == latest.progress], arrival_w)
        if joined is None or not same_limits(joined[0].setting, arrival_w):
            return None
        baseline, points = joined
        costs = {
            point.setting: cost.value
            for point in points
            for cost in (metric.versus(point.measurement, baseline),)
            if point.setting in grid and cost.value + _SURE * cost.stderr + cost.shared < 1
            if metric.allows(point.measurement, baseline)
        }
        alike = [one.kept_w for one in self.curves if one.metric == MetricInfo.of(metric) and not one.cut_short]
        if alike and (alike[-1] is None or alike[-1] in grid):
            return alike[-1] if alike[-1] in costs else None
        return min(costs, key=lambda setting: costs[setting], default=None)

    def job_iterations(self, progress: str) -> float | None:
        """How many the whole job had when it last ran to its end, as that counts them; `None` where nobody knows."""
        alike = [one.job_iterations for one in self.curves if one.progress == progress]
        return next((iterations for iterations in reversed(alike) if iterations is not None), None)


NOTHING = WarmStartData()


def _joined(curves: Sequence[Curve], arrival_w: Sequence[float]) -> tuple[Measurement, tuple[Point, ...]] | None:
    """One curve from several that began at the same limits, those found on arrival if there are any: the latest
    baseline, and what caps would have shown beside it, oldest first."""
    of_arrival = [curve for curve in curves if same_limits(curve.baseline.setting, arrival_w)]
    wanted = of_arrival or [
        curve for curve in curves if same_limits(curve.baseline.setting, curves[-1].baseline.setting)
    ]
    if not wanted:
        return None
    baseline, points = wanted[-1].baseline, dict[float, Point]()
    for curve in wanted:
        for point in curve.points:
            points.pop(point.setting, None)  # so that it stands where it was measured last
            points[point.setting] = replace(point, measurement=as_at(point.measurement, curve.baseline, baseline))
    return baseline, tuple(points.values())


def _trial(setting: float, measurement: Measurement, metric: Metric, baseline: Measurement) -> Trial:
    cost = metric.cost(measurement, baseline)
    error = 0.0 if measurement is baseline else cost.stderr
    return Trial(
        setting=setting, state=TrialState.COMPLETE, cost=cost.value, cost_stderr=error, measurement=measurement
    )


def curve_of(events: Sequence[Event]) -> Curve | None:
    """What the last search of a run has shown that came to a decision, or else the last; `None` where no baseline was
    measured.

    The last baseline and the trials beside it count as at the first baseline of the search; what a kept cap has shown
    in its confirmation comes after its trial.
    """
    searches = list(_searches(settled(events)))
    decided = [search for search in searches if search.decided]
    if not searches:
        return None
    last = decided[-1] if decided else searches[-1]
    return replace(last.curve, holds=last is searches[-1] and last.curve.holds)


@dataclass(slots=True, kw_only=True)
class _Search:
    """One search as it is read from a log. beside: the baseline that was measured last."""

    curve: Curve
    beside: Measurement
    decided: bool = False

    def add(self, setting: float, measurement: Measurement, beside: Measurement) -> None:
        if not measurement.valid:
            return
        point = Point(setting=setting, measurement=as_at(measurement, beside, self.curve.baseline))
        others = (one for one in self.curve.points if one.setting != setting)
        self.curve = replace(self.curve, points=(*others, point))

    def decide(self, event: Decided) -> None:
        self.decided = True
        common = event.setting is not None and event.confirmed
        self.curve = replace(self.curve, kept_w=event.setting if common else None, cut_short=event.cut_short)
        shown = event.measurement
        if common and event.setting is not None and shown and event.baseline and len(set(shown.setting)) == 1:
            self.add(event.setting, shown, event.baseline)


def _searches(events: Sequence[Event]) -> Iterator[_Search]:
    """Each search, as it stands at the end of the log."""
    started_at, metric, progress = "", MetricInfo(name=""), ""
    state, before_pause = None, None
    search: _Search | None = None
    for event in events:
        match event:
            case RunStarted():
                started_at, metric = _in_utc(event.started_at), event.metric
            case ProgressFound(kind=kind):
                progress = kind
            case StateEntered(state=State.PAUSED):
                before_pause = before_pause or state
            case StateEntered(state=entered):
                anew = entered in (State.WAITING, State.BASELINE) and entered is not before_pause
                state, before_pause = entered, None
                if anew and search is not None:  # what it kept is held no more
                    search.curve = replace(search.curve, holds=False)
            case BaselineMeasured(measurement=baseline) if baseline.valid and search and state in _OF_A_SEARCH:
                search.beside = baseline
            case BaselineMeasured(measurement=baseline) if baseline.valid:
                if search is not None:
                    yield search
                curve = Curve(measured_at=started_at, metric=metric, progress=progress, baseline=baseline, points=())
                search = _Search(curve=curve, beside=baseline)
            case TrialEnded(trial=trial) if search and trial.state is TrialState.COMPLETE and trial.measurement:
                search.add(trial.setting, trial.measurement, search.beside)
            case Decided() if search:
                search.decide(event)
    if search is not None:
        yield search


def _in_utc(moment: str) -> str:
    try:
        return datetime.fromisoformat(moment).astimezone(UTC).isoformat(timespec="seconds")
    except (ValueError, OverflowError):
        return moment


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """The run that was named to begin from: what it is refused for, and what it gives. gpus: their models, in order.
    driver: its version, `None` where there is none or it was not recorded. node: the source of the machine's power,
    `None` where energy was the devices' own. knob: that was turned. kind: of the devices.
    """

    path: Path
    command: tuple[str, ...]
    gpus: tuple[str, ...]
    driver: str | None
    earlier: WarmStartData
    node: str | None = None
    knob: Knob = POWER_LIMIT
    kind: str = ""

    def require_command(self, command: tuple[str, ...]) -> None:
        """Raises WarmStartRefused where that is another command than the earlier run's."""
        if command != self.command:
            self._refuse("command", " ".join(self.command), " ".join(command))

    def elsewhere(self, device: Device) -> RelativeCurve | None:
        """What it has shown, as shares, where that was on devices of another model; `None` where it was on such, or
        says nothing of others."""
        (curve,) = self.earlier.curves
        if {gpu.name for gpu in device.gpus} == set(self.gpus) or device.kind != self.kind:
            return None
        if curve.baseline.is_relative or not self.knob.is_power_limit:
            return None
        found = relative(curve.baseline, {point.setting: point.measurement for point in curve.points})
        return None if found is None else replace(found, of_job=True)

    def require_device(self, device: Device, *, as_shares: bool = False) -> None:
        """Raises WarmStartRefused where the devices are of another model, or the driver of another branch. as_shares:
        whether the strategy can make use of what was measured on another model."""
        if as_shares and self.elsewhere(device) is not None:
            return
        gpus = tuple(gpu.name for gpu in device.gpus)
        if gpus != self.gpus:
            self._refuse("GPU model", ", ".join(self.gpus), ", ".join(gpus))
        if branch(device.driver) != branch(self.driver):
            self._refuse("driver", str(self.driver), str(device.driver))

    def require_knob(self, knob: Knob) -> None:
        """Raises WarmStartRefused where another one was turned, or had other values."""
        if knob != self.knob:
            self._refuse("knob", self.knob.name, knob.name if knob.name != self.knob.name else "one of other values")

    def require_node(self, node: str | None) -> None:
        """Raises WarmStartRefused where energy was that of another part of the machine, or another meter read it."""
        if node != self.node:
            self._refuse("source of the node's power", str(self.node), str(node))

    def counted_otherwise(self, progress: str) -> str:
        """What to warn of where this run's iterations come from somewhere else."""
        then = self.earlier.curves[-1].progress
        return (
            f"--warm-start {self.path}: iterations were counted by {then or 'nothing known'} and are now counted by "
            f"{progress}, so the search begins from nothing"
        )

    def _refuse(self, what: str, then: str, now: str) -> None:
        raise WarmStartRefused(
            f"--warm-start {self.path}: the {what} was '{then}' and is now '{now}', so its curve says nothing here; "
            "leave the option out"
        )


def warm_start(path: Path) -> WarmStart:
    """The run that a directory holds. Raises RunDirectoryError where there is none, WarmStartRefused where it
    measured nothing."""
    events = read_events(path, log.debug)
    curve = curve_of(events)
    if curve is None:
        raise WarmStartRefused(f"--warm-start {path}: that run measured no cap to the end; leave the option out")
    started = next((event for event in events if isinstance(event, RunStarted)), None)
    found = next((event for event in reversed(events) if isinstance(event, DeviceFound)), None)
    metered = next((event for event in reversed(events) if isinstance(event, NodeMetered)), None)
    return WarmStart(
        path=path,
        command=started.command if started else (),
        gpus=tuple(gpu.name for gpu in found.gpus) if found else (),
        driver=found.driver if found else None,
        earlier=WarmStartData(curves=(curve,)),
        node=metered.source if metered else None,
        knob=found.knob if found else POWER_LIMIT,
        kind=found.kind if found else "",
    )


def branch(driver: str | None) -> str | None:
    """What two driver versions must share: "550" of "550.54.15"."""
    return None if driver is None else driver.split(".", maxsplit=1)[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """What there is of a job. runs: how many have told of it. age_s: seconds since the last of them began."""

    key: str
    runs: int
    age_s: float
    earlier: WarmStartData

    def event(self, t_s: float, setting: float | None) -> Remembered:
        """setting: the best of those that the run may try, as `WarmStartData.best_w` has it."""
        return Remembered(t_s=t_s, key=self.key, runs=self.runs, age_s=self.age_s, setting=setting)


@dataclass(slots=True, kw_only=True)
class JobMemory:
    """The memory of one job. now: when its run began."""

    job: Job
    store: MemoryStore
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    _setup: Setup | None = None
    _sensor: SensorInfo | None = None
    _on_cards: OnCards | None = None

    @classmethod
    def of(cls, command: Sequence[str], pid: int | None, user: InvokingUser | None) -> Self | None:
        """pid: of a job that runs already, `None` for a command that is to be started here. user: the one behind sudo.

        `None` where the user has no place for it, or what the job was started with cannot be read.
        """
        place = default_place(user)
        try:
            job = Job.of(command, os.environ, Path.cwd()) if pid is None else Job.running(pid)
        except OSError:  # the folder is gone
            log.debug("what makes the job cannot be told", exc_info=True)
            return None
        return None if place is None or job is None else cls(job=job, store=MemoryStore(place))

    def recall(self, device: Device, node: str | None, knob: Knob = POWER_LIMIT) -> Recalled | None:
        """What is remembered of the job on these devices; `None` for nothing. node: the source of the machine's
        power. knob: that is turned."""
        gpus = tuple(sorted(gpu.name for gpu in device.gpus))
        self._setup = Setup(
            kind=device.kind,
            emulated=device.emulated,
            gpus=gpus,
            driver=branch(device.driver),
            node=node,
            knob=None if knob.is_power_limit else knob,
        )
        self._sensor = device.sensor
        self._on_cards = OnCards.of(device, self._key, work_of(self.job), self._setup)
        entry = self.store.read(self._key)
        curves = () if entry is None else entry.fresh(self.now)
        if entry is None or not curves or entry.setup.knob != self._setup.knob:
            return None
        self.store.use(self._key)
        age_s = max(0.0, (self.now - curves[-1].when).total_seconds())
        return Recalled(key=self._key, runs=entry.runs, age_s=age_s, earlier=WarmStartData(curves=curves))

    def elsewhere(self) -> Elsewhere:
        """What other jobs have shown on these cards, and this one on others, once it was recalled."""
        return NOWHERE if self._on_cards is None else self._on_cards.elsewhere(self.store)

    def remember(self, events: Sequence[Event], ended_because: str | None = None) -> None:
        """Keep what a run has shown that came to a decision, or whose job ended before; nothing of any other, or of one
        that has only ratios. ended_because: why its tuning ended, `None` where that is not known.

        Raises MemoryUnavailable where it cannot be kept.
        """
        curve = curve_of(events)
        if curve is None or curve.baseline.is_relative or self._setup is None or self._sensor is None:
            return
        if not any(isinstance(event, Decided) for event in events):
            return
        curve = replace(curve, job_iterations=_job_iterations(events, ended_because))
        before = self.store.read(self._key)
        curves = () if before is None else before.fresh(self.now)
        curves_now = with_curve(curves, curve)
        self.store.write(
            Entry(
                format=FORMAT,
                key=self._key,
                autocap_version=__version__,
                command=shortened(self.job.command),
                setup=self._setup,
                sensor=self._sensor,
                runs=before.runs + 1 if before is not None and curves else 1,
                curves=curves_now,
            )
        )
        joined = _joined([one for one in curves_now if one.progress == curve.progress], curve.baseline.setting)
        if self._on_cards is not None and joined is not None:
            self._on_cards.tell(self.store, curve.measured_at, *joined)

    @property
    def _key(self) -> str:
        assert self._setup is not None  # it is looked up before anything is kept
        return key_of(self.job, self._setup)


_UNREAD_S = 10.0  # at the job's end; longer where a driver answered no more
# By the mode of a run: why its tuning ended where it saw the whole job. A tuned block ends its tuning by a signal.
_WHOLE = {"run": (JOB_ENDED,), "tune": (JOB_ENDED, ASKED)}


def _job_iterations(events: Sequence[Event], ended_because: str | None) -> float | None:
    """How many iterations the job had; `None` where it was not seen from its beginning to its end."""
    mode = next((event.mode for event in events if isinstance(event, RunStarted)), "")
    last = next((event for event in reversed(events) if isinstance(event, Tally)), None)
    if last is None or last.iterations <= 0 or ended_because not in _WHOLE.get(mode, ()):
        return None
    is_read = last.t_s - last.since_s - last.elapsed_s <= _UNREAD_S  # until its end
    return last.iterations if is_read else None
