"""Pictures as SVG: inside an HTML page that holds `ink.CSS`, or as files.

For a page the same picture is drawn anew for each width: type stays 12 pixels, and panels that stand side by side on a
wide page stand below each other on a narrow one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from textwrap import wrap

import numpy as np

from autocap.reports.figures import ink
from autocap.reports.figures.model import (
    Axis,
    Band,
    Box,
    Floats,
    Line,
    Mark,
    Panel,
    Picture,
    Plot,
    Points,
    Rows,
    beside,
    place,
    tick_labels,
    ticks,
)

_ROW = 18.0  # pixels from one row of bars to the next
_TICK, _AXIS_LABEL = 16.0, 16.0  # heights of the numbers along an axis, and of what they are
_SWATCH = 22.0  # width of a mark's sample in a key
_BAR = 12.0
_BESIDE, _SLACK = 6.0, 4.0  # between an axis and what stands to its left; between that and the edge
_PER_Y_TICK, _PER_X_TICK = 34.0, 70.0
_LABEL_HEIGHT, _LABEL_GAP, _MARKER = 12.0, 7.0, 5.0
_LEAST_NAME, _NAME_GAP = 50.0, 6.0  # of a name along an axis that is shortened, and between two of them
_NARROW = 560  # pixels; narrower than this, panels stand below each other
_MOST_LABELS = 100  # of which there is room for far fewer
_LINE = 18.0  # from one line of text to the next
_GAP = 28.0  # between panels
_HEIGHTS = (130.0, 100.0)  # of a panel over time with share 1, on a wide page and a narrow one
_ASPECT, _LOWEST, _HIGHEST = 0.62, 170.0, 430.0
_FILE_PX, _CHARACTERS = 960.0, 140  # width of a file, and how many characters of its caption are about as wide
_Drawn = tuple[list[str], float]  # elements, and where they end at the bottom


def render(picture: Picture, width: float, kind: str) -> str:
    """The picture as an SVG element of that width, pixels. kind: its class, which makes its ids its own as well."""
    name = f"{picture.name}-{kind}"
    elements, bottom = _elements(picture, width, name)
    said = f"{picture.note}. {picture.caption}" if picture.note else picture.caption
    return (
        f'<svg class="{kind}" viewBox="0 0 {width:g} {bottom:.0f}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{ink.escape(picture.title)}</title>'
        f'<desc id="{name}-d">{ink.escape(said)}</desc>{elements}</svg>'
    )


def file(picture: Picture) -> bytes:
    """The picture as a file of its own, with its title and caption in it."""
    said = [("head", line) for line in wrap(picture.title, _CHARACTERS)]
    said += [("", line) for line in wrap(picture.caption, _CHARACTERS)]
    elements, bottom = _elements(picture, _FILE_PX, picture.name)
    above = _LINE * (len(said) + 0.5)
    words = [ink.text(0, at * _LINE - above, line, kind=kind) for at, (kind, line) in enumerate(said, start=1)]
    x, y, width, height = -_GAP, -above - _GAP, _FILE_PX + 2 * _GAP, bottom + above + 2 * _GAP
    return ink.on_light(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{x:g} {y:g} {width:g} {height:g}" width="{width:g}" '
        f'height="{height:g}"><title>{ink.escape(picture.title)}</title><style>{ink.CSS}</style>'
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" fill="var(--page)"/>'
        f"{''.join(words)}{elements}</svg>\n"
    ).encode()


def _elements(picture: Picture, width: float, name: str) -> tuple[str, float]:
    """All of a picture but its title, as text, and its height."""
    out, top = list[str](), 0.0
    if picture.note:
        out.append(ink.text(width, ink.FONT_PX, picture.note, kind="note", anchor="end"))
        top = _LINE + 6
    if picture.common_key:
        key, top = _key(picture.common_key, 0.0, 0.0, top + _LINE, width)
        out, top = out + key, top + _LINE / 2
    panels, bottom = (_above_each_other if picture.one_x else _in_columns)(picture, top, width, name)
    return "".join(out + panels), bottom


def _above_each_other(picture: Picture, top: float, width: float, name: str) -> _Drawn:
    """Panels with one x axis, whose numbers stand below the last."""
    heights = [
        _ROW * len(panel.rows) if isinstance(panel, Rows) else panel.share * _HEIGHTS[width < _NARROW]
        for panel in picture.panels
    ]
    left = max(map(_left, picture.panels, heights), default=0.0)
    right = width - _overhang(picture.panels[-1].x, width - left)
    out, box = list[str](), None
    for number, (panel, height) in enumerate(zip(picture.panels, heights, strict=True)):
        if isinstance(panel, Plot):
            head, top = _head(panel, 0.0, top, width, keyed=True)
            out += head
        box = Box(left=left, top=top, right=right, bottom=top + height)
        out += _axes(panel, box, f"{name}-{number}")
        top = box.bottom + _LINE / 2
    if box is not None:
        out += _x_axis(picture.panels[-1].x, box)
    return out, top + _TICK + _AXIS_LABEL


def _in_columns(picture: Picture, top: float, width: float, name: str) -> _Drawn:
    """Panels side by side, as many as the page is wide enough for, each with its own axes."""
    columns = picture.columns if width >= _NARROW else 1
    column = (width - _GAP * (columns - 1)) / columns
    height = min(max(_ASPECT * column, _LOWEST), _HIGHEST)
    out, bottom = list[str](), top
    for number, panel in enumerate(picture.plots):
        if number % columns == 0:
            top = bottom
        x = (number % columns) * (column + _GAP)
        head, start = _head(panel, x, top, column, keyed=not picture.common_key)
        left = x + _left(panel, height)
        right = x + column - _overhang(panel.x, x + column - left)
        box = Box(left=left, top=start, right=right, bottom=start + height)
        out += [*head, *_axes(panel, box, f"{name}-{number}"), *_x_axis(panel.x, box)]
        bottom = max(bottom, box.bottom + _TICK + _AXIS_LABEL + _GAP)
    return out, bottom


def _axes(panel: Panel, box: Box, name: str) -> list[str]:
    return _rows(panel, box) if isinstance(panel, Rows) else _plot(panel, box, name)


def _left(panel: Panel, height: float) -> float:
    """The room that the numbers or names of a panel so high need to the left of its axes."""
    words = [row.name for row in panel.rows] if isinstance(panel, Rows) else tick_labels(_y_ticks(panel, height))
    return max(map(ink.text_width, words), default=0.0) + _BESIDE + _SLACK


def _y_ticks(plot: Plot, height: float) -> list[float]:
    return ticks(plot.y, max(2, int(height / _PER_Y_TICK)))


def _x_ticks(axis: Axis, width: float) -> dict[float, str]:
    """Their labels by place."""
    if axis.names:
        return _names(axis, width)
    places = ticks(axis, max(2, int(width / _PER_X_TICK)))
    return dict(zip(places, tick_labels(places), strict=True))


def _names(axis: Axis, width: float) -> dict[float, str]:
    """Those that there is room for along an axis so wide, the first of them first; shortened rather than left out."""
    per_unit = width / (axis.high - axis.low)
    apart = min((later - one for (one, _), (later, _) in pairwise(axis.names)), default=1.0) * per_unit
    found, free_from = dict[float, str](), -math.inf
    for at, name in axis.names:
        shown = ink.fitted(name, max(apart - _NAME_GAP, _LEAST_NAME))
        half = ink.text_width(shown) / 2
        if at * per_unit - half >= free_from:
            found[at], free_from = shown, at * per_unit + half + _NAME_GAP
    return found


def _overhang(axis: Axis, width: float) -> float:
    """The room that a number at the right end of an axis about so wide needs beyond it."""
    return max(8.0, max(map(ink.text_width, _x_ticks(axis, width).values()), default=0.0) / 2 + 1)


def _head(plot: Plot, x: float, top: float, width: float, *, keyed: bool) -> _Drawn:
    """Title, what the y axis says, and the key, above the axes; and where the axes may begin."""
    bold = plot.title is not None
    first = ink.fitted(plot.title or plot.y.label, width, bold=bold)
    top += _LINE
    out = [ink.text(x, top - 4, first, kind="head" if bold else "quiet")]
    if keyed:
        key, top = _key(plot.key, x, x + ink.text_width(first, bold=bold) + 18, top, width)
        out += key
    if bold:
        top += _LINE
        out.append(ink.text(x, top - 4, plot.y.label, kind="quiet"))
    return out, top + 6


def _key(marks: Sequence[Mark], x: float, at: float, top: float, width: float) -> _Drawn:
    """Samples with names, from `at` on and in as many lines as they need; and the bottom of the last line."""
    out = []
    for mark in marks:
        name = mark.name or ""
        wide = _SWATCH + 5 + ink.text_width(name)
        if at + wide > x + width:
            at, top = x, top + _LINE
        out += [_sample(mark, at, top - 8), ink.text(at + _SWATCH + 5, top - 4, name)]
        at += wide + 14
    return out, top


@dataclass(frozen=True, slots=True, kw_only=True)
class _Frame:
    """Where a panel's axes are on the page, and what they span."""

    box: Box
    x: Axis
    y: Axis

    def at_x(self, values: Floats) -> Floats:
        width, ends = self.box.right - self.box.left, np.array([self.x.low, self.x.high])
        if self.x.log:
            values, ends = np.log(values), np.log(ends)
        shares: Floats = (values - ends[0]) / (ends[1] - ends[0])
        return self.box.left + width * shares

    def at_y(self, values: Floats) -> Floats:
        height = self.box.bottom - self.box.top
        return self.box.bottom - height * (values - self.y.low) / (self.y.high - self.y.low)


def _rows(panel: Rows, box: Box) -> list[str]:
    """Rows of bars, each with its name to the left."""
    out = []
    frame = _Frame(box=box, x=panel.x, y=Axis(label="", low=0, high=1))
    for number, row in enumerate(panel.rows):
        y = box.top + number * _ROW
        out.append(ink.text(box.left - _BESIDE, y + 10, row.name, anchor="end"))
        for bar in row.bars:
            start, end = frame.at_x(np.array([bar.start, bar.end])).tolist()
            out.append(ink.bar(start, y, max(end - start, 1.5), _BAR, row.style, hollow=bar.hollow))
            if bar.label and ink.text_width(bar.label) + 2 <= end - start:
                out.append(ink.text((start + end) / 2, y + 10, bar.label, anchor="middle"))
    return out


def _plot(panel: Plot, box: Box, name: str) -> list[str]:
    """The axes and marks of a plot. name: one of its own in the document."""
    frame = _Frame(box=box, x=panel.x, y=panel.y)
    out = [
        f'<clipPath id="{name}"><rect x="{box.left:.1f}" y="{box.top - 6:.1f}" width="{box.right - box.left + 8:.1f}" '
        f'height="{box.bottom - box.top + 12:.1f}"/></clipPath>'
    ]
    places = _y_ticks(panel, box.bottom - box.top)
    for y, label in zip(frame.at_y(np.array(places)).tolist(), tick_labels(places), strict=True):
        out.append(ink.rule("grid", box.left, y, box.right, y))
        out.append(ink.text(box.left - _BESIDE, y + 4, label, anchor="end"))
    out.append(f'<g clip-path="url(#{name})">')
    for mark in panel.marks:
        out += _mark(mark, frame)
    return [*out, "</g>", *_labels(panel.marks, frame)]


def _x_axis(axis: Axis, box: Box) -> list[str]:
    """Numbers along an axis, and what they are."""
    named = _x_ticks(axis, box.right - box.left)
    frame = _Frame(box=box, x=axis, y=Axis(label="", low=0, high=1))
    out = [ink.rule("axis", box.left, box.bottom, box.right, box.bottom)]
    for x, label in zip(frame.at_x(np.array(list(named))).tolist(), named.values(), strict=True):
        out.append(ink.rule("axis", x, box.bottom, x, box.bottom + 4))
        out.append(ink.text(x, box.bottom + _TICK, label, anchor="middle"))
    out.append(ink.text(box.right, box.bottom + _TICK + _AXIS_LABEL, axis.label, kind="quiet", anchor="end"))
    return out


def _sample(mark: Mark, x: float, y: float) -> str:
    """A mark as the key shows it."""
    if isinstance(mark, Points):
        return ink.marker(x + _SWATCH / 2, y, mark.style)
    ends = np.array([x, x + _SWATCH])
    if isinstance(mark, Band):
        return ink.band(ends, np.full(2, y + 5), np.full(2, y - 5), mark.style)
    return ink.line(ends, np.full(2, y), mark.style)


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
    """Words beside points, as many as there is room for."""
    words: list[str] = []
    wanted: list[list[Box]] = []
    taken: list[Box] = []
    for points in (mark for mark in marks if isinstance(mark, Points)):
        spots = list(zip(frame.at_x(points.x).tolist(), frame.at_y(points.y).tolist(), strict=True))
        taken += [Box(left=x - _MARKER, top=y - _MARKER, right=x + _MARKER, bottom=y + _MARKER) for x, y in spots]
        for label, (x, y) in zip(points.labels[:_MOST_LABELS], spots, strict=False):
            words.append(label)
            wanted.append(beside(x, y, ink.text_width(label), _LABEL_HEIGHT, _LABEL_GAP))
    placed = zip(words, place(wanted, frame.box, taken), strict=True)
    return [ink.text(box.left, box.bottom - 2, label, kind="halo") for label, box in placed if box is not None]
