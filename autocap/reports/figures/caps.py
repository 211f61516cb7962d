"""What each cap costs: energy, time and the metrics made of them against the cap (Krzywaniak et al. 2022, fig. 2), and
energy against time (fig. 1)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autocap.events import Event, Predicted
from autocap.knobs import POWER_LIMIT, Knob
from autocap.metrics import Metric
from autocap.records import Cost
from autocap.reports.figures.model import (
    Axis,
    Band,
    Colour,
    Floats,
    Line,
    Mark,
    Marker,
    Picture,
    Plot,
    Points,
    Style,
    spanning,
)
from autocap.reports.summary.gains import ENERGY, METRICS, TIME, CapCosts, costs_by_cap, costs_predicted
from autocap.reports.summary.record import ParetoPoint, Summary
from autocap.reports.summary.summarise import last_of, measured_trials, metric_in

_MEASURED = Style(colour=Colour.BLUE)
_PREDICTED = Style(colour=Colour.SKY, marker=Marker.RING, width=1.0)
_FRONT = Style(colour=Colour.BLUE, width=1.5)
_BASELINE = Style(colour=Colour.INK, marker=Marker.DIAMOND)
_KEPT = Style(colour=Colour.VERMILION, marker=Marker.STAR)
_ISO_DASHES: tuple[tuple[float, ...], ...] = ((6, 3), (1, 2.5), (6, 2, 1, 2), (3, 3), (8, 2, 2, 2))
_ISO_POINTS = 200
_STYLES = {
    ENERGY: Style(colour=Colour.BLUE, marker=Marker.DISC),
    TIME: Style(colour=Colour.VERMILION, marker=Marker.SQUARE, dash=(6, 2)),
    "edp": Style(colour=Colour.GREEN, marker=Marker.TRIANGLE, dash=(2, 2)),
    "ed2p": Style(colour=Colour.SKY, marker=Marker.DOWN, dash=(8, 2, 2, 2)),
    "eds_1.5": Style(colour=Colour.PURPLE, marker=Marker.DIAMOND, dash=(4, 2, 1, 2)),
    "eds_2": Style(colour=Colour.ORANGE, marker=Marker.STAR, dash=(1, 2)),
}
_OTHER = Style(colour=Colour.INK, marker=Marker.RING)
_PREDICTED_DASH, _MEASURED_WIDTH = (4.0, 3.0), 1.2
_ONE = Style(colour=Colour.MUTED, width=1.0)
_COLUMNS, _COLUMNS_OF_NAMES = 3, 2
_MOST_TRIALS = 1000  # the last; a search takes some ten


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The caps of one job: costs over the baseline's, TIME and those of `metrics`, by cap, lowest first.

    name: of the network or GPU set, where there are several. asked_for: the one of the metrics that was to be
    minimised. measured: the baseline's among them. kept: the cap that
    the search came to, `None` where there is none; of it energy and time are known, of a run's against its own
    interleaved windows. front: time and energy of the caps that none beats in both, by rising time, shape (n, 2).
    knob: whose settings these are.
    """

    name: str
    metrics: Mapping[str, Metric]
    asked_for: str
    baseline_w: tuple[float, ...]
    measured: tuple[CapCosts, ...]
    predicted: tuple[CapCosts, ...] = ()
    kept: CapCosts | None = None
    front: Floats
    knob: Knob = POWER_LIMIT


def of_run(summary: Summary, events: Sequence[Event]) -> Curve | None:
    """The curve of a run; `None` before its baseline was measured."""
    if summary.baseline is None:
        return None
    metric = metric_in(summary)
    metrics = with_own(metric)
    measured = measured_trials(events)[-_MOST_TRIALS:]
    common = [one for one in measured if len(set(one.measurement.setting)) == 1]  # a cap per GPU is off it
    predicted = last_of(Predicted, events)
    return Curve(
        name="",
        metrics=metrics,
        asked_for=own_name(metric),
        baseline_w=summary.baseline.setting,
        measured=costs_by_cap(common, summary.baseline, metrics),
        predicted=costs_predicted(predicted.caps if predicted else (), summary.baseline, metrics),
        kept=_kept(summary),
        front=front_of(summary.pareto[:_MOST_TRIALS]),
        knob=summary.knob,
    )


def with_own(metric: Metric) -> dict[str, Metric]:
    """The metrics that every report has, and the one that was asked for."""
    name = own_name(metric)
    return dict(METRICS) if name in METRICS else {**METRICS, name: metric}


def own_name(metric: Metric) -> str:
    """What `with_own` calls the metric that was asked for."""
    return metric.name if metric.k is None else f"eds_{metric.k:g}"


def front_of(points: Sequence[ParetoPoint]) -> Floats:
    """Time and energy of a Pareto front, by rising time, shape (n, 2)."""
    return np.array(sorted((point.time, point.energy) for point in points), dtype=np.float64).reshape(-1, 2)


def title(name: str) -> str:
    """A metric's name as the papers write it."""
    if name.startswith("eds_"):
        return f"EDS({name.removeprefix('eds_')})"
    return {"edp": "EDP", "ed2p": "ED²P"}.get(name, name)


def _kept(summary: Summary) -> CapCosts | None:
    versus = summary.versus_baseline
    if summary.chosen is None or versus is None or versus.energy_pct is None or versus.time_pct is None:
        return None
    return CapCosts(
        setting=summary.chosen.setting,
        costs={
            ENERGY: _ratio(versus.energy_pct, versus.energy_stderr_pct),
            TIME: _ratio(versus.time_pct, versus.time_stderr_pct),
        },
    )


def _ratio(change_pct: float, stderr_pct: float | None) -> Cost:
    return Cost(value=1 + change_pct / 100, stderr=np.nan if stderr_pct is None else stderr_pct / 100)


def caps(curves: Sequence[Curve], note: str, *, of: str = "iteration") -> tuple[Picture, ...]:
    """One curve: a panel each for energy, time and the metric that was asked for, and a picture of the other metrics.
    Several: a panel each, its metrics together. note, of: as in `tradeoff`."""
    caption = f"Per {of}, over the baseline's: below 1 is better. Points are measured, with standard errors."
    title = curves[0].knob.said("What each cap costs")
    known = Picture(name="caps", title=title, caption=caption, panels=(), note=note)
    if len(curves) > 1:
        return (replace(known, panels=tuple(_of_curve(curve) for curve in curves), columns=2),)
    (curve,) = curves
    if curve.predicted:
        drawn = "Dashed lines" if curve.knob.ordered else "Rings"
        caption += f" {drawn} are predicted, with the standard deviation of the prediction."
    known = replace(known, caption=caption, columns=_COLUMNS_OF_NAMES if curve.knob.labels else _COLUMNS)
    asked_for = dict.fromkeys((ENERGY, TIME, curve.asked_for))
    others = [name for name in curve.metrics if name not in asked_for]
    return (
        replace(known, panels=_of_metrics(curve, asked_for)),
        replace(
            known,
            name="other-metrics",
            title="The metrics that were not asked for",
            panels=_of_metrics(curve, others),
            folded=True,
        ),
    )


def _of_metrics(curve: Curve, names: Iterable[str]) -> tuple[Plot, ...]:
    return tuple(_of_metric(curve, name) for name in names)


def _of_metric(curve: Curve, name: str) -> Plot:
    style = _STYLES.get(name, _OTHER)
    marks: list[Mark] = []
    if curve.predicted:
        setting, value, error = _series(curve.predicted, name)
        if curve.knob.ordered:
            marks.append(Band(name=None, style=style, x=setting, low=value - error, high=value + error))
            dashed = Style(colour=style.colour, dash=_PREDICTED_DASH)
            marks.append(Line(name="predicted", style=dashed, x=setting, y=value))
        else:  # nothing lies between two of them
            ring = Style(colour=style.colour, marker=Marker.RING)
            marks.append(Points(name="predicted", style=ring, x=setting, y=value, y_error=error))
    setting, value, error = _series(curve.measured, name)
    points = Style(colour=style.colour, marker=style.marker)
    marks.append(Points(name="measured", style=points, x=setting, y=value, y_error=error))
    return _plot(title(name), curve, marks)


def _of_curve(curve: Curve) -> Plot:
    marks: list[Mark] = []
    for name in (ENERGY, TIME, *(name for name in curve.metrics if name not in (ENERGY, "ed2p"))):
        style = _STYLES.get(name, _OTHER)
        setting, value, error = _series(curve.measured, name)
        thin = Style(colour=style.colour, dash=style.dash, width=_MEASURED_WIDTH)
        marks.append(Line(name=None, style=thin, x=setting, y=value))
        marks.append(Points(name=title(name), style=style, x=setting, y=value, y_error=error))
    return _plot(curve.name, curve, marks)


def _plot(name: str, curve: Curve, marks: Sequence[Mark]) -> Plot:
    knob, settings = curve.knob, [float(np.mean(one.setting)) for one in (*curve.measured, *curve.predicted)]
    x = spanning(knob.beside(knob.short), [np.array(settings)])
    if not knob.is_power_limit:
        x = replace(x, names=tuple((place, knob.bare(place)) for place in sorted({*settings} & {*knob.settings})))
    one = Line(name=None, style=_ONE, x=np.array([x.low, x.high]), y=np.ones(2))
    y = spanning("over the baseline's", _extent(marks), around=1.0)
    return Plot(title=name, x=x, y=y, marks=(one, *marks))


def _extent(marks: Iterable[Mark]) -> Iterator[Floats]:
    for mark in marks:
        if isinstance(mark, Band):
            yield from (mark.low, mark.high)
        else:
            yield from _reach(mark.y, mark.y_error if isinstance(mark, Points) else None)


def _series(some: Sequence[CapCosts], name: str) -> tuple[Floats, Floats, Floats]:
    """Cap (the mean over devices), value and standard error, each of shape (n,)."""
    rows = [(float(np.mean(one.setting)), one.costs[name].value, one.costs[name].stderr) for one in some]
    setting, value, error = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return setting, value, error


def tradeoff(curves: Sequence[Curve], note: str, *, of: str = "iteration", kept: str = "kept, confirmed") -> Picture:
    """One panel for each network or GPU set. note: as in Picture. of: what time and energy are of. kept: what the cap
    that was kept is called."""
    knob = curves[0].knob
    beside = ", the caps beside their points, watts"
    if not knob.is_power_limit:
        beside = f", the settings of the {knob.name} beside their points{knob.unit_shown and f', {knob.unit_shown}'}"
    shown = beside if any(len(curve.measured) > 1 for curve in curves) else ""
    remark = " Rings are predicted, not measured." if any(curve.predicted for curve in curves) else ""
    return Picture(
        name="tradeoff",
        title="Energy against time",
        caption=f"Per {of}, the baseline is 1{shown}. Each dashed or dotted line joins what is as good as the "
        f"baseline by one metric: below it is better. Bars are standard errors.{remark}",
        panels=tuple(_panel(curve, of, kept) for curve in curves),
        columns=1 if len(curves) == 1 else 2,
        note=note,
    )


def _panel(curve: Curve, of: str, kept: str) -> Plot:
    baseline = [one for one in curve.measured if one.setting == curve.baseline_w]
    others = [one for one in curve.measured if one.setting != curve.baseline_w]
    known = {one.setting for one in curve.measured}
    front = [Line(name="Pareto front", style=_FRONT, x=curve.front[:, 0], y=curve.front[:, 1])]
    predicted = [one for one in curve.predicted if one.setting not in known]
    groups = (("predicted", _PREDICTED, predicted), ("measured", _MEASURED, others), ("baseline", _BASELINE, baseline))
    marks = [_points(name, style, some, curve.knob) for name, style, some in groups if some]
    if curve.kept is not None:
        marks.append(_points(kept, _KEPT, [curve.kept], curve.knob, labelled=False))
    x = spanning(f"time per {of} / baseline's", [ends for p in marks for ends in _reach(p.x, p.x_error)])
    y = spanning(f"energy per {of} / baseline's", _extent(marks))
    return Plot(title=curve.name or None, x=x, y=y, marks=(*front, *_iso_lines(curve, x, y), *marks), share=1.0)


def _points(name: str, style: Style, some: Sequence[CapCosts], knob: Knob, *, labelled: bool = True) -> Points:
    measured = name != "predicted"
    (_, x, x_error), (_, y, y_error) = _series(some, TIME), _series(some, ENERGY)
    return Points(
        name=name,
        style=style,
        x=x,
        y=y,
        x_error=x_error if measured else None,
        y_error=y_error if measured else None,
        labels=tuple(cap_label(one.setting, knob) for one in some) if measured and labelled else (),
    )


def _reach(values: Floats, errors: Floats | None) -> tuple[Floats, Floats]:
    """Both ends of error bars; the values themselves where an error is not known."""
    known = 0.0 if errors is None else np.where(np.isfinite(errors), errors, 0.0)
    return values - known, values + known


def _iso_lines(curve: Curve, x: Axis, y: Axis) -> Iterator[Line]:
    """For each metric the energies and times that are worth the baseline's, as far as they are on the axes."""
    time = np.linspace(x.low, x.high, _ISO_POINTS)
    names = [name for name in curve.metrics if name != "ed2p" and curve.metrics[name].name != "cost"]
    for name, dash in zip(names, _ISO_DASHES, strict=False):
        energy = _worth_one(curve, name, time)
        on = (energy >= y.low) & (energy <= y.high)
        if on.any():
            style = Style(colour=Colour.MUTED, dash=dash, width=1.2)
            yield Line(name=f"equal {title(name)}", style=style, x=time[on], y=energy[on])


def _worth_one(curve: Curve, name: str, time: Floats) -> Floats:
    """The energy with which a metric is 1 at each time; all of them are linear in the energy."""
    match curve.metrics[name]:
        case metric if metric.k is not None:
            return (metric.k - time) / (metric.k - 1)
        case metric if metric.name == "edp":
            return 1 / time
    return np.ones_like(time)


def cap_label(setting: Sequence[float], knob: Knob) -> str:
    """`160`, or `100–160` where devices have caps of their own."""
    low, high = min(setting), max(setting)
    return knob.bare(low) if low == high else f"{knob.bare(low)}–{knob.bare(high)}"
