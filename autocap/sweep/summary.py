"""What a sweep came to: the one record behind its table, `result.json`, `sweep.csv` and every picture of it.

    summary = summarise(read_events(run_dir))      # of a finished, interrupted or running sweep
    for panel in summary.panels: …                 # one per GPU set

A panel's rows hold a Measurement per cap, so that whatever draws the trials of a run draws them as well.
"""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
from autocap.events.sweep import FinishedRun, GpuSet, SweepPlan
from autocap.metrics import Metric
from autocap.records import Measurement
from autocap.reports.summary.gains import best_by_gpus, best_by_metric, pareto
from autocap.reports.summary.node import node_summary
from autocap.reports.summary.record import MEASURED, SCHEMA, BestCap, NodeSummary, ParetoPoint
from autocap.reports.summary.summarise import UNFINISHED, all_of, last_of, metric_of
from autocap.reports.summary.together import Measured
from autocap.sweep.schedule import Schedule
from autocap.sweep.statistics import CapRow, LeftOut, cap_rows, sound

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
