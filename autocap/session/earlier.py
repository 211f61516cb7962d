"""What earlier runs have shown, as a new one begins from it: the run that --warm-start names, or those that are
remembered of its job.

Their trials reach the strategy as history. It verifies them against its own first trial, and starts over where they no
longer hold.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from autocap.devices.base import Device
from autocap.errors import WarmStartRefused
from autocap.events import (
    BaselineMeasured,
    Decided,
    DeviceFound,
    Event,
    MetricInfo,
    NodeMetered,
    ProgressFound,
    RunStarted,
    State,
    StateEntered,
    TrialEnded,
)
from autocap.events.settled import settled
from autocap.knobs import POWER_LIMIT, Knob
from autocap.measurement.batches import as_at
from autocap.metrics import Metric
from autocap.records import Measurement, Trial, TrialState, same_limits
from autocap.runlog.event_log import read_events
from autocap.runlog.memory.entry import Curve, Point
from autocap.strategies.grid import CapGrid

log = logging.getLogger(__name__)
_SURE = 2.0  # standard errors, as for a cap that is confirmed
_OF_A_SEARCH = (State.SEARCHING, State.CONFIRMING, State.HOLDING)  # in which a baseline is only looked at again


@dataclass(frozen=True, slots=True, kw_only=True)
class Earlier:
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


NOTHING = Earlier()


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
    `None` where energy was the devices' own. knob: that was turned.
    """

    path: Path
    command: tuple[str, ...]
    gpus: tuple[str, ...]
    driver: str | None
    earlier: Earlier
    node: str | None = None
    knob: Knob = POWER_LIMIT

    def require_command(self, command: tuple[str, ...]) -> None:
        """Raises WarmStartRefused where that is another command than the earlier run's."""
        if command != self.command:
            self._refuse("command", " ".join(self.command), " ".join(command))

    def require_device(self, device: Device) -> None:
        """Raises WarmStartRefused where the devices are of another model, or the driver of another branch."""
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
        earlier=Earlier(curves=(curve,)),
        node=metered.source if metered else None,
        knob=found.knob if found else POWER_LIMIT,
    )


def branch(driver: str | None) -> str | None:
    """What two driver versions must share: "550" of "550.54.15"."""
    return None if driver is None else driver.split(".", maxsplit=1)[0]
