"""What became of a budget, folded from its events: who had what and when, and how much of it was drawn."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from autocap import events
from autocap.errors import RunDirectoryError
from autocap.events import Event
from autocap.plugins.fleet import events as budget
from autocap.records import GpuInfo
from autocap.runlog.columns import Floats, Samples

UNFINISHED = "not on record"
_SENSOR_W, _SENSOR_SHARE = 5.0, 0.05  # a board's power reading, as NVIDIA states it: within 5 W or 5 %


@dataclass(slots=True, kw_only=True)
class JobHistory:
    """One job. held: which cap was in force from when on, and what it cost. tuned: whether it was at some time. left_s:
    `None` while it is there. ceiling_w: that it may have, the last one."""

    name: str
    devices: int
    joined_s: float
    tuned: bool
    pid: int | None
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
    how many for what is no job. short: likewise, by how much the lowest caps exceeded the budget."""

    started: budget.BudgetStarted
    steps: list[tuple[float, float]]
    policy: str
    whys: list[str] = field(default_factory=lambda: [""])
    jobs: list[JobHistory] = field(default_factory=list)
    reserved: list[tuple[float, float]] = field(default_factory=list)
    short: list[tuple[float, float]] = field(default_factory=list)
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
            case budget.BudgetShort():
                made.short.append((event.t_s, event.short_w))
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
    job = JobHistory(name=event.name, devices=len(event.uuids), joined_s=event.t_s, tuned=event.tuned, pid=event.pid)
    jobs.append(job)
    return job
