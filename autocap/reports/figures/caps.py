"""Energy, time and the metrics made of them against the cap (Krzywaniak et al. 2022, fig. 2)."""

from collections.abc import Iterable, Sequence

import numpy as np

from autocap.reports.figures.curve import Curve, title
from autocap.reports.figures.layout import spanning
from autocap.reports.figures.model import Band, Colour, Floats, Line, Mark, Marker, Picture, Plot, Points, Style
from autocap.reports.summary.gains import ENERGY, TIME, CapCosts

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
_COLUMNS = 3


def caps(curves: Sequence[Curve], note: str, *, of: str = "iteration") -> Picture:
    """One curve: a panel a metric. Several: a panel each, its metrics together. note, of: as in `tradeoff`."""
    if len(curves) == 1:
        panels = tuple(_of_metric(curves[0], name) for name in _names(curves[0]))
        remark = (
            " Dashed lines are predicted, with the standard deviation of the prediction." if curves[0].predicted else ""
        )
    else:
        panels, remark = tuple(_of_curve(curve) for curve in curves), ""
    return Picture(
        name="caps",
        title="What each cap costs",
        caption=f"Per {of}, over the baseline's: below 1 is better. Points are measured, with standard errors.{remark}",
        panels=panels,
        columns=_COLUMNS if len(curves) == 1 else 2,
        note=note,
    )


def _names(curve: Curve) -> list[str]:
    return [ENERGY, TIME, *(name for name in curve.metrics if name != ENERGY)]


def _of_metric(curve: Curve, name: str) -> Plot:
    style = _STYLES.get(name, _OTHER)
    marks: list[Mark] = []
    if curve.predicted:
        cap_w, value, error = _series(curve.predicted, name)
        marks.append(Band(name=None, style=style, x=cap_w, low=value - error, high=value + error))
        dashed = Style(colour=style.colour, dash=_PREDICTED_DASH)
        marks.append(Line(name="predicted", style=dashed, x=cap_w, y=value))
    cap_w, value, error = _series(curve.measured, name)
    points = Style(colour=style.colour, marker=style.marker)
    marks.append(Points(name="measured", style=points, x=cap_w, y=value, y_error=error))
    return _plot(title(name), curve, marks)


def _of_curve(curve: Curve) -> Plot:
    marks: list[Mark] = []
    for name in _names(curve):
        if name == "ed2p":
            continue
        style = _STYLES.get(name, _OTHER)
        cap_w, value, error = _series(curve.measured, name)
        thin = Style(colour=style.colour, dash=style.dash, width=_MEASURED_WIDTH)
        marks.append(Line(name=None, style=thin, x=cap_w, y=value))
        marks.append(Points(name=title(name), style=style, x=cap_w, y=value, y_error=error))
    return _plot(curve.name, curve, marks)


def _plot(name: str, curve: Curve, marks: Sequence[Mark]) -> Plot:
    x = spanning("cap, W", [np.array([np.mean(one.cap_w) for one in (*curve.measured, *curve.predicted)])])
    one = Line(name=None, style=_ONE, x=np.array([x.low, x.high]), y=np.ones(2))
    y = spanning("over the baseline's", _extent(marks), around=1.0)
    return Plot(title=name, x=x, y=y, marks=(one, *marks))


def _extent(marks: Iterable[Mark]) -> list[Floats]:
    found: list[Floats] = []
    for mark in marks:
        if isinstance(mark, Band):
            found += [mark.low, mark.high]
        elif isinstance(mark, Points) and mark.y_error is not None:
            error = np.where(np.isfinite(mark.y_error), mark.y_error, 0.0)
            found += [mark.y - error, mark.y + error]
        else:
            found.append(mark.y)
    return found


def _series(some: Sequence[CapCosts], name: str) -> tuple[Floats, Floats, Floats]:
    """Cap (the mean over devices), value and standard error, each of shape (n,)."""
    rows = [(float(np.mean(one.cap_w)), one.costs[name].value, one.costs[name].stderr) for one in some]
    cap_w, value, error = np.array(rows, dtype=np.float64).reshape(-1, 3).T
    return cap_w, value, error
