"""What a sweep came to: the one record behind its table, `result.json`, `sweep.csv` and every picture of it.

    summary = summarise(read_events(run_dir))      # of a finished, interrupted or running sweep
    for panel in summary.panels: …                 # one per GPU set

A panel's rows hold a Measurement per cap, so that whatever draws the trials of a run draws them as well.

Which runs do not count: the rules of data quality of BUTTER-E. Tripp et al. 2024 leave out runs with readings of 0 W,
runs with missing readings, and runs whose log time is more than four standard deviations from the mean of their like.
They had thousands of runs; with a few repeats a run cannot be that far from a mean that it is part of. So it is held
against the others alone, with the scatter of all caps together, and against as improbable a deviation for that many
degrees of freedom as four sigma are.
"""

import csv
import io
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean

import numpy as np

from autocap.errors import RunDirectoryError
from autocap.events import (
    Event,
    IdleEstimated,
    MetricInfo,
    NodeMetered,
    RunEnded,
    SweepRunEnded,
    SweepStarted,
    Warned,
)
from autocap.events.sweep import DISCARDED, FinishedRun, GpuSet, SweepPlan, Used
from autocap.measurement.batches import BatchErrors
from autocap.measurement.stats import student_above
from autocap.metrics import Metric
from autocap.records import Measurement
from autocap.reports.summary.gains import Measured, best_by_gpus, best_by_metric, pareto
from autocap.reports.summary.record import MEASURED, SCHEMA, BestCap, NodeSummary, ParetoPoint
from autocap.reports.summary.summarise import UNFINISHED, all_of, last_of, metric_of, node_summary
from autocap.sweep.schedule import Schedule

_Energy = Callable[[Used], float]  # joules of a run
_COUNTED: _Energy = attrgetter("counted_j")
_OF_GPUS: _Energy = attrgetter("gpus_j")
_SIGMAS = 4.0
_BY_CHANCE = 0.5 * math.erfc(_SIGMAS / math.sqrt(2))  # how often a normal is so far on one side
_FEWEST_LIKE = 3  # with two repeats nobody can say which of them is wrong
_LEAST_J = 1e-9
_LEAST_SCATTER = 1e-3  # of times, relative: what starting a process takes varies by more than runs that agree exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A run that is not averaged, and why."""

    finished: FinishedRun
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CapRow:
    """The runs of one cap. measurement: the mean run, an iteration of it being the whole command; its standard errors
    come from the scatter that all caps of the set share, and are infinite, as unknown, where none was run twice. *_sd:
    sample standard deviations, `None` for a single run, of what the measurement counts; gpus_*_sd: of all GPUs
    together. gpu_*: means of each GPU.
    """

    measurement: Measurement
    repeats: int
    time_sd_s: float | None
    power_sd_w: float | None
    energy_sd_j: float | None
    gpus_power_sd_w: float | None
    gpus_energy_sd_j: float | None
    gpu_energy_j: tuple[float, ...]
    gpu_power_w: tuple[float, ...]

    @property
    def cap_w(self) -> float:
        """The common cap, watts."""
        return self.measurement.setting[0]


def sound(runs: Sequence[FinishedRun]) -> tuple[list[FinishedRun], list[LeftOut]]:
    """The runs of one GPU set that are to be averaged, and those that are not; warming up is neither."""
    good: list[FinishedRun] = []
    out: list[LeftOut] = []
    devices = next((len(finished.used.energy_j) for finished in runs if finished.used), 0)
    for finished in runs:
        if finished.run.repeat == DISCARDED and finished.trouble is None:
            continue
        reason = finished.trouble or _fault(finished.used, devices)
        if reason is None:
            good.append(finished)
        else:
            out.append(LeftOut(finished=finished, reason=reason))
    while (outlier := _outlier(good)) is not None:
        good.remove(outlier.finished)
        out.append(outlier)
    return good, out


def cap_rows(runs: Sequence[FinishedRun]) -> tuple[CapRow, ...]:
    """Sound runs of one GPU set, averaged by cap, the highest first."""
    by_cap = {cap_w: [one.used for one in some if one.used] for cap_w, some in _by_cap(runs).items()}
    groups = list(by_cap.values())
    counted, of_gpus = _shared_scatter(groups, _COUNTED), _shared_scatter(groups, _OF_GPUS)
    return tuple(_cap_row(cap_w, used, counted, of_gpus) for cap_w, used in sorted(by_cap.items(), reverse=True))


def _fault(used: Used | None, devices: int) -> str | None:
    if used is None:
        return "no power was read"
    if used.missing:
        return f"{used.missing} power readings were missing or 0 W"
    if len(used.energy_j) != devices:
        return f"{len(used.energy_j)} GPUs were measured, not {devices}"
    if min(*used.energy_j, used.counted_j) < _LEAST_J or used.time_s <= 0:
        return "no energy was measured"
    if used.node_gap_s:
        return f"the node's power was not known for {used.node_gap_s:.1f} s"
    return None


def _outlier(runs: Sequence[FinishedRun]) -> LeftOut | None:
    """The run whose log time is farthest beyond what scatter explains; `None` where none is.

    Each is compared with the mean of the others of its cap, by the scatter of all runs but itself (an externally
    studentised residual).
    """
    by_cap = _by_cap(runs)
    groups = {cap_w: np.log([one.used.time_s for one in some if one.used]) for cap_w, some in by_cap.items()}
    squares = sum(float(((logs - logs.mean()) ** 2).sum()) for logs in groups.values())
    dof = sum(len(logs) - 1 for logs in groups.values()) - 1
    if dof < 1:
        return None
    found: tuple[float, FinishedRun] | None = None
    for cap_w, logs in groups.items():
        n = len(logs)
        if n < _FEWEST_LIKE:
            continue
        for finished, log_time in zip(by_cap[cap_w], logs, strict=True):
            apart = abs(float(log_time - logs.mean())) * n / (n - 1)  # from the mean of the others
            others = max(0.0, squares - apart**2 * (n - 1) / n)
            scatter = max(math.sqrt(others / dof), _LEAST_SCATTER)
            beyond = apart / (scatter * math.sqrt(n / (n - 1)))
            if beyond > (found[0] if found else 0.0):
                found = beyond, finished
    if found is None or student_above(dof, found[0]) >= _BY_CHANCE:
        return None
    return LeftOut(finished=found[1], reason="its time is more than 4 sigma from that of the other runs of its cap")


def _by_cap(runs: Iterable[FinishedRun]) -> dict[float, list[FinishedRun]]:
    by_cap: dict[float, list[FinishedRun]] = {}
    for finished in runs:
        by_cap.setdefault(finished.run.cap_w, []).append(finished)
    return by_cap


def _shared_scatter(groups: Sequence[Sequence[Used]], of: _Energy) -> BatchErrors:
    """Relative standard deviations from run to run, pooled over caps: with a few repeats, a cap's own deviation says
    little of its error; infinite, as nothing is known of it, where every cap was run once. of: the energy of a run that
    it is about."""
    dof = sum(len(group) - 1 for group in groups)
    if dof < 1:
        return BatchErrors(time=math.inf, energy=math.inf, correlation=0.0)
    logs = [np.log([[used.time_s, of(used)] for used in group]) for group in groups]
    deviations = np.concatenate([some - some.mean(axis=0) for some in logs])
    covariance = deviations.T @ deviations / dof
    return BatchErrors.of(float(covariance[0, 0]), float(covariance[1, 1]), float(covariance[0, 1]))


def _cap_row(cap_w: float, group: Sequence[Used], counted: BatchErrors, of_gpus: BatchErrors) -> CapRow:
    measurement, gpus = _mean_run(cap_w, group, _COUNTED, counted), _mean_run(cap_w, group, _OF_GPUS, of_gpus)
    each_j = list(zip(*(used.energy_j for used in group), strict=True))
    return CapRow(
        measurement=measurement if group[0].node_j is None else measurement.with_gpus(gpus),
        repeats=len(group),
        time_sd_s=_sd([used.time_s for used in group]),
        power_sd_w=_sd([used.counted_j / used.time_s for used in group]),
        energy_sd_j=_sd([used.counted_j for used in group]),
        gpus_power_sd_w=_sd([used.gpus_j / used.time_s for used in group]),
        gpus_energy_sd_j=_sd([used.gpus_j for used in group]),
        gpu_energy_j=tuple(map(fmean, each_j)),
        gpu_power_w=tuple(
            fmean([energy_j / used.time_s for energy_j, used in zip(one_j, group, strict=True)]) for one_j in each_j
        ),
    )


def _mean_run(cap_w: float, group: Sequence[Used], of: _Energy, scatter: BatchErrors) -> Measurement:
    n = len(group)
    return Measurement(
        setting=(cap_w,) * len(group[0].energy_j),
        start_s=0.0,
        duration_s=sum(used.time_s for used in group),
        iterations=n,
        period_s=fmean([used.time_s for used in group]),
        period_rel_stderr=scatter.time / math.sqrt(n),
        power_w=fmean([of(used) / used.time_s for used in group]),
        power_rel_stderr=scatter.power / math.sqrt(n),
        energy_per_iteration_j=fmean([of(used) for used in group]),
        energy_rel_stderr=scatter.energy / math.sqrt(n),
        time_energy_corr=scatter.correlation,
    )


def _sd(values: Sequence[float]) -> float | None:
    return float(np.std(values, ddof=1)) if len(values) > 1 else None


CSV_COLUMNS = (
    "curve", "gpus", "cap_w", "power_w", "energy_j", "time_s", "repeats", "power_sd_w", "energy_sd_j", "time_sd_s",
    "gpu_power_w", "gpu_energy_j", "baseline", "emulated", "node_power", "gpus_power_w", "gpus_energy_j",
    "gpus_power_sd_w", "gpus_energy_sd_j",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """One GPU set. rows: the highest cap first. baseline: the row of the limit found on arrival, `None` before it was
    run; without it nothing can be compared. best_by_metric, pareto: as a run's summary has them. chosen: the cap that
    is best by the metric asked for, within its limit on slowdown. left_out: runs that are not averaged. node,
    best_by_metric_gpu: the machine around the GPUs, and the best caps without it, where its energy counts.
    """

    curve: str
    gpus: GpuSet
    rows: tuple[CapRow, ...]
    baseline: CapRow | None
    best_by_metric: tuple[BestCap, ...] = ()
    chosen: BestCap | None = None
    pareto: tuple[ParetoPoint, ...] = ()
    left_out: tuple[LeftOut, ...]
    best_by_metric_gpu: tuple[BestCap, ...] = ()
    node: NodeSummary | None = None

    def row(self, cap_w: float) -> CapRow:
        """The row of a cap that was run."""
        return next(row for row in self.rows if row.cap_w == cap_w)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepSummary:
    """A sweep: complete, interrupted, or as far as it has come. runs_left: how many of its runs are still due."""

    schema: int = SCHEMA
    autocap_version: str
    mode: str = "sweep"
    command: tuple[str, ...]
    started_at: str
    ended_because: str
    runs_left: int
    metric: MetricInfo
    plan: SweepPlan
    panels: tuple[Panel, ...]
    warnings: tuple[str, ...]

    @property
    def has_no_errors(self) -> bool:
        """Whether every cap was run once, so that nothing is known of the error of anything."""
        rows = [row for panel in self.panels for row in panel.rows]
        return bool(rows) and not any(math.isfinite(row.measurement.period_rel_stderr) for row in rows)

    @property
    def modelled(self) -> bool:
        """Whether the energy that counts is; what a meter of the whole node reads is not."""
        node = self.panels[0].node
        return self.plan.emulated and not (node is not None and node.whole)


def last_start(events: Sequence[Event]) -> SweepStarted:
    """How the sweep was started, or went on, the last time. Raises RunDirectoryError where there is no sweep."""
    started = last_of(SweepStarted, events)
    if started is None:
        raise RunDirectoryError("these are not a sweep's events; pass the directory of an `autocap sweep`")
    return started


def finished_runs(events: Sequence[Event]) -> list[FinishedRun]:
    """Every run that ended, oldest first."""
    return [event.finished for event in all_of(SweepRunEnded, events)]


def summarise(events: Sequence[Event]) -> SweepSummary:
    """The summary of a sweep's events, oldest first. Raises RunDirectoryError where there is no sweep in them."""
    last = last_start(events)
    runs = finished_runs(events)
    latest = next(event for event in reversed(events) if isinstance(event, SweepStarted | RunEnded))
    return SweepSummary(
        autocap_version=last.autocap_version,
        command=last.plan.command,
        started_at=all_of(SweepStarted, events)[0].started_at,
        ended_because=latest.ended_because if isinstance(latest, RunEnded) else UNFINISHED,
        runs_left=Schedule(last.plan, runs).left,
        metric=last.metric,
        plan=last.plan,
        panels=tuple(_with_node(panel, events) for panel in panels(last.plan, metric_of(last.metric), runs)),
        warnings=tuple(event.text for event in all_of(Warned, events)),
    )


def panels(plan: SweepPlan, metric: Metric, runs: Sequence[FinishedRun]) -> tuple[Panel, ...]:
    """What the runs of each GPU set came to."""
    return tuple(
        _panel(plan, one, metric, [finished for finished in runs if finished.run.gpus == one.label])
        for one in plan.sets
    )


def to_csv(summary: SweepSummary) -> str:
    """`sweep.csv`: a row per GPU set and cap.

    power_w, energy_j: what the metric counts, of all GPUs or of the node; gpus_*: of all GPUs; gpu_*: of each, by
    semicolon.
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(CSV_COLUMNS)
    for panel in summary.panels:
        for row in reversed(panel.rows):
            mean, gpus = row.measurement, row.measurement.of_gpus()
            writer.writerow([
                panel.curve, panel.gpus.label, f"{row.cap_w:g}", _cell(mean.power_w),
                _cell(mean.energy_per_iteration_j), _cell(mean.period_s), row.repeats, _cell(row.power_sd_w),
                _cell(row.energy_sd_j), _cell(row.time_sd_s), ";".join(map(_cell, row.gpu_power_w)),
                ";".join(map(_cell, row.gpu_energy_j)), str(row is panel.baseline).lower(),
                str(summary.plan.emulated).lower(), summary.plan.node_power, _cell(gpus.power_w),
                _cell(gpus.energy_per_iteration_j), _cell(row.gpus_power_sd_w), _cell(row.gpus_energy_sd_j),
            ])  # fmt: skip
    return text.getvalue()


def _panel(plan: SweepPlan, one: GpuSet, metric: Metric, runs: Sequence[FinishedRun]) -> Panel:
    good, left_out = sound(runs)
    rows = cap_rows(good)
    panel = Panel(
        curve=plan.name if len(plan.sets) == 1 else f"{plan.name} on GPU {one.label}",
        gpus=one,
        rows=rows,
        baseline=next((row for row in rows if row.cap_w == one.baseline_w), None),
        left_out=tuple(left_out),
    )
    if panel.baseline is None:
        return panel
    base = panel.baseline.measurement
    measured = [Measured(measurement=row.measurement, baseline=base) for row in rows]
    return replace(
        panel,
        best_by_metric=best_by_metric(measured, base),
        chosen=_chosen(metric, rows, panel.baseline),
        pareto=pareto(measured, base),
        best_by_metric_gpu=best_by_gpus(measured, base) if base.gpu else (),
    )


def _with_node(panel: Panel, events: Sequence[Event]) -> Panel:
    """The same with the machine around its GPUs, where that counts."""
    at_rest = [event for event in all_of(IdleEstimated, events) if event.gpus in (None, panel.gpus.label)]
    baseline = None if panel.baseline is None else panel.baseline.measurement
    chosen = None if panel.chosen is None else panel.row(panel.chosen.setting[0]).measurement
    return replace(
        panel,
        node=node_summary(
            last_of(NodeMetered, events),
            last_of(IdleEstimated, at_rest),
            baseline,
            chosen if chosen is not baseline else None,
        ),
    )


def _chosen(metric: Metric, rows: Sequence[CapRow], baseline: CapRow) -> BestCap:
    base = baseline.measurement
    allowed = [row.measurement for row in rows if row is baseline or _may_be_allowed(metric, row.measurement, base)]
    best = min(allowed, key=lambda measurement: metric.cost(measurement, base).value)
    cost = metric.versus(best, base)
    return BestCap(metric=metric.name, setting=best.setting, cost=cost.value, cost_stderr=cost.stderr, source=MEASURED)


def _may_be_allowed(metric: Metric, measurement: Measurement, base: Measurement) -> bool:
    """Whether a cap is surely within the limit on slowdown; where no error is known nothing is sure, and the report
    says so: then whether it was within it the one time."""
    if math.isfinite(measurement.period_rel_stderr) or metric.max_slowdown is None:
        return metric.allows(measurement, base)
    return measurement.period_s <= base.period_s * (1 + metric.max_slowdown)


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.6g}"
