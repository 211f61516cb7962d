"""Pictures as SVG, to stand inside an HTML page that holds `ink.CSS`.

The same picture is drawn anew for each width of page: type stays 12 pixels, and panels that stand side by side on a
wide page stand below each other on a narrow one.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from autocap.figures import ink
from autocap.figures.labels import Box, beside, place
from autocap.figures.model import Axis, Band, Floats, Line, Mark, Panel, Picture, Plot, Points, Rows
from autocap.figures.scale import tick_labels, ticks

_NARROW = 560  # pixels; narrower than this, panels stand below each other
_LINE = 18.0  # from one line of text to the next
_GAP = 28.0  # between panels
_TICK, _AXIS_LABEL = 16.0, 16.0
_PER_TICK = 34.0  # of a y axis
_ROW, _BAR = 18.0, 12.0
_SWATCH = 22.0
_LABEL_HEIGHT, _LABEL_GAP, _MARKER = 12.0, 7.0, 5.0
_ALONG = (1.0, 0.85, 0.7, 0.55, 0.4)  # where along a line its label may stand
_HEIGHTS = (130.0, 100.0)  # of a panel over time with share 1, on a wide page and a narrow one
_ASPECT, _LOWEST, _HIGHEST = 0.62, 170.0, 430.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Where a panel's axes are on the page, and what they span."""

    box: Box
    x: Axis
    y: Axis

    def at_x(self, values: Floats) -> Floats:
        width = self.box.right - self.box.left
        return self.box.left + width * (values - self.x.low) / (self.x.high - self.x.low)

    def at_y(self, values: Floats) -> Floats:
        height = self.box.bottom - self.box.top
        return self.box.bottom - height * (values - self.y.low) / (self.y.high - self.y.low)


def render(picture: Picture, width: float, kind: str) -> str:
    """The picture as an SVG element of that width, pixels. kind: its class, which makes its ids its own as well."""
    name = f"{picture.name}-{kind}"
    columns = picture.columns if width >= _NARROW else 1
    column = (width - _GAP * (columns - 1)) / columns
    left = _left(picture.panels) if picture.one_x else None
    out, top = [], 0.0
    if picture.note:
        out.append(ink.text(width, ink.FONT_PX, picture.note, kind="note", anchor="end"))
        top = _LINE + 6
    for first in range(0, len(picture.panels), columns):
        bottoms = [top]
        for place_, panel in enumerate(picture.panels[first : first + columns]):
            number = first + place_
            said = not picture.one_x or number == len(picture.panels) - 1
            height = _height(panel, column, width, timed=picture.one_x)
            drawn, bottom = _panel(panel, place_ * (column + _GAP), top, column, height, left, said, f"{name}-{number}")
            out += drawn
            bottoms.append(bottom)
        top = max(bottoms) + (_LINE / 2 if picture.one_x else _GAP)
    return (
        f'<svg class="{kind}" viewBox="0 0 {width:g} {top:.0f}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(picture.title)}</title><desc id="{name}-d">{escape(_said(picture))}</desc>'
        + "".join(out)
        + "</svg>"
    )


def _said(picture: Picture) -> str:
    return f"{picture.note}. {picture.caption}" if picture.note else picture.caption


def _height(panel: Panel, column: float, width: float, *, timed: bool) -> float:
    """Of a panel's axes."""
    if isinstance(panel, Rows):
        return _ROW * len(panel.rows)
    if timed:
        return panel.share * _HEIGHTS[width < _NARROW]
    return min(max(_ASPECT * column, _LOWEST), _HIGHEST)


def _left(panels: Sequence[Panel]) -> float:
    """The room that numbers and names need to the left of the axes."""
    words = []
    for panel in panels:
        if isinstance(panel, Rows):
            words += [row.name for row in panel.rows]
        else:
            words += tick_labels(ticks(panel.y, 5))
    return max(map(ink.text_width, words), default=0.0) + 10


def _panel(
    panel: Panel, x: float, top: float, width: float, height: float, left: float | None, said: bool, name: str
) -> tuple[list[str], float]:
    """A panel's elements and its bottom. said: the numbers along its x axis are written."""
    out: list[str] = []
    if isinstance(panel, Plot):
        head, top = _head(panel, x, top, width)
        out += head
    start = x + (_left([panel]) if left is None else left)
    box = Box(left=start, top=top, right=x + width - 8, bottom=top + height)
    if isinstance(panel, Rows):
        out += _rows(panel, box)
    else:
        out += _plot(panel, _Frame(box=box, x=panel.x, y=panel.y), name)
    if not said:
        return out, box.bottom
    return out + _x_axis(panel.x, box), box.bottom + _TICK + _AXIS_LABEL


def _head(plot: Plot, x: float, top: float, width: float) -> tuple[list[str], float]:
    """Title, what the y axis says, and the key, above the axes; and where the axes may begin."""
    first, kind = (plot.title, "head") if plot.title else (plot.y.label, "quiet")
    top += _LINE
    out = [ink.text(x, top - 4, first, kind=kind)]
    at = x + ink.text_width(first) + 18
    for mark in plot.marks:
        if mark.name is None:
            continue
        wide = _SWATCH + 5 + ink.text_width(mark.name)
        if at + wide > x + width:
            at, top = x, top + _LINE
        out += [_sample(mark, at, top - 8), ink.text(at + _SWATCH + 5, top - 4, mark.name)]
        at += wide + 14
    if plot.title:
        top += _LINE
        out.append(ink.text(x, top - 4, plot.y.label, kind="quiet"))
    return out, top + 6


def _sample(mark: Mark, x: float, y: float) -> str:
    """A mark as the key shows it."""
    if isinstance(mark, Points):
        return ink.marker(x + _SWATCH / 2, y, mark.style)
    ends = np.array([x, x + _SWATCH])
    if isinstance(mark, Band):
        return ink.band(ends, np.full(2, y + 5), np.full(2, y - 5), mark.style)
    return ink.line(ends, np.full(2, y), mark.style)


def _x_axis(axis: Axis, box: Box) -> list[str]:
    width = box.right - box.left
    places = ticks(axis, max(2, int(width / 70)))
    out = [ink.rule("axis", box.left, box.bottom, box.right, box.bottom)]
    for place_, label in zip(places, tick_labels(places), strict=True):
        x = box.left + width * (place_ - axis.low) / (axis.high - axis.low)
        out.append(ink.rule("axis", x, box.bottom, x, box.bottom + 4))
        out.append(ink.text(x, box.bottom + _TICK, label, anchor="middle"))
    out.append(ink.text(box.right, box.bottom + _TICK + _AXIS_LABEL, axis.label, kind="quiet", anchor="end"))
    return out


def _rows(panel: Rows, box: Box) -> list[str]:
    out = []
    frame = _Frame(box=box, x=panel.x, y=Axis(label="", low=0, high=1))
    for number, row in enumerate(panel.rows):
        y = box.top + number * _ROW
        out.append(ink.text(box.left - 8, y + 10, row.name, anchor="end"))
        for bar in row.bars:
            start, end = frame.at_x(np.array([bar.start, bar.end])).tolist()
            out.append(ink.bar(start, y, max(end - start, 1.5), _BAR, row.style, hollow=bar.hollow))
            if bar.label and ink.text_width(bar.label) + 2 <= end - start:
                out.append(ink.text((start + end) / 2, y + 10, bar.label, anchor="middle"))
    return out


def _plot(plot: Plot, frame: _Frame, name: str) -> list[str]:
    box = frame.box
    out = [
        f'<clipPath id="{name}"><rect x="{box.left:.1f}" y="{box.top - 6:.1f}" width="{box.right - box.left + 8:.1f}" '
        f'height="{box.bottom - box.top + 12:.1f}"/></clipPath>'
    ]
    places = ticks(plot.y, max(2, int((box.bottom - box.top) / _PER_TICK)))
    for y, label in zip(frame.at_y(np.array(places)).tolist(), tick_labels(places), strict=True):
        out.append(ink.rule("grid", box.left, y, box.right, y))
        out.append(ink.text(box.left - 6, y + 4, label, anchor="end"))
    out.append(f'<g clip-path="url(#{name})">')
    for mark in plot.marks:
        out += _mark(mark, frame)
    return [*out, "</g>", *_labels(plot.marks, frame)]


def _mark(mark: Mark, frame: _Frame) -> list[str]:
    x = frame.at_x(mark.x)
    if isinstance(mark, Band):
        return [ink.band(x, frame.at_y(mark.low), frame.at_y(mark.high), mark.style)]
    if isinstance(mark, Line):
        return [ink.line(x, frame.at_y(mark.y), mark.style, stepped=mark.stepped)]
    y, out = frame.at_y(mark.y), list[str]()
    if mark.x_error is not None:
        low, high = frame.at_x(mark.x - mark.x_error), frame.at_x(mark.x + mark.x_error)
        out += ink.error_bars(np.column_stack((low, y, high, y)), mark.style)
    if mark.y_error is not None:
        low, high = frame.at_y(mark.y - mark.y_error), frame.at_y(mark.y + mark.y_error)
        out += ink.error_bars(np.column_stack((x, low, x, high)), mark.style)
    return out + [ink.marker(px, py, mark.style) for px, py in zip(x.tolist(), y.tolist(), strict=True)]


def _labels(marks: Sequence[Mark], frame: _Frame) -> list[str]:
    """Words beside points and lines, as many as there is room for."""
    taken = [
        Box(left=x - _MARKER, top=y - _MARKER, right=x + _MARKER, bottom=y + _MARKER)
        for mark in marks
        if isinstance(mark, Points)
        for x, y in zip(frame.at_x(mark.x).tolist(), frame.at_y(mark.y).tolist(), strict=True)
    ]
    words, wanted = [], []
    for mark in marks:
        for label, spots in _wanted(mark, frame):
            width = ink.text_width(label)
            words.append(label)
            wanted.append([box for x, y in spots for box in beside(x, y, width, _LABEL_HEIGHT, _LABEL_GAP)])
    placed = zip(words, place(wanted, frame.box, taken), strict=True)
    return [ink.text(box.left, box.bottom - 2, label, kind="halo") for label, box in placed if box is not None]


def _wanted(mark: Mark, frame: _Frame) -> Iterator[tuple[str, list[tuple[float, float]]]]:
    """What is to be written beside a mark, and the places on the page it may stand beside."""
    x, y = frame.at_x(mark.x).tolist(), frame.at_y(mark.low if isinstance(mark, Band) else mark.y).tolist()
    if isinstance(mark, Points):
        for label, spot in zip(mark.labels, zip(x, y, strict=True), strict=False):
            yield label, [spot]
    elif isinstance(mark, Line) and mark.end_label is not None and x:
        places = [int(share * (len(x) - 1)) for share in _ALONG]
        yield mark.end_label, [(x[place_], y[place_]) for place_ in places]
