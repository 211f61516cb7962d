"""From a run's events to what is logged of it: numbers by key, and at the end some sentences. A run directory is
followed at a time when nobody waits for it, however long the sink takes.

Keys begin with `autocap/`, and with `autocap/emulated/` where power is modelled, so that no chart shows such a number
as a measured one. Energy and power are those that are measured: the GPUs', or with --node-power the machine's.
"""

import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from pathlib import Path

from autocap import events
from autocap.events import Event, RunStarted, State
from autocap.metrics import ratios
from autocap.plugins.trackers.sink import Result, Row, Setting, Sink
from autocap.records import Measurement, Trial, TrialState
from autocap.reports.live.status import Status
from autocap.reports.summary.record import Changes, Summary, Totals
from autocap.reports.wording import run as wording
from autocap.reports.wording.numbers import with_unit
from autocap.runlog.event_log import EventTail

EVERY_S = 1.0  # so often at most is logged where the run stands
PREFIX, EMULATED = "autocap/", "emulated/"
_CAP = "cap_w"  # what a name ends with that stands for a setting
PHASES = tuple(State)  # a phase is logged as its place in this order
_TOLD = events.StateEntered | events.CapSet | events.Tally | events.LimitRestored


class Rows:
    """What is logged of one run. over: whether its last event has come."""

    def __init__(self) -> None:
        self._status = Status()
        self._t_s, self._began_unix_s = 0.0, 0.0
        self._changed_s: float | None = None  # first since the last `now`
        self._told_of: events.Tally | None = None  # with power and time
        self._trials = 0
        self._baseline: Measurement | None = None  # the latest
        self.over = False

    @property
    def is_known(self) -> bool:
        """Whether it is known by now what is tuned, or that nothing was."""
        return self._status.device is not None or self.over

    @property
    def settings(self) -> dict[str, Setting]:
        """What is tuned, and how. Nothing of the command, which may hold what is no tracker's business."""
        started, device = self._status.started, self._status.device
        found: dict[str, Setting | None] = {}
        if started is not None:
            found |= {
                "version": started.autocap_version,
                "mode": started.mode,
                "metric": started.metric.name,
                "k": started.metric.k,
                "max_slowdown": started.metric.max_slowdown,
                "strategy": started.strategy,
                "observe": started.observe,
            }
        if device is not None:
            found |= {
                "device": device.kind,
                "gpus": ", ".join(gpu.name for gpu in device.gpus),
                "emulated_power": device.emulated,  # a store of files has a folder `emulated`
            }
            highest = max((setting for setting in device.original if setting is not None), default=None)
            if device.knob.is_power_limit:
                found["found_w"] = highest
            else:
                found |= {"knob": device.knob.name, "unit": device.knob.unit}
                found["found_setting"] = None if highest is None else device.knob.bare(highest)
        found["phases"] = ", ".join(f"{place} {phase}" for place, phase in enumerate(PHASES))
        return {f"{PREFIX}{name}": value for name, value in found.items() if value is not None}

    def take(self, event: Event) -> Iterator[Row]:
        """Take in one event, in order; the rows of what has ended with it, and, where it comes a while after the
        others, of where the run stood until then: a log that is read late tells the same as one that is followed."""
        if self._changed_s is not None and event.t_s - self._changed_s >= EVERY_S:
            yield from self.now()
        self._status.event(event)
        self._t_s = event.t_s
        match event:
            case RunStarted(started_at=started_at):
                self._began_unix_s = datetime.fromisoformat(started_at).timestamp()
            case events.BaselineMeasured(measurement=measurement) | events.BaselineRefined(measurement=measurement):
                self._baseline = measurement
                yield self._row(_measured("baseline", measurement, measurement))
            case events.TrialEnded(trial=trial):
                self._trials += 1
                if trial.state is not TrialState.FAILED:  # of that nothing was measured
                    yield self._row(_tried(self._trials, trial, self._baseline))
            case events.TrialWithdrawn(setting=setting):
                yield self._row({"trial/withdrawn_cap_w": setting})
            case events.RunEnded():
                self.over = True
        if isinstance(event, _TOLD) and self._changed_s is None:
            self._changed_s = event.t_s

    def now(self) -> Iterator[Row]:
        """Where the run stands, unless nothing has changed since the last call. Power and time per iteration are means
        between the last two tallies, and are told once each."""
        status = self._status
        if self._changed_s is None or status.state is None:
            return
        self._changed_s = None
        numbers: dict[str, float | None] = {"phase": float(PHASES.index(status.state)), **_caps(status.settings)}
        if status.tally is not self._told_of:
            self._told_of = status.tally
            numbers |= {"power_w": status.total_w}
            if status.by_proxy:
                numbers |= {"low_confidence/time_ratio": status.time_ratio}
            else:
                numbers |= {"time_per_iteration_s": status.period_s}
        yield self._row(numbers)

    @property
    def result(self) -> Result:
        """What the run has come to by now."""
        summary, numbers, words = self._status.summary, dict[str, float | None](), dict[str, str]()
        if summary is not None:
            numbers = _outcome(summary)
            words = {"headline": self._status.headline, "verdict": wording.outcome(summary)}
            words["ended_because"] = summary.ended_because
            if summary.chosen is not None:
                words["kept"] = with_unit(summary.chosen.setting, summary.knob)
        named = {self._key(name): text for name, text in words.items()}
        return Result(row=self._row(numbers), words=named, killed=not self.over)

    def _row(self, numbers: Mapping[str, float | None]) -> Row:
        known = {
            self._key(name): float(value)
            for name, value in map(self._of_knob, numbers, numbers.values())
            if value is not None and math.isfinite(value)
        }
        return Row(t_s=self._t_s, unix_s=self._began_unix_s + self._t_s, numbers=known)

    def _of_knob(self, name: str, number: float | None) -> tuple[str, float | None]:
        """Of another knob than the power limit its value stands where a cap does, under a name without watts."""
        knob = self._status.knob
        if knob.is_power_limit or number is None or not name.endswith(_CAP):
            return name, number
        return f"{name.removesuffix(_CAP)}setting", knob.value(number)

    def _key(self, name: str) -> str:
        return f"{PREFIX}{EMULATED if self._status.emulated else ''}{name}"


def _caps(settings: Sequence[float | None]) -> dict[str, float | None]:
    """The highest, and where there are several devices that of each."""
    known = [setting for setting in settings if setting is not None]
    each = {f"gpu{place}/cap_w": setting for place, setting in enumerate(settings)} if len(settings) > 1 else {}
    return {"cap_w": max(known, default=None), **each}


def _measured(of: str, measured: Measurement, baseline: Measurement | None) -> dict[str, float | None]:
    """baseline: that it is held against, where a proxy stands for the iterations."""
    energy_j, period_s = measured.energy_per_iteration_j, measured.period_s
    found: dict[str, float | None] = {
        f"{of}/cap_w": max(measured.setting),
        f"{of}/power_w": measured.power_w,
        f"{of}/power_stderr_w": measured.power_w * measured.power_rel_stderr,
    }
    if not measured.is_relative:
        return found | {
            f"{of}/energy_per_iteration_j": energy_j,
            f"{of}/energy_per_iteration_stderr_j": energy_j * measured.energy_rel_stderr,
            f"{of}/time_per_iteration_s": period_s,
            f"{of}/time_per_iteration_stderr_s": period_s * measured.period_rel_stderr,
        }
    if baseline is None:
        return found
    for name, ratio in ratios(measured, baseline).items():
        key = f"{of}/low_confidence/{name}_ratio"
        found |= {key: ratio.value, f"{key}_stderr": ratio.stderr}
    return found


def _tried(number: int, trial: Trial, baseline: Measurement | None) -> dict[str, float | None]:
    assert trial.measurement is not None  # it has not failed
    return {
        **_measured("trial", trial.measurement, baseline),
        "trial/number": float(number),
        "trial/metric": trial.cost,
        "trial/metric_stderr": trial.cost_stderr,
        "trial/pruned": float(trial.state is TrialState.PRUNED),
    }


def _outcome(summary: Summary) -> dict[str, float | None]:
    found: dict[str, float | None] = {}
    if summary.chosen is not None:
        found["kept_cap_w"] = max(summary.chosen.setting)
        if summary.chosen.measurement is not None:
            found |= _measured("kept", summary.chosen.measurement, summary.baseline)
    found |= _numbers("versus_baseline", summary.versus_baseline) | _numbers("totals", summary.totals)
    if summary.is_relative:  # nobody knows them
        found.pop("totals/iterations", None)
    return found


def _numbers(of: str, record: Changes | Totals | None) -> dict[str, float | None]:
    """The fields of a record, as `result.json` has them."""
    return {} if record is None else {f"{of}/{one.name}": getattr(record, one.name) for one in fields(record)}


def follow(run_dir: Path, sink: Sink, stop: threading.Event, *, every_s: float = EVERY_S) -> None:
    """Log a run, from its first event until it has ended, was killed, or `stop` is set, and what it came to.

    Raises RunDirectoryError where there is no such directory or it cannot be read, and whatever the sink does.
    """
    rows, begun = Rows(), False
    with EventTail(run_dir, lambda damaged: None) as tail:
        for new in tail.looks(lambda: not stop.wait(every_s)):
            for event in new:
                ended = list(rows.take(event))
                if rows.is_known and not begun:
                    begun = True
                    sink.begin(rows.settings)
                for row in ended:
                    sink.log(row)
            for row in rows.now():
                sink.log(row)
    if not begun:
        sink.begin(rows.settings)
    sink.end(rows.result)
