"""The document of a sweep and its pictures: tables, and a panel in each picture, for each GPU set."""

import shlex
from collections.abc import Iterator, Sequence

from autocap.events import Event
from autocap.events.sweep import DISCARDED
from autocap.metrics import Metric
from autocap.records import Measurement
from autocap.reports.document import Document, Fact, Sentences, Table
from autocap.reports.figures.caps import Curve, caps, front_of, own_name, tradeoff, with_own
from autocap.reports.figures.model import Picture
from autocap.reports.rendering import OF_PROXY, Presentation, without
from autocap.reports.summary.gains import METRICS, Measured, costs_by_cap, relative_to
from autocap.reports.summary.record import BestCap
from autocap.reports.summary.summarise import metric_of
from autocap.reports.wording import run as run_wording
from autocap.reports.wording.numbers import change, ratio, with_error
from autocap.sweep.summary import CapRow, Panel, SweepSummary, summarise
from autocap.wire.codec import encode

_RATIOS = ("edp", "eds_2", "eds_1.5")  # shown for every cap, besides energy and time
_MAX_LEFT_OUT = 10
_ONCE = "every cap was run once, so nothing is known of errors, and caps may differ by chance: --repeats 3 would tell"


def present_sweep(events: Sequence[Event]) -> Presentation:
    """The report on an `autocap sweep`, finished or not. Raises RunDirectoryError as `summarise`."""
    summary = summarise(events)
    result = encode(summary)
    assert isinstance(result, dict)
    return Presentation(
        document=_document(summary),
        pictures=lambda: tuple(_pictures(summary)),
        result=without(OF_PROXY, result),
    )


def _document(summary: SweepSummary) -> Document:
    metric = metric_of(summary.metric)
    facts = [list(_facts(summary, panel, metric)) for panel in summary.panels]
    ended = summary.ended_because + (f"; runs left: {summary.runs_left}" if summary.runs_left else "")
    names = ", ".join(dict.fromkeys(gpu.name for panel in summary.panels for gpu in panel.gpus.gpus))
    repeats = "one run" if summary.plan.repeats == 1 else f"up to {summary.plan.repeats} runs"
    return Document(
        kicker=f"autocap sweep · {names}",
        headline=_headline(summary),
        remarks=tuple(_remarks(summary)),
        aim="; ".join(
            [
                f"{repeats} per cap in {summary.plan.order} order",
                *_meaning(summary),
                f"ended: {ended}",
            ]
        ),
        label=run_wording.EMULATED if summary.plan.emulated else "",
        facts=tuple(facts[0]) if len(facts) == 1 else (),
        warnings=summary.warnings,
        body=tuple(_body(summary, ended)),
        job=(
            ("command", shlex.join(summary.command)),
            ("started", summary.started_at),
            ("ended", ended),
        ),
        version=summary.autocap_version,
    )


def curve_of(panel: Panel, metric: Metric) -> Curve | None:
    """The curve of a GPU set; `None` before the limit found on arrival was measured."""
    if panel.baseline is None:
        return None
    base, metrics = panel.baseline.measurement, with_own(metric)
    measured = costs_by_cap([Measured(measurement=row.measurement, baseline=base) for row in panel.rows], base, metrics)
    best = None if panel.chosen is None else panel.chosen.setting
    return Curve(
        name=panel.curve,
        metrics=metrics,
        asked_for=own_name(metric),
        baseline_w=base.setting,
        measured=measured,
        kept=next((one for one in measured if one.setting == best != base.setting), None),
        front=front_of(panel.pareto),
    )


def _pictures(summary: SweepSummary) -> Iterator[Picture]:
    metric = metric_of(summary.metric)
    curves = [curve for panel in summary.panels if (curve := curve_of(panel, metric)) is not None]
    note = run_wording.EMULATED if summary.plan.emulated else ""
    if any(len(curve.measured) > 1 for curve in curves):
        yield tradeoff(curves, note, of="run", kept=f"best by {run_wording.asked_for(summary.metric)}")
        yield from caps(curves, note, of="run")


def _headline(summary: SweepSummary) -> str:
    caps_w = [panel.chosen.setting[0] for panel in summary.panels if panel.chosen is not None]
    found = list(dict.fromkeys(f"{cap_w:g}" for cap_w in caps_w))
    if not found:
        return "Nothing to compare yet"
    return f"Best by {run_wording.asked_for(summary.metric)}: {', '.join(found)} W"


def _remarks(summary: SweepSummary) -> Iterator[str]:
    """What is counted, what the machine draws at rest, and which cap is best on each GPU set of several."""
    yield from _about(summary)
    several = len(summary.panels) > 1
    for panel in summary.panels:
        yield from (f"{panel.curve}: {text}" if several else text for text in _at_rest(panel))
        if several and panel.chosen is not None:
            cost = ratio(panel.chosen.cost, panel.chosen.cost_stderr)
            best = panel.chosen
            yield f"best on {panel.curve}: {best.setting[0]:g} W, {best.metric} {cost} of the baseline's"


def _meaning(summary: SweepSummary) -> list[str]:
    return [run_wording.meaning(summary.metric)] if summary.metric.name == "eds" else []


def _about(summary: SweepSummary) -> list[str]:
    """What is counted, and that nothing is known of errors."""
    counted = run_wording.node_heading(summary.panels[0].node, summary.plan.device.partition(":")[0])
    return [*counted, *([_ONCE] if summary.has_no_errors else [])]


def _at_rest(panel: Panel) -> list[str]:
    return [] if panel.node is None else run_wording.node_at_rest(panel.node, when="between the runs", per="run")


def _facts(summary: SweepSummary, panel: Panel, metric: Metric) -> Iterator[Fact]:
    if panel.chosen is None or panel.baseline is None:
        return
    best = panel.row(panel.chosen.setting[0]).measurement
    names = ("energy per run" + (" (emulated)" if summary.modelled else ""), "time per run", metric.name)
    for name, found in zip(names, relative_to(best, panel.baseline.measurement, metric), strict=True):
        value = change(100 * (found.value - 1), 100 * found.stderr)
        yield Fact(name=name, value=value, note=f"at {panel.chosen.setting[0]:g} W, against the baseline")


def _body(summary: SweepSummary, ended: str) -> Iterator[Sentences | Table]:
    label = f" ({run_wording.EMULATED})" if summary.plan.emulated else ""
    about = f"sweep of {shlex.join(summary.command)}{label}; ended: {ended}"
    yield Sentences(lines=(about, *_meaning(summary), *_about(summary)))
    for panel in summary.panels:
        names = ", ".join(dict.fromkeys(gpu.name for gpu in panel.gpus.gpus))
        found = f"GPU {panel.gpus.label}: {names}; limit found on arrival {panel.gpus.baseline_w:g} W"
        yield Sentences(lines=(found,))
        if panel.rows:
            yield _cap_table(panel, emulated=summary.modelled)
        if panel.rows and panel.node is not None:
            yield Sentences(lines=tuple(_at_rest(panel)))
            yield _gpu_table(panel, emulated=summary.plan.emulated)
        if panel.baseline is None:
            yield Sentences(lines=("the limit found on arrival was not measured, so there is nothing to compare",))
        else:
            yield from _comparison(summary, panel, panel.baseline.measurement)
        left_out = tuple(_left_out(panel))
        if left_out:
            yield Sentences(lines=left_out, warning=True)


def _comparison(summary: SweepSummary, panel: Panel, baseline: Measurement) -> Iterator[Table]:
    yield _best_table(summary, panel, baseline)
    if panel.best_by_metric_gpu:
        heading = f"Best caps of {panel.curve}, by the node and by the GPUs alone"
        yield run_wording.bests(panel.best_by_metric, panel.best_by_metric_gpu, heading)
    heading = f"Pareto front: energy and time of {panel.curve} that no other cap beats"
    yield run_wording.front(panel.pareto, heading, emulated=summary.modelled)


def _cap_table(panel: Panel, *, emulated: bool) -> Table:
    """Means and sample standard deviations of every cap; ratios are to the baseline."""
    note = "emulated" if emulated else ""
    base = None if panel.baseline is None else panel.baseline.measurement
    rows = []
    for row in panel.rows:
        energy, *rest = _compared(row.measurement, base)
        time = "–" if base is None else _change(row.measurement.period_s, base.period_s)
        rows.append((f"{row.cap_w:g}", str(row.repeats), *_means(row), energy, time, *rest, _remark(panel, row)))
    titles = ("cap W", "runs", "W", "J", "s", "energy %", "time %", *_RATIOS, "")
    heading = f"Caps of {panel.curve}"
    return Table(heading=heading, note=note, titles=titles, rows=tuple(rows), spare=(4, 3, 2, 1, 9, 7))


def _gpu_table(panel: Panel, *, emulated: bool) -> Table:
    """The GPUs' part in what the table of caps has of the whole node."""
    note = "emulated" if emulated else ""
    base = None if panel.baseline is None else panel.baseline.measurement.of_gpus()
    rows = []
    for row in panel.rows:
        mean = row.measurement.of_gpus()
        watts = _with_sd(mean.power_w, row.gpus_power_sd_w, 1)
        joules = _with_sd(mean.energy_per_iteration_j, row.gpus_energy_sd_j, 1)
        rows.append((f"{row.cap_w:g}", watts, joules, *_compared(mean, base), _remark(panel, row)))
    titles = ("cap W", "W", "J", "energy %", *_RATIOS, "")
    heading = f"The GPUs' part of {panel.curve}"
    return Table(heading=heading, note=note, titles=titles, rows=tuple(rows), spare=(2, 1, 6, 4))


def _best_table(summary: SweepSummary, panel: Panel, base: Measurement) -> Table:
    """The best cap by each metric, as tables 2 and 3 of Krzywaniak et al. 2022 have it."""
    note = "the baseline's metric is 1" + ("; emulated" if summary.modelled else "")
    rows = [_best_row("baseline", panel.row(panel.gpus.baseline_w), base)]
    rows += [_best_row(f"min {best.metric}", panel.row(best.setting[0]), base, best) for best in panel.best_by_metric]
    if panel.chosen is not None:
        row = panel.row(panel.chosen.setting[0])
        rows.append(_best_row("asked for", row, base, panel.chosen, f": {run_wording.asked_for(summary.metric)}"))
    titles = ("target", "cap W", "W", "J", "energy %", "s", "time %", "metric")
    heading = f"Best caps of {panel.curve}"
    return Table(heading=heading, note=note, titles=titles, rows=tuple(rows), spare=(2, 5, 3, 6, 4), left=(0,))


def _left_out(panel: Panel) -> Iterator[str]:
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
    energy = _change(mean.energy_per_iteration_j, base.energy_per_iteration_j)
    return [energy, *(f"{METRICS[name].cost(mean, base).value:.4f}" for name in _RATIOS)]


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
