"""The document of a sweep and its pictures: tables, and a panel in each picture, for each GPU set."""

import shlex
from collections.abc import Iterator, Sequence

from autocap.events import Event
from autocap.metrics import Metric
from autocap.records import Measurement
from autocap.reports.document import Document, Fact, Sentences, Table
from autocap.reports.figures.caps import caps
from autocap.reports.figures.curve import Curve, front_of, with_own
from autocap.reports.figures.model import Picture
from autocap.reports.figures.tradeoff import tradeoff
from autocap.reports.rendering import Presentation
from autocap.reports.summary.gains import Measured, costs_by_cap, relative_to
from autocap.reports.summary.summarise import metric_of
from autocap.reports.wording import node as node_wording
from autocap.reports.wording import run as run_wording
from autocap.reports.wording.numbers import change
from autocap.runlog.codec import encode
from autocap.sweep import wording
from autocap.sweep.summary import Panel, SweepSummary, summarise


def present_sweep(events: Sequence[Event]) -> Presentation:
    """The report on an `autocap sweep`, finished or not. Raises RunDirectoryError as `summarise`."""
    summary = summarise(events)
    return Presentation(document=_document(summary), pictures=lambda: tuple(_pictures(summary)), result=encode(summary))


def _document(summary: SweepSummary) -> Document:
    metric = metric_of(summary.metric)
    facts = [list(_facts(summary, panel, metric)) for panel in summary.panels]
    ended = summary.ended_because + (f"; runs left: {summary.runs_left}" if summary.runs_left else "")
    names = ", ".join(dict.fromkeys(gpu.name for panel in summary.panels for gpu in panel.gpus.gpus))
    return Document(
        kicker=f"autocap sweep · {names}",
        headline=_headline(summary),
        remarks=tuple(_remarks(summary)),
        aim=f"up to {summary.plan.repeats} runs per cap in {summary.plan.order} order; ended: {ended}",
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
    best = None if panel.chosen is None else panel.chosen.cap_w
    return Curve(
        name=panel.curve,
        metrics=metrics,
        baseline_w=base.cap_w,
        measured=measured,
        kept=next((one for one in measured if one.cap_w == best != base.cap_w), None),
        front=front_of(panel.pareto),
    )


def _pictures(summary: SweepSummary) -> Iterator[Picture]:
    metric = metric_of(summary.metric)
    curves = [curve for panel in summary.panels if (curve := curve_of(panel, metric)) is not None]
    note = run_wording.EMULATED if summary.plan.emulated else ""
    if any(len(curve.measured) > 1 for curve in curves):
        yield tradeoff(curves, note, of="run", kept=f"best by {run_wording.asked_for(summary.metric)}")
        yield caps(curves, note, of="run")


def _headline(summary: SweepSummary) -> str:
    caps_w = [panel.chosen.cap_w[0] for panel in summary.panels if panel.chosen is not None]
    found = list(dict.fromkeys(f"{cap_w:g}" for cap_w in caps_w))
    if not found:
        return "Nothing to compare yet"
    return f"Best by {run_wording.asked_for(summary.metric)}: {', '.join(found)} W"


def _remarks(summary: SweepSummary) -> Iterator[str]:
    """What is counted, what the machine draws at rest, and which cap is best on each GPU set of several."""
    yield from _of_node(summary)
    several = len(summary.panels) > 1
    for panel in summary.panels:
        yield from (f"{panel.curve}: {text}" if several else text for text in _at_rest(panel))
        if several and panel.chosen is not None:
            cost = f"{panel.chosen.cost:.4f} ± {panel.chosen.cost_stderr:.4f}"
            yield f"best on {panel.curve}: {panel.chosen.cap_w[0]:g} W, {panel.chosen.metric} {cost} of the baseline's"


def _of_node(summary: SweepSummary) -> list[str]:
    return node_wording.heading(summary.panels[0].node, summary.plan.device.partition(":")[0])


def _at_rest(panel: Panel) -> list[str]:
    return [] if panel.node is None else node_wording.at_rest(panel.node, when="between the runs", per="run")


def _facts(summary: SweepSummary, panel: Panel, metric: Metric) -> Iterator[Fact]:
    if panel.chosen is None or panel.baseline is None:
        return
    best = panel.row(panel.chosen.cap_w[0]).measurement
    names = ("energy per run" + (" (emulated)" if summary.modelled else ""), "time per run", metric.name)
    for name, ratio in zip(names, relative_to(best, panel.baseline.measurement, metric), strict=True):
        value = change(100 * (ratio.value - 1), 100 * ratio.stderr)
        yield Fact(name=name, value=value, note=f"at {panel.chosen.cap_w[0]:g} W, against the baseline")


def _body(summary: SweepSummary, ended: str) -> Iterator[Sentences | Table]:
    label = f" ({run_wording.EMULATED})" if summary.plan.emulated else ""
    yield Sentences(lines=(f"sweep of {shlex.join(summary.command)}{label}; ended: {ended}", *_of_node(summary)))
    for panel in summary.panels:
        names = ", ".join(dict.fromkeys(gpu.name for gpu in panel.gpus.gpus))
        found = f"GPU {panel.gpus.label}: {names}; limit found on arrival {panel.gpus.baseline_w:g} W"
        yield Sentences(lines=(found,))
        if panel.rows:
            yield wording.caps(panel, emulated=summary.modelled)
        if panel.rows and panel.node is not None:
            yield Sentences(lines=tuple(_at_rest(panel)))
            yield wording.of_gpus(panel, emulated=summary.plan.emulated)
        if panel.baseline is None:
            yield Sentences(lines=("the limit found on arrival was not measured, so there is nothing to compare",))
        else:
            yield from _comparison(summary, panel, panel.baseline.measurement)
        left_out = tuple(wording.left_out(panel))
        if left_out:
            yield Sentences(lines=left_out, warning=True)


def _comparison(summary: SweepSummary, panel: Panel, baseline: Measurement) -> Iterator[Table]:
    yield wording.bests(summary, panel, baseline)
    if panel.best_by_metric_gpu:
        heading = f"Best caps of {panel.curve}, by the node and by the GPUs alone"
        yield run_wording.bests(panel.best_by_metric, panel.best_by_metric_gpu, heading)
    heading = f"Energy and time of {panel.curve} that no other cap beats"
    yield run_wording.front(panel.pareto, heading, emulated=summary.modelled)
