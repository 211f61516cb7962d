"""A sweep in tables: of each GPU set all caps, and the best by each metric as the papers print it."""

from collections.abc import Iterator

from autocap.events.sweep import DISCARDED
from autocap.records import Measurement
from autocap.reports.document import Table
from autocap.reports.summary.gains import METRICS
from autocap.reports.summary.record import BestCap
from autocap.reports.wording.numbers import with_error
from autocap.reports.wording.run import asked_for
from autocap.sweep.statistics import CapRow
from autocap.sweep.summary import Panel, SweepSummary

_RATIOS = ("edp", "eds_2", "eds_1.5")  # shown for every cap, besides energy and time
_MAX_LEFT_OUT = 10


def caps(panel: Panel, *, emulated: bool) -> Table:
    """Means and sample standard deviations of every cap; ratios are to the baseline."""
    label = " (emulated)" if emulated else ""
    base = None if panel.baseline is None else panel.baseline.measurement
    rows = []
    for row in panel.rows:
        energy, *rest = _compared(row.measurement, base)
        time = "–" if base is None else _change(row.measurement.period_s, base.period_s)
        rows.append((f"{row.cap_w:g}", str(row.repeats), *_means(row), energy, time, *rest, _remark(panel, row)))
    titles = ("cap W", "runs", f"W{label}", f"J{label}", "s", "energy %", "time %", *_RATIOS, "")
    return Table(heading=f"Caps of {panel.curve}", titles=titles, rows=tuple(rows))


def of_gpus(panel: Panel, *, emulated: bool) -> Table:
    """The GPUs' part in what the table of caps has of the whole node."""
    label = " (emulated)" if emulated else ""
    base = None if panel.baseline is None else panel.baseline.measurement.of_gpus()
    rows = []
    for row in panel.rows:
        mean = row.measurement.of_gpus()
        watts = _with_sd(mean.power_w, row.gpus_power_sd_w, 1)
        joules = _with_sd(mean.energy_per_iteration_j, row.gpus_energy_sd_j, 1)
        rows.append(("", f"{row.cap_w:g}", watts, joules, *_compared(mean, base), _remark(panel, row)))
    titles = ("GPUs alone", "cap W", f"W{label}", f"J{label}", "energy %", *_RATIOS, "")
    return Table(heading=f"The GPUs' part of {panel.curve}", titles=titles, rows=tuple(rows))


def bests(summary: SweepSummary, panel: Panel, base: Measurement) -> Table:
    """The best cap by each metric, as tables 2 and 3 of Krzywaniak et al. 2022 have it."""
    joules = "energy J (emulated)" if summary.modelled else "energy J"
    rows = [_best_row("baseline", panel.row(panel.gpus.baseline_w), base)]
    rows += [_best_row(f"min {best.metric}", panel.row(best.cap_w[0]), base, best) for best in panel.best_by_metric]
    if panel.chosen is not None:
        row = panel.row(panel.chosen.cap_w[0])
        rows.append(_best_row("asked for", row, base, panel.chosen, f": {asked_for(summary.metric)}"))
    titles = (
        "target", "cap W", "average W", joules, "vs baseline %", "time s", "vs baseline %", "metric / baseline's"
    )  # fmt: skip
    return Table(heading=f"Best caps of {panel.curve}", titles=titles, rows=tuple(rows))


def left_out(panel: Panel) -> Iterator[str]:
    """What is not averaged, and why."""
    if panel.left_out:
        yield f"runs that are not averaged: {len(panel.left_out)}"
    for one in panel.left_out[:_MAX_LEFT_OUT]:
        run = one.finished.run
        which = "warming up" if run.repeat == DISCARDED else f"run {run.repeat}"
        yield f"  {run.cap_w:g} W, {which}: {one.reason}"
    if len(panel.left_out) > _MAX_LEFT_OUT:
        yield f"  and {len(panel.left_out) - _MAX_LEFT_OUT} more"


def _means(row: CapRow) -> list[str]:
    mean = row.measurement
    return [
        _with_sd(mean.power_w, row.power_sd_w, 1),
        _with_sd(mean.energy_per_iteration_j, row.energy_sd_j, 1),
        _with_sd(mean.period_s, row.time_sd_s, 2),
    ]


def _compared(mean: Measurement, base: Measurement | None) -> list[str]:
    """Energy and the ratios that every cap is shown with."""
    if base is None:
        return ["–"] * (1 + len(_RATIOS))
    change = _change(mean.energy_per_iteration_j, base.energy_per_iteration_j)
    return [change, *(f"{METRICS[name].cost(mean, base).value:.4f}" for name in _RATIOS)]


def _with_sd(mean: float, sd: float | None, digits: int) -> str:
    return f"{mean:.{digits}f}" if sd is None else f"{mean:.{digits}f} ± {sd:.{digits}f}"


def _remark(panel: Panel, row: CapRow) -> str:
    if row is panel.baseline:
        return "baseline"
    if len(row.gpu_power_w) > 1:
        return "each " + "/".join(f"{watts:.0f}" for watts in row.gpu_power_w) + " W"
    return ""


def _best_row(
    target: str, row: CapRow, base: Measurement, best: BestCap | None = None, remark: str = ""
) -> tuple[str, ...]:
    mean = row.measurement
    return (
        target,
        f"{row.cap_w:g}",
        f"{mean.power_w:.1f}",
        f"{mean.energy_per_iteration_j:.1f}",
        "–" if best is None else _change(mean.energy_per_iteration_j, base.energy_per_iteration_j),
        f"{mean.period_s:.2f}",
        "–" if best is None else _change(mean.period_s, base.period_s),
        ("" if best is None else with_error(best.cost, best.cost_stderr)) + remark,
    )


def _change(value: float, base: float) -> str:
    return "0" if value == base else f"{100 * (value / base - 1):+.1f}"
