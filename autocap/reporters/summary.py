"""A run as text: the baseline, every trial, what is kept, and what that saves, with uncertainties."""

import io
import shlex
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from autocap.records import Measurement
from autocap.reporters import node
from autocap.rounding import with_error
from autocap.summary import PREDICTED, Summary, TrialSummary, VersusBaseline

_WIDTH = 120
_MANY_PREDICTED = 8
_MANY = 4  # different caps on the GPUs of one job, of which a range says enough


def lines(summary: Summary, width: int = _WIDTH) -> list[str]:
    """What the run came to, line by line, without colour."""
    if summary.baseline is None:
        return [*_heading(summary), "no baseline was measured, so there is nothing to compare"]
    table = _drawn(_table(summary, summary.baseline), width)
    told = [*_heading(summary), "", *table, "", *_outcome(summary), *_savings(summary)]
    if summary.node is not None:
        told += [*node.at_rest(summary.node), "", *_drawn(_of_gpus(summary, summary.baseline), width)]
    if not summary.trials:
        return told
    return [*told, "", *_drawn(_bests(summary), width), "", *_drawn(_front(summary), width)]


def warnings(summary: Summary) -> list[str]:
    """What was warned of while it ran."""
    return [f"warning: {text}" for text in summary.warnings]


def _heading(summary: Summary) -> list[str]:
    device = summary.device
    if device is None:
        return [f"{shlex.join(summary.command)}: not tuned: {summary.ended_because}"]
    names = ", ".join(dict.fromkeys(gpu.name for gpu in device.gpus))
    count = f"{len(device.gpus)} × " if len(device.gpus) > 1 else ""
    label = " (EMULATED power: modelled, not measured)" if device.emulated else ""
    metric = summary.metric.name + (f" k={summary.metric.k:g}" if summary.metric.k is not None else "")
    limit = f", at most {100 * summary.metric.max_slowdown:g} % slower" if summary.metric.max_slowdown else ""
    progress = f", iterations from {summary.progress.kind}" if summary.progress else ""
    return [
        f"{count}{names}{label}",
        f"minimising {metric}{limit} with strategy {summary.strategy.name}{progress}; ended: {summary.ended_because}",
        *([node.heading(summary.node, emulated=device.kind == "emulated")] if summary.node else []),
    ]


def _table(summary: Summary, baseline: Measurement) -> Table:
    watts, joules = ("W (emulated)", "J/iter (emulated)") if _emulated(summary) else ("W", "J/iter")
    table = _plain_table("cap W", watts, "s/iter", joules, "energy %", "time %", summary.metric.name, "")
    table.add_row(_caps(baseline.cap_w), *_measured(baseline, baseline), "1", "baseline")
    for trial in summary.trials:
        table.add_row(_caps(trial.cap_w), *_trial(trial, baseline))
    if summary.chosen is not None and summary.chosen.measurement is not None:
        kept = summary.chosen
        cells = _measured(summary.chosen.measurement, baseline)
        versus = summary.versus_baseline
        if versus is not None and versus.energy_pct is not None and versus.time_pct is not None:
            # Against the baseline's windows between its own, not against the first one.
            cells[3:] = [f"{versus.energy_pct:+.1f}", f"{versus.time_pct:+.1f}"]
        table.add_row(_caps(kept.cap_w), *cells, _metric_of(versus), "kept, confirmed")
    return table


def _trial(trial: TrialSummary, baseline: Measurement) -> list[str]:
    note = trial.state.value if trial.reason is None else f"{trial.state.value}: {trial.reason}"
    if trial.measurement is None or trial.cost is None or trial.cost_stderr is None:
        return ["–"] * 6 + [note]
    return [*_measured(trial.measurement, baseline), f"{trial.cost:.4f} ± {trial.cost_stderr:.4f}", note]


def _measured(m: Measurement, baseline: Measurement) -> list[str]:
    energy = 100 * (m.energy_per_iteration_j / baseline.energy_per_iteration_j - 1)
    time = 100 * (m.period_s / baseline.period_s - 1)
    return [
        f"{m.power_w:.1f}",
        with_error(m.period_s, m.period_s * m.period_rel_stderr),
        with_error(m.energy_per_iteration_j, m.energy_per_iteration_j * m.energy_rel_stderr),
        f"{energy:+.1f}" if m is not baseline else "0",
        f"{time:+.1f}" if m is not baseline else "0",
    ]


def _of_gpus(summary: Summary, baseline: Measurement) -> Table:
    """The GPUs' part in what the first table has of the whole node."""
    watts, joules = ("W (emulated)", "J/iter (emulated)") if _emulated_gpus(summary) else ("W", "J/iter")
    table = _plain_table("GPUs alone", "cap W", watts, joules, "energy %", "")
    kept, versus = summary.chosen.measurement if summary.chosen else None, summary.versus_baseline
    shown = [(baseline, "baseline"), *((trial.measurement, trial.state.value) for trial in summary.trials)]
    for measurement, note in [*shown, (kept, "kept, confirmed")]:
        if measurement is not None:
            watts, _, joules, energy, _ = _measured(measurement.of_gpus(), baseline.of_gpus())
            if measurement is baseline:
                energy = "0"
            elif measurement is kept and versus is not None and versus.gpu_energy_pct is not None:
                energy = f"{versus.gpu_energy_pct:+.1f}"
            table.add_row("", _caps(measurement.cap_w), watts, joules, energy, note)
    return table


def _bests(summary: Summary) -> Table:
    """The best cap by each metric, whatever the run minimised; by the GPUs' energy alone as well."""
    if summary.node is None:
        table = _plain_table("best for", "cap W", "metric / baseline's", "")
        for best in summary.best_by_metric:
            table.add_row(best.metric, _caps(best.cap_w), with_error(best.cost, best.cost_stderr), best.source)
        return table
    value = "metric / baseline's"
    table = _plain_table("best for", "node: cap W", value, "GPUs alone: cap W", value, "")
    for best, of_gpus in zip(summary.best_by_metric, summary.best_by_metric_gpu, strict=True):
        cells = (cell for one in (best, of_gpus) for cell in (_caps(one.cap_w), with_error(one.cost, one.cost_stderr)))
        table.add_row(best.metric, *cells, best.source)
    return table


def _front(summary: Summary) -> Table:
    """The Pareto front; of the caps that were only predicted a few."""
    energy = "energy (emulated)" if _emulated(summary) else "energy"
    table = _plain_table("Pareto front", f"{energy} / baseline's", "time / baseline's", "")
    hoped = [point for point in summary.pareto if point.source == PREDICTED]
    shown = hoped[:: 1 + len(hoped) // _MANY_PREDICTED]
    for point in summary.pareto:
        if point.source != PREDICTED or point in shown:
            table.add_row(
                f"{_caps(point.cap_w)} W",
                with_error(point.energy, point.energy_stderr),
                with_error(point.time, point.time_stderr),
                point.source,
            )
    return table


def _plain_table(*titles: str) -> Table:
    """Right-aligned columns, and a last one for remarks."""
    table = Table(box=None, pad_edge=False, header_style="")
    for title in titles[:-1]:
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column(titles[-1], justify="left")
    return table


def _metric_of(versus: VersusBaseline | None) -> str:
    if versus is None or versus.metric_pct is None or versus.metric_stderr_pct is None:
        return "–"
    return f"{1 + versus.metric_pct / 100:.4f} ± {versus.metric_stderr_pct / 100:.4f}"


def _outcome(summary: Summary) -> list[str]:
    if summary.chosen is None and not summary.trials:
        return ["no cap was tried."]
    if summary.chosen is None:
        return ["no cap was kept: the limit found on arrival was put back."]
    versus = summary.versus_baseline
    kept = f"kept {_caps(summary.chosen.cap_w)} W"
    if versus is None or versus.energy_pct is None or versus.time_pct is None or versus.metric_pct is None:
        return [kept]
    energy = f"energy {versus.energy_pct:+.1f} ± {versus.energy_stderr_pct or 0:.1f} %"
    if versus.gpu_energy_pct is not None:
        energy += f" (GPUs alone {versus.gpu_energy_pct:+.1f} ± {versus.gpu_energy_stderr_pct or 0:.1f} %)"
    time = f"time {versus.time_pct:+.1f} ± {versus.time_stderr_pct or 0:.1f} %"
    metric = f"{summary.metric.name} {versus.metric_pct:+.1f} ± {versus.metric_stderr_pct or 0:.1f} %"
    return [f"{kept}: {energy}, {time}, {metric} per iteration, against the baseline"]


def _savings(summary: Summary) -> list[str]:
    versus, totals = summary.versus_baseline, summary.totals
    if versus is None or totals is None or not summary.trials:
        return []
    out = []
    if versus.net_energy_j is not None and versus.net_metric_pct is not None:
        emulated = " (emulated)" if _emulated(summary) else ""
        error = f" ± {versus.net_metric_stderr_pct:.1f}" if versus.net_metric_stderr_pct is not None else ""
        out.append(
            f"net of the search: {versus.net_energy_j:+.0f} J{emulated} over {totals.iterations:.0f} iterations in "
            f"{totals.wall_s:.0f} s, {summary.metric.name} {versus.net_metric_pct:+.1f}{error} %"
        )
    paid = "" if versus.break_even_s is None else f"; it has paid for itself by {versus.break_even_s:.0f} s"
    out.append(f"the search took {totals.exploration_s:.0f} s{paid}")
    return out


def _emulated(summary: Summary) -> bool:
    """Whether the energy that counts is modelled; what a meter of the whole node reads is not."""
    return _emulated_gpus(summary) and not (summary.node is not None and summary.node.whole)


def _emulated_gpus(summary: Summary) -> bool:
    return summary.device is not None and summary.device.emulated


def _caps(caps_w: Sequence[float]) -> str:
    """`160` for one common cap, `160/165` where they differ, `160–195` where there are many of them."""
    different = list(dict.fromkeys(f"{cap:g}" for cap in caps_w))
    return "/".join(different) if len(different) < _MANY else f"{min(caps_w):g}–{max(caps_w):g}"


def _drawn(table: Table, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    with console.capture() as capture:
        console.print(table)
    return [line.rstrip() for line in capture.get().splitlines()]
