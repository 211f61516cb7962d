"""A list of runs as a table: what each came to in a line."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath

from autocap.events import Decided, Event, MetricInfo, RunStarted
from autocap.events.sweep import SweepPlan
from autocap.knobs import POWER_LIMIT
from autocap.reports.document import Document, Sentences, Table
from autocap.reports.summary.record import Changes, DeviceSummary, NodeSummary, ProgressSummary
from autocap.reports.summary.summarise import UNFINISHED, last_of
from autocap.reports.wording.numbers import LOW_CONFIDENCE, ago, common_caps, counted, cut
from autocap.reports.wording.run import EMULATED, asked_for, measured
from autocap.runlog.event_log import require_plausible
from autocap.runlog.memory.store import MOST_AGE, SHOWN_DIGITS, Curve, Entry
from autocap.wire.codec import decode
from autocap.wire.json_lines import Json

SWEEP = "sweep"
RUNNING, FINISHED, KILLED, UNKNOWN = "running", "finished", "killed", "killed or running"  # what a `state` says


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenRead:
    """setting: of another knob than the power limit."""

    cap_w: tuple[float, ...] = ()
    setting: tuple[float | str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRead:
    """Of what `result.json` holds, a run's or a sweep's, the part that a list shows; the rest may be as it likes."""

    mode: str
    command: tuple[str, ...]
    started_at: str
    ended_because: str
    metric: MetricInfo
    device: DeviceSummary | None = None
    chosen: ChosenRead | None = None
    versus_baseline: Changes | None = None
    progress: ProgressSummary | None = None
    node: NodeSummary | None = None
    runs_left: int = 0
    plan: SweepPlan | None = None
    knob: str = POWER_LIMIT.name
    unit: str = POWER_LIMIT.unit

    @property
    def gpus(self) -> tuple[str, ...]:
        """The names of the job's; of a sweep, those of its largest set."""
        if self.device is not None:
            return tuple(gpu.name for gpu in self.device.gpus)
        sets = () if self.plan is None else self.plan.sets
        return tuple(gpu.name for gpu in max((one.gpus for one in sets), key=len, default=()))


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """A row of the list.

    directory: as it was found. state: of the words above. cap_w: kept on each GPU, found_w: found on arrival, watts;
    of another knob, knob and setting with its unit are there instead.
    modelled: the energy is not measured. saved: energy, time and metric per iteration at the kept cap, against the
    baseline. confidence: in the iterations, "high" or "low". why: no cap was kept. runs_left: of a sweep. trouble: why
    the directory cannot be read; all else is unknown then.
    """

    directory: str
    state: str = UNKNOWN
    mode: str | None = None
    started_at: str | None = None
    ended_because: str | None = None
    command: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    modelled: bool = False
    metric: MetricInfo | None = None
    found_w: tuple[float | None, ...] = ()
    cap_w: tuple[float, ...] | None = None
    knob: str = POWER_LIMIT.name
    setting: str | None = None
    saved: Changes | None = None
    confidence: str | None = None
    why: str | None = None
    runs_left: int | None = None
    trouble: str | None = None


def read_result(result: Json) -> ResultRead:
    """What a list shows of a `result.json`. Raises ValueError where it is none."""
    read = decode(ResultRead, result)
    require_plausible(read)
    return read


def past_run(directory: str, result: ResultRead, state: str, why: str | None) -> PastRun:
    """The row of a run. state: RUNNING, or what is known of the end otherwise. why: no cap was kept, if it is known."""
    device, is_sweep = result.device, result.mode == SWEEP
    emulated = device is not None and device.emulated
    return PastRun(
        directory=directory,
        state=state,
        mode=result.mode,
        started_at=result.started_at,
        ended_because=None if result.ended_because == UNFINISHED else result.ended_because,
        command=result.command,
        gpus=result.gpus,
        modelled=emulated and not (result.node is not None and result.node.whole),
        metric=result.metric,
        found_w=() if device is None else tuple(gpu.cap_original_w for gpu in device.gpus),
        cap_w=None if result.chosen is None else result.chosen.cap_w or None,
        knob=result.knob,
        setting=None if result.chosen is None else _shown(result.chosen.setting, result.unit),
        saved=None if result.chosen is None else result.versus_baseline,
        confidence=None if result.progress is None else result.progress.confidence,
        why=None if is_sweep or result.chosen is not None else why or result.ended_because,
        runs_left=result.runs_left if is_sweep else None,
    )


def why_none_kept(events: list[Event]) -> str | None:
    """Why a run kept no cap, in its own words; `None` where it did not come to a decision."""
    started, decided = last_of(RunStarted, events), last_of(Decided, events)
    if started is not None and started.observe:
        return "it only observed"
    return None if decided is None else decided.reason


_COMMAND, _NAME, _CLAUSE = 40, 28, 1000  # characters of a cell; the JSON has all of them
TITLES = ("when", "run", "state", "device", "metric", "command", "kept W", "saved")
_SPARE = tuple(TITLES.index(title) for title in ("metric", "device", "when", "state"))
_LEFT = tuple(range(6))


def moment(started_at: str | None) -> datetime | None:
    """When a run began; `None` where it does not say so."""
    try:
        found = datetime.fromisoformat(started_at or "")
    except ValueError:
        return None
    return None if found.tzinfo is None else found


def document(runs: Sequence[PastRun], place: PurePath) -> Document:
    """A row a run, in their order. place: where they lie."""
    in_watts = all(run.knob == POWER_LIMIT.name for run in runs)
    table = Table(
        heading=f"runs in {place}, the latest first",
        titles=TITLES if in_watts else (*TITLES[:-2], "kept", TITLES[-1]),
        rows=tuple(_row(run, "" if in_watts else f" {POWER_LIMIT.unit}") for run in runs),
        spare=_SPARE,
        below=(TITLES.index("command"),),
        left=_LEFT,
    )
    return Document(headline="Runs", body=(table,))


def _row(run: PastRun, unit: str) -> tuple[str, ...]:
    """unit: behind watts, nothing where the title has it."""
    began = moment(run.started_at)
    when = "–" if began is None else f"{began:%Y-%m-%d %H:%M}"
    name = cut(PurePath(run.directory).name, _NAME)
    if run.trouble is not None:
        return (when, name, "–", "–", "–", "–", "–", cut(f"cannot be read: {run.trouble}", _CLAUSE))
    return (
        when,
        name,
        run.state,
        cut(counted(run.gpus) or "–", _NAME),
        "–" if run.metric is None else cut(run.metric.name, _NAME),
        cut(shlex.join(run.command), _COMMAND),
        _kept(run, unit),
        cut(saved(run), _CLAUSE),
    )


def saved(run: PastRun) -> str:
    """What a run came to, in a clause: what the kept cap saves per iteration, or why there is none."""
    if run.mode == SWEEP:
        return f"a sweep, {run.runs_left} runs left" if run.runs_left else "a sweep, complete"
    if not run.gpus and run.state != RUNNING:
        return f"not tuned: {run.why}"
    if run.cap_w is None and run.setting is None:
        none = f"no {'cap' if run.knob == POWER_LIMIT.name else 'setting'} kept"
        if run.why != UNFINISHED:
            return f"{none}: {run.why}"
        return "nothing is decided yet" if run.state == RUNNING else f"{none}: killed before anything was decided"
    if run.saved is None or run.saved.energy_pct is None or run.saved.time_pct is None:
        return "not on record"
    label = " (emulated)" if run.modelled else ""
    energy = _change(-run.saved.energy_pct, run.saved.energy_stderr_pct, "")
    sure = f" ({LOW_CONFIDENCE})" if run.confidence == "low" else ""
    return f"{energy} energy{label}, time {_change(run.saved.time_pct, run.saved.time_stderr_pct, '+')}{sure}"


def _change(pct: float, stderr: float | None, sign: str) -> str:
    """As `wording.numbers.change` with another sign; an error that is not known is said not to be."""
    return f"{pct:{sign}.1f} ± {'?' if stderr is None else f'{stderr:.1f}'} %"


def _shown(setting: Sequence[float | str], unit: str) -> str | None:
    """Of another knob; `None` where there is none."""
    shown = [one if isinstance(one, str) else f"{one:g} {unit}".rstrip() for one in setting]
    return "/".join(dict.fromkeys(shown)) or None


def _kept(run: PastRun, unit: str) -> str:
    if run.cap_w is None:
        return run.setting or "–"
    found = [limit_w for limit_w in run.found_w if limit_w is not None]
    return f"{common_caps(run.cap_w)} of {common_caps(found)}{unit}" if found else f"{common_caps(run.cap_w)}{unit}"


_MEMORY_COMMAND = 48  # characters of a cell; the JSON has all of them
MEMORY_TITLES = ("key", "job", "on", "runs", "measured", "kept W", "metric")


def remembered_jobs(entries: Sequence[Entry], now: datetime) -> Document:
    """A row a job, in their order."""
    in_watts = all(entry.setup.knob is None for entry in entries)
    table = Table(
        heading="remembered jobs, the one used last first",
        titles=MEMORY_TITLES if in_watts else tuple("kept" if title == "kept W" else title for title in MEMORY_TITLES),
        rows=tuple(_memory_row(entry, now, bare=in_watts) for entry in entries),
        below=(MEMORY_TITLES.index("job"),),
        spare=tuple(MEMORY_TITLES.index(title) for title in ("on", "runs", "measured")),
        left=(0, 1, 2),
    )
    return Document(headline="Memory", body=(table,))


def remembered_job(entry: Entry, now: datetime) -> Document:
    """All that is remembered of a job."""
    setup = entry.setup
    known = [
        ("key", entry.key),
        ("job", shlex.join(entry.command)),
        ("on", counted(setup.gpus)),
        ("device", f"{setup.kind}{f', {EMULATED}' * setup.emulated}"),
        ("driver", setup.driver and f"branch {setup.driver}"),
        ("node", setup.node),
        ("knob", setup.knob and setup.knob.name),
        ("runs", f"{entry.runs}, the last by autocap {entry.autocap_version}"),
    ]
    lines = tuple(f"{name}: {value}" for name, value in known if value)
    return Document(
        headline="Memory",
        body=(Sentences(lines=lines), *(_curve(curve, entry, now) for curve in reversed(entry.curves))),
    )


def _memory_row(entry: Entry, now: datetime, *, bare: bool) -> tuple[str, ...]:
    """bare: the title has the unit."""
    last, shown = entry.latest, entry.setup.turned.bare if bare else entry.setup.turned.text
    return (
        entry.key[:SHOWN_DIGITS],
        cut(shlex.join(entry.command), _MEMORY_COMMAND),
        counted(entry.setup.gpus),
        str(entry.runs),
        ago((now - last.when).total_seconds()),
        "–" if last.kept_w is None else shown(last.kept_w),
        last.metric.name,
    )


def _curve(curve: Curve, entry: Entry, now: datetime) -> Table:
    notes = [f"measured {ago((now - curve.when).total_seconds())}", f"iterations from {curve.progress}"]
    if now - curve.when > MOST_AGE:
        notes.append("too old to be used")
    if not curve.holds:
        notes.append("the workload has changed since")
    notes += ["emulated"] * entry.setup.emulated
    rows = [
        (
            "/".join(map(entry.setup.turned.bare, curve.baseline.setting)),
            *measured(curve.baseline, curve.baseline),
            "baseline",
        )
    ]
    for point in sorted(curve.points, key=lambda point: point.setting):
        kept = "kept" if point.setting == curve.kept_w else ""
        rows.append((entry.setup.turned.bare(point.setting), *measured(point.measurement, curve.baseline), kept))
    return Table(
        heading=f"minimising {asked_for(curve.metric)}",
        note=", ".join(notes),
        titles=(entry.setup.turned.title, "W", "s/iter", "J/iter", "energy %", "time %", ""),
        rows=tuple(rows),
    )
