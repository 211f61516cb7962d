"""A sweep as text: per GPU set all caps, the best by each metric as the papers print it, and the Pareto front."""

import shlex

from rich.table import Table

from autocap.gains import METRICS
from autocap.records import Measurement
from autocap.reporters.tables import WIDTH, drawn, front, plain_table
from autocap.rounding import with_error
from autocap.summary import BestCap
from autocap.sweep.records import DISCARDED
from autocap.sweep.statistics import CapRow
from autocap.sweep.summary import Panel, SweepSummary

_RATIOS = ("edp", "eds_2", "eds_1.5")  # shown for every cap, besides energy and time
_MAX_LEFT_OUT = 10


def lines(summary: SweepSummary, width: int = WIDTH) -> list[str]:
    """What the sweep came to, line by line, without colour."""
    told = _heading(summary)
    for panel in summary.panels:
        told += ["", *_panel(summary, panel, width)]
    return told


def _heading(summary: SweepSummary) -> list[str]:
    left = f"; runs left: {summary.runs_left}" if summary.runs_left else ""
    label = " (EMULATED power: modelled, not measured)" if summary.plan.emulated else ""
    return [f"sweep of {shlex.join(summary.command)}{label}; ended: {summary.ended_because}{left}"]


def _panel(summary: SweepSummary, panel: Panel, width: int) -> list[str]:
    names = ", ".join(dict.fromkeys(gpu.name for gpu in panel.gpus.gpus))
    told = [f"GPU {panel.gpus.label}: {names}; limit found on arrival {panel.gpus.baseline_w:g} W"]
    emulated = summary.plan.emulated
    if panel.rows:
        told += ["", *drawn(_caps(panel, emulated), width)]
    if panel.baseline is None:
        told += ["", "the limit found on arrival was not measured, so there is nothing to compare"]
    else:
        told += ["", *drawn(_bests(summary, panel, panel.baseline.measurement), width)]
        told += ["", *drawn(front(panel.pareto, emulated=emulated), width)]
    return told + _left_out(panel)


def _caps(panel: Panel, emulated: bool) -> Table:
    """Means and sample standard deviations of every cap; ratios are to the baseline."""
    label = " (emulated)" if emulated else ""
    table = plain_table("cap W", "runs", f"W{label}", f"J{label}", "s", "energy %", "time %", *_RATIOS, "")
    base = None if panel.baseline is None else panel.baseline.measurement
    for row in panel.rows:
        mean = row.measurement
        compared = ["–"] * 5
        if base is not None:
            compared = [_change(mean.energy_per_iteration_j, base.energy_per_iteration_j)]
            compared.append(_change(mean.period_s, base.period_s))
            compared += [f"{METRICS[name].cost(mean, base).value:.4f}" for name in _RATIOS]
        table.add_row(f"{row.cap_w:g}", str(row.repeats), *_means(row), *compared, _remark(panel, row))
    return table


def _means(row: CapRow) -> list[str]:
    mean = row.measurement
    return [
        _with_sd(mean.power_w, row.power_sd_w, 1),
        _with_sd(mean.energy_per_iteration_j, row.energy_sd_j, 1),
        _with_sd(mean.period_s, row.time_sd_s, 2),
    ]


def _with_sd(mean: float, sd: float | None, digits: int) -> str:
    return f"{mean:.{digits}f}" if sd is None else f"{mean:.{digits}f} ± {sd:.{digits}f}"


def _remark(panel: Panel, row: CapRow) -> str:
    if row is panel.baseline:
        return "baseline"
    if len(row.gpu_power_w) > 1:
        return "each " + "/".join(f"{watts:.0f}" for watts in row.gpu_power_w) + " W"
    return ""


def _bests(summary: SweepSummary, panel: Panel, base: Measurement) -> Table:
    """The best cap by each metric, as tables 2 and 3 of Krzywaniak et al. 2022 have it."""
    joules = "energy J (emulated)" if summary.plan.emulated else "energy J"
    table = plain_table(
        "target", "cap W", "average W", joules, "vs baseline %", "time s", "vs baseline %", "metric / baseline's"
    )
    _best_row(table, "baseline", panel.row(panel.gpus.baseline_w), base)
    for best in panel.best_by_metric:
        _best_row(table, f"min {best.metric}", panel.row(best.cap_w[0]), base, best)
    if panel.chosen is not None:
        limit = summary.metric.max_slowdown
        within = "" if limit is None else f", at most {100 * limit:g} % slower"
        k = "" if summary.metric.k is None else f" k={summary.metric.k:g}"
        row = panel.row(panel.chosen.cap_w[0])
        _best_row(table, "asked for", row, base, panel.chosen, f": {summary.metric.name}{k}{within}")
    return table


def _best_row(
    table: Table, target: str, row: CapRow, base: Measurement, best: BestCap | None = None, remark: str = ""
) -> None:
    mean = row.measurement
    cost = "" if best is None else with_error(best.cost, best.cost_stderr)
    table.add_row(
        target,
        f"{row.cap_w:g}",
        f"{mean.power_w:.1f}",
        f"{mean.energy_per_iteration_j:.1f}",
        "–" if best is None else _change(mean.energy_per_iteration_j, base.energy_per_iteration_j),
        f"{mean.period_s:.2f}",
        "–" if best is None else _change(mean.period_s, base.period_s),
        cost + remark,
    )


def _change(value: float, base: float) -> str:
    return "0" if value == base else f"{100 * (value / base - 1):+.1f}"


def _left_out(panel: Panel) -> list[str]:
    """What is not averaged, and why."""
    if not panel.left_out:
        return []
    told = ["", f"runs that are not averaged: {len(panel.left_out)}"]
    for one in panel.left_out[:_MAX_LEFT_OUT]:
        run = one.finished.run
        which = "warming up" if run.repeat == DISCARDED else f"run {run.repeat}"
        told.append(f"  {run.cap_w:g} W, {which}: {one.reason}")
    if len(panel.left_out) > _MAX_LEFT_OUT:
        told.append(f"  and {len(panel.left_out) - _MAX_LEFT_OUT} more")
    return told
