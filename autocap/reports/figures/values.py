"""What a kilowatt-hour cost and emitted over a run, and when caps followed."""

from collections.abc import Sequence

import numpy as np

from autocap.events import Event, Followed, Quoted
from autocap.events.quote import CARBON, KINDS
from autocap.reports.figures.layout import spanning
from autocap.reports.figures.model import Axis, Colour, Line, Mark, Marker, Plot, Points, Style
from autocap.reports.summary.record import Summary

_VALUE = Style(colour=Colour.BLUE, width=1.5)
_MOVED = Style(colour=Colour.VERMILION, marker=Marker.DISC)
_MOST_MOVES = 1000  # the last that are shown


def value_plots(summary: Summary, events: Sequence[Event], x: Axis, span_s: tuple[float, float]) -> list[Plot]:
    """One of each kind that was read as it changed. x: the axis; span_s: what it shows, seconds."""
    return [plot for kind in KINDS if (plot := _plot(summary, events, kind, x, span_s)) is not None]


def _plot(summary: Summary, events: Sequence[Event], kind: str, x: Axis, span_s: tuple[float, float]) -> Plot | None:
    quoted = [event for event in events if isinstance(event, Quoted) and event.kind == kind]
    if all(event.value is None for event in quoted):
        return None
    unit_s = span_s[1] / x.high
    values = [np.nan if event.value is None else event.value for event in quoted]
    at_s = np.array([*(event.t_s for event in quoted), max(span_s[1], quoted[-1].t_s)])
    line = Line(name=None, style=_VALUE, x=at_s / unit_s, y=np.array([*values, values[-1]]), stepped=True)
    marks: list[Mark] = [line]
    moves = [event for event in events if isinstance(event, Followed) and event.kind == kind]
    shown = [move for move in moves[-_MOST_MOVES:] if span_s[0] <= move.t_s <= span_s[1]]
    if shown:
        moved_s, moved_at = np.array([(move.t_s, move.value) for move in shown]).T
        marks.append(Points(name=summary.knob.said("caps moved"), style=_MOVED, x=moved_s / unit_s, y=moved_at))
    money = summary.books.currency if summary.books is not None and summary.books.currency else "money"
    label = "g CO₂ per kWh" if kind == CARBON else f"{money} per kWh"
    return Plot(title=None, x=x, y=spanning(label, [line.y]), marks=tuple(marks), share=0.8)
