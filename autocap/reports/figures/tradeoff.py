"""Energy against time: what each cap saves and costs (Krzywaniak et al. 2022, fig. 1)."""

from collections.abc import Iterator, Sequence

import numpy as np

from autocap.reports.figures.curve import Curve, title
from autocap.reports.figures.layout import spanning
from autocap.reports.figures.model import Axis, Colour, Floats, Line, Marker, Picture, Plot, Points, Style
from autocap.reports.summary.gains import ENERGY, TIME, CapCosts

_MEASURED = Style(colour=Colour.BLUE)
_PREDICTED = Style(colour=Colour.SKY, marker=Marker.RING, width=1.0)
_FRONT = Style(colour=Colour.BLUE, width=1.5)
_BASELINE = Style(colour=Colour.INK, marker=Marker.DIAMOND)
_KEPT = Style(colour=Colour.VERMILION, marker=Marker.STAR)
_ISO_DASHES: tuple[tuple[float, ...], ...] = ((6, 3), (1, 2.5), (6, 2, 1, 2), (3, 3), (8, 2, 2, 2))
_ISO_POINTS = 200


def tradeoff(curves: Sequence[Curve], note: str, *, of: str = "iteration", kept: str = "kept, confirmed") -> Picture:
    """One panel for each network or GPU set. note: as in Picture. of: what time and energy are of. kept: what the cap
    that was kept is called."""
    shown = ", the caps beside their points, watts" if any(len(curve.measured) > 1 for curve in curves) else ""
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
    baseline = [one for one in curve.measured if one.cap_w == curve.baseline_w]
    others = [one for one in curve.measured if one.cap_w != curve.baseline_w]
    known = {one.cap_w for one in curve.measured}
    front = [Line(name="Pareto front", style=_FRONT, x=curve.front[:, 0], y=curve.front[:, 1])]
    predicted = [one for one in curve.predicted if one.cap_w not in known]
    groups = (("predicted", _PREDICTED, predicted), ("measured", _MEASURED, others), ("baseline", _BASELINE, baseline))
    marks = [_points(name, style, some) for name, style, some in groups if some]
    if curve.kept is not None:
        marks.append(_points(kept, _KEPT, [curve.kept], labelled=False))
    x = spanning(f"time per {of} / baseline's", [_reach(p.x, p.x_error, sign) for p in marks for sign in (-1, 1)])
    y = spanning(f"energy per {of} / baseline's", [_reach(p.y, p.y_error, sign) for p in marks for sign in (-1, 1)])
    return Plot(title=curve.name or None, x=x, y=y, marks=(*front, *_iso_lines(curve, x, y), *marks), share=1.0)


def _points(name: str, style: Style, some: Sequence[CapCosts], *, labelled: bool = True) -> Points:
    measured = name != "predicted"
    return Points(
        name=name,
        style=style,
        x=np.array([one.costs[TIME].value for one in some]),
        y=np.array([one.costs[ENERGY].value for one in some]),
        x_error=np.array([one.costs[TIME].stderr for one in some]) if measured else None,
        y_error=np.array([one.costs[ENERGY].stderr for one in some]) if measured else None,
        labels=tuple(cap_label(one.cap_w) for one in some) if measured and labelled else (),
    )


def _reach(values: Floats, errors: Floats | None, sign: int) -> Floats:
    return values if errors is None else values + sign * np.where(np.isfinite(errors), errors, 0.0)


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


def cap_label(cap_w: Sequence[float]) -> str:
    """`160`, or `100–160` where devices have caps of their own."""
    low, high = min(cap_w), max(cap_w)
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"
