"""The report on a budget that was held: what became of it, folded from its events, as text, page and picture."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from autocap import events
from autocap.errors import RunDirectoryError
from autocap.events import Event
from autocap.plugins.fleet import events as budget
from autocap.records import GpuInfo
from autocap.reports.document import Document, Fact, Sentences, Table
from autocap.reports.figures.model import Axis, Colour, Line, Picture, Plot, Style
from autocap.reports.rendering import Presentation
from autocap.runlog.columns import Floats, Samples, read_samples
from autocap.text import printable
from autocap.wire.json_lines import Json

UNFINISHED = "not on record"
_SENSOR_W, _SENSOR_SHARE = 5.0, 0.05  # a board's power reading, as NVIDIA states it: within 5 W or 5 %
_COLOURS = (Colour.BLUE, Colour.ORANGE, Colour.GREEN, Colour.VERMILION, Colour.PURPLE, Colour.SKY)
_DASHES: tuple[tuple[float, ...], ...] = ((), (5, 2), (1.5, 2), (6, 2, 1.5, 2))
_MOST_LINES = 12  # of a picture
_MOST_STEPS = 50  # of a budget, in its table: the last ones
_BY_CURVES = "slowdowns are those that the jobs' curves have at the caps in force; ± is a standard error"


@dataclass(slots=True, kw_only=True)
class JobHistory:
    """One job. held: which cap was in force from when on, and what it cost. tuned: whether it was at some time. left_s:
    `None` while it is there. ceiling_w: that it may have, the last one."""

    name: str
    devices: int
    joined_s: float
    tuned: bool
    left_s: float | None = None
    why_left: str = ""
    weight: float = 1.0
    held: list[budget.CapHeld] = field(default_factory=list)
    ceiling_w: float | None = None

    def mean_slowdown(self, until_s: float) -> tuple[float, float] | None:
        """Over its time under the budget, with the standard error; `None` where no cap is on record."""
        if not self.held:
            return None
        ends_s = [*(one.t_s for one in self.held[1:]), max(until_s, self.held[-1].t_s + 1e-9)]
        spans_s = np.array([end_s - one.t_s for one, end_s in zip(self.held, ends_s, strict=True)])
        slowdowns, errors = np.array([(one.slowdown, one.slowdown_stderr) for one in self.held]).T
        weights = spans_s / spans_s.sum()
        return float(weights @ slowdowns), float(weights @ errors)  # errors of one curve go together


@dataclass(frozen=True, slots=True, kw_only=True)
class Power:
    """What was drawn against what was allowed. above_s: for how long, in all, more was drawn than a sensor's error
    above the budget; above_j: by how many joules. most_w: above it, at most."""

    mean_w: float
    used: float
    above_s: float
    above_j: float
    most_w: float


@dataclass(slots=True, kw_only=True)
class BudgetHistory:
    """steps: from when on there were how many watts. whys: who said so, of each step. reserved: from when on there were
    how many for what is no job."""

    started: budget.BudgetStarted
    steps: list[tuple[float, float]]
    policy: str
    whys: list[str] = field(default_factory=lambda: [""])
    jobs: list[JobHistory] = field(default_factory=list)
    reserved: list[tuple[float, float]] = field(default_factory=list)
    charged: list[tuple[float, float]] = field(default_factory=list)
    lowered_s: list[float] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    restored: dict[str, events.LimitRestored] = field(default_factory=dict)
    ended_because: str = UNFINISHED
    end_s: float = 0.0

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        return self.started.gpus

    def power(self, samples: Samples) -> Power | None:
        """`None` without samples."""
        known = np.isfinite(samples.power_w)
        t_s, power_w = samples.t_s[known], samples.power_w[known]
        if t_s.size < 2:
            return None
        allowed_w = self.allowed_w(t_s)
        spans_s = np.diff(t_s, append=t_s[-1])
        over_w = power_w - allowed_w - np.maximum(_SENSOR_W * np.sqrt(len(self.gpus)), _SENSOR_SHARE * allowed_w)
        over_w = np.maximum(over_w, 0.0)
        return Power(
            mean_w=float(np.average(power_w, weights=spans_s)),
            used=float(np.average(power_w / allowed_w, weights=spans_s)),
            above_s=float(spans_s @ (over_w > 0)),
            above_j=float(spans_s @ over_w),
            most_w=float(over_w.max()),
        )

    def allowed_w(self, t_s: Floats) -> Floats:
        """What the GPUs might draw: the budget less what was reserved."""
        return np.maximum(1e-9, held(self.steps, t_s) - held(self.reserved or [(0.0, 0.0)], t_s))


def held(steps: Sequence[tuple[float, float]], t_s: Floats) -> Floats:
    """Each value from its time on; the first one before."""
    times_s, values = (np.array(column) for column in zip(*steps, strict=True))
    return np.asarray(values[np.maximum(0, np.searchsorted(times_s, t_s, side="right") - 1)])


def history(found: Sequence[Event]) -> BudgetHistory:
    """Raises RunDirectoryError where no start is on record."""
    started = next((event for event in found if isinstance(event, budget.BudgetStarted)), None)
    if started is None:
        raise RunDirectoryError("no start of a budget is on record; pass a directory that `autocap budget` wrote")
    made = BudgetHistory(started=started, steps=[(started.t_s, started.budget_w)], policy=started.policy)
    there: dict[str, JobHistory] = {}
    caps: dict[str, tuple[int, float]] = {}  # by job or free device: how many devices, and their cap
    for event in found:
        made.end_s = max(made.end_s, event.t_s)
        match event:
            case budget.BudgetChanged():
                made.steps.append((event.t_s, event.budget_w))
                made.whys.append(event.why)
                made.policy = event.policy
            case budget.BudgetReserved():
                made.reserved.append((event.t_s, event.reserved_w))
            case budget.JobJoined() if event.name in there:
                there[event.name].tuned |= event.tuned
            case budget.JobJoined():
                there[event.name] = _joined(event, made.jobs)
                places = {gpu.uuid: gpu.where for gpu in started.gpus}
                for uuid in event.uuids:
                    caps.pop(f"free {places.get(uuid, uuid)}", None)
            case budget.JobLeft():
                left = there.pop(event.name, None)
                caps.pop(event.name, None)
                if left is not None:
                    left.left_s, left.why_left = event.t_s, event.why
            case budget.CapGranted():
                granted = there.get(event.name)
                caps[event.name] = (1 if granted is None else granted.devices, event.cap_w)
                if granted is not None:
                    granted.ceiling_w = event.cap_w
                made.charged.append((event.t_s, sum(devices * cap_w for devices, cap_w in caps.values())))
            case budget.CapHeld() if event.name in there:
                there[event.name].held.append(event)
            case budget.JobWeighed():
                if event.name in there:
                    there[event.name].weight = event.weight
            case budget.CapLowered():
                made.lowered_s.append(event.after_s)
            case events.Warned():
                made.warnings.append(event.text)
            case events.LimitRestored():
                made.restored[event.uuid] = event
            case events.RunEnded():
                made.ended_because = event.ended_because
    return made


def _joined(event: budget.JobJoined, jobs: list[JobHistory]) -> JobHistory:
    """The job that has come; one that leaves as a tuner comes for it, and comes at once with that, is the same."""
    for job in reversed(jobs):
        if (job.name, job.left_s, job.why_left) == (event.name, event.t_s, budget.TUNER_CAME):
            job.left_s, job.why_left, job.tuned, job.devices = None, "", job.tuned or event.tuned, len(event.uuids)
            return job
    job = JobHistory(name=event.name, devices=len(event.uuids), joined_s=event.t_s, tuned=event.tuned)
    jobs.append(job)
    return job


def present_budget(run_dir: Path, events: Sequence[Event]) -> Presentation:
    """The report on an `autocap budget`, ended or not. Raises RunDirectoryError as `history`."""
    found = history(events)
    samples = read_samples(run_dir)
    power = found.power(samples)
    return Presentation(
        document=_document(found, power),
        pictures=lambda: (_picture(found, samples),),
        result=_result(found, power),
    )


def _document(found: BudgetHistory, power: Power | None) -> Document:
    watts = "/".join(f"{watts:g}" for watts in dict.fromkeys(watts for _, watts in found.steps))
    names = ", ".join(dict.fromkeys(gpu.name for gpu in found.gpus))
    drawn = "what was drawn is not on record"
    if power is not None:
        drawn = f"{100 * power.used:.1f} % of it drawn, more than a sensor's error above it for {power.above_s:.1f} s"
    headline = f"{watts} W for {len(found.jobs)} jobs on {len(found.gpus)} GPUs: {drawn}"
    back = sum(found.restored[gpu.uuid].restored is True for gpu in found.gpus if gpu.uuid in found.restored)
    ended = f"ended: {found.ended_because}; limits found that are back: {back} of {len(found.gpus)}"
    return Document(
        kicker=f"autocap budget · {names}",
        headline=headline,
        remarks=(),
        aim=f"shared by policy {found.policy}; {ended}",
        label="",
        facts=tuple(_facts(found, power)),
        warnings=tuple(found.warnings),
        body=(
            Sentences(lines=(headline, f"shared by policy {found.policy}; {ended}")),
            *_budgets(found),
            _jobs(found),
        ),
        job=(("command", f"autocap budget {found.started.budget_w:g}"), ("started", found.started.started_at)),
        version=found.started.autocap_version,
    )


def _facts(found: BudgetHistory, power: Power | None) -> Iterator[Fact]:
    if power is not None:
        yield Fact(
            name="drawn on average", value=f"{power.mean_w:.0f} W", note=f"{100 * power.used:.1f} % of what may be"
        )
        yield Fact(
            name="above the budget",
            value=f"{power.above_j:.0f} J",
            note=f"for {power.above_s:.1f} s, by {power.most_w:.0f} W at most, beyond a sensor's error",
        )
    if found.lowered_s:
        yield Fact(
            name="lower caps seen to hold",
            value=f"{max(found.lowered_s):.2f} s",
            note=f"after the order at the latest, of {len(found.lowered_s)}",
        )


def _budgets(found: BudgetHistory) -> Iterator[Table]:
    """One table, of a budget that has changed."""
    if len(found.steps) < 2:
        return
    steps = zip(found.steps, found.whys, strict=True)
    rows = [(f"{t_s:.0f}", f"{watts:g}", printable(why) or "as it began") for (t_s, watts), why in steps]
    yield Table(heading="Budget", titles=("from s", "W", "why"), rows=tuple(rows[-_MOST_STEPS:]), left=(2,))


def _jobs(found: BudgetHistory) -> Table:
    return Table(
        heading="Jobs",
        note=_BY_CURVES,
        titles=("job", "GPUs", "tuned", "weight", "from s", "to s", "cap W", "up to W", "slowdown %", "on average %"),
        rows=tuple(_row(job, found.end_s) for job in found.jobs),
        left=(0,),
        spare=(4, 5),
    )


def _row(job: JobHistory, end_s: float) -> tuple[str, ...]:
    last = job.held[-1] if job.held else None
    mean = job.mean_slowdown(end_s if job.left_s is None else job.left_s)
    latest = None if last is None else (last.slowdown, last.slowdown_stderr)
    return (
        printable(job.name),
        str(job.devices),
        "yes" if job.tuned else "no",
        f"{job.weight:g}",
        f"{job.joined_s:.0f}",
        "" if job.left_s is None else f"{job.left_s:.0f}",
        "" if last is None else f"{last.cap_w:.0f}",
        "" if job.ceiling_w is None else f"{job.ceiling_w:.0f}",
        _percent(latest),
        _percent(mean),
    )


def _percent(value: tuple[float, float] | None) -> str:
    return "" if value is None else f"{100 * value[0]:.1f} ± {100 * value[1]:.1f}"


def _result(found: BudgetHistory, power: Power | None) -> Json:
    """What `result.json` holds; seconds, watts, and slowdowns as ratios."""
    jobs: list[Json] = []
    for job in found.jobs:
        mean = job.mean_slowdown(found.end_s if job.left_s is None else job.left_s)
        jobs.append(
            {
                "name": job.name,
                "devices": job.devices,
                "tuned": job.tuned,
                "weight": job.weight,
                "joined_s": job.joined_s,
                "left_s": job.left_s,
                "cap_w": job.held[-1].cap_w if job.held else None,
                "ceiling_w": job.ceiling_w,
                "slowdown": None if mean is None else mean[0],
                "slowdown_stderr": None if mean is None else mean[1],
            }
        )
    return {
        "schema": 1,
        "autocap_version": found.started.autocap_version,
        "mode": "budget",
        "command": ["autocap", "budget", f"{found.started.budget_w:g}"],
        "started_at": found.started.started_at,
        "ended_because": found.ended_because,
        "metric": {"name": found.policy},
        "budget": [
            {"t_s": t_s, "watts": watts, "why": why} for (t_s, watts), why in zip(found.steps, found.whys, strict=True)
        ],
        "openadr": found.started.openadr,
        "jobs": jobs,
        "power": None
        if power is None
        else {
            "mean_w": power.mean_w,
            "used": power.used,
            "above_s": power.above_s,
            "above_j": power.above_j,
            "above_most_w": power.most_w,
        },
        "restored": all(gpu.uuid in found.restored and found.restored[gpu.uuid].restored for gpu in found.gpus),
        "warnings": list(found.warnings),
    }


def _picture(found: BudgetHistory, samples: Samples) -> Picture:
    """Power against the budget over time, and each job's slowdown."""
    end_s = max([found.end_s, *samples.t_s[-1:]])
    x = Axis(label="time, s", low=0.0, high=max(end_s, 1.0))
    times_s = sorted({t_s for t_s, _ in (*found.steps, *found.reserved)} | {end_s})
    allowed = list(zip(times_s, map(float, found.allowed_w(np.array(times_s))), strict=True))
    budget = _stepped("budget less what is reserved", Style(colour=Colour.VERMILION, width=2.0), allowed)
    charged = _stepped(
        "caps granted", Style(colour=Colour.MUTED, dash=(5, 2)), [*found.charged, *_last(found.charged, end_s)]
    )
    drawn = Line(name="drawn by the GPUs", style=Style(colour=Colour.BLUE), x=samples.t_s, y=samples.power_w)
    marks = tuple(line for line in (budget, charged, drawn) if line is not None and line.x.size)
    highest_w = max((float(np.nanmax(line.y)) for line in marks if np.isfinite(line.y).any()), default=1.0)
    power = Plot(title="Power", x=x, y=Axis(label="W", low=0.0, high=1.08 * highest_w), marks=marks, share=1.2)
    lines = [line for line in map(_slowdown, range(_MOST_LINES), found.jobs, [end_s] * _MOST_LINES) if line is not None]
    worst = max((float(np.nanmax(line.y)) for line in lines), default=0.0)
    slowdown = Plot(
        title="Slowdown of each job", x=x, y=Axis(label="%", low=0.0, high=1.1 * worst or 1.0), marks=tuple(lines)
    )
    return Picture(
        name="timeline",
        title="Power against the budget",
        caption=f"What the GPUs drew against what they might, and what the budget cost each job: {_BY_CURVES}.",
        panels=(power, slowdown),
        one_x=True,
    )


def _last(steps: Sequence[tuple[float, float]], end_s: float) -> list[tuple[float, float]]:
    return [(end_s, steps[-1][1])] if steps else []


def _stepped(name: str, style: Style, steps: Sequence[tuple[float, float]]) -> Line | None:
    if not steps:
        return None
    x, y = (np.array(column) for column in zip(*steps, strict=True))
    return Line(name=name, style=style, x=x, y=y, stepped=True)


def _slowdown(number: int, job: JobHistory, end_s: float) -> Line | None:
    known = [(one.t_s, 100 * one.slowdown) for one in job.held]
    style = Style(colour=_COLOURS[number % len(_COLOURS)], dash=_DASHES[number // len(_COLOURS) % len(_DASHES)])
    return _stepped(printable(job.name), style, [*known, *_last(known, end_s if job.left_s is None else job.left_s)])
