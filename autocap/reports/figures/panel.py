"""One panel as SVG: its axes, and its marks between them."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autocap.reports.figures import ink
from autocap.reports.figures.labels import Box, beside, place
from autocap.reports.figures.model import Axis, Band, Floats, Line, Mark, Plot, Points, Rows
from autocap.reports.figures.scale import tick_labels, ticks

ROW = 18.0  # pixels from one row of bars to the next
TICK, AXIS_LABEL = 16.0, 16.0  # heights of the numbers along an axis, and of what they are
SWATCH = 22.0  # width of a mark's sample in a key
_BAR = 12.0
_PER_Y_TICK, _PER_X_TICK = 34.0, 70.0
_LABEL_HEIGHT, _LABEL_GAP, _MARKER = 12.0, 7.0, 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
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


def rows(panel: Rows, box: Box) -> list[str]:
    """Rows of bars, each with its name to the left."""
    out = []
    frame = Frame(box=box, x=panel.x, y=Axis(label="", low=0, high=1))
    for number, row in enumerate(panel.rows):
        y = box.top + number * ROW
        out.append(ink.text(box.left - 8, y + 10, row.name, anchor="end"))
        for bar in row.bars:
            start, end = frame.at_x(np.array([bar.start, bar.end])).tolist()
            out.append(ink.bar(start, y, max(end - start, 1.5), _BAR, row.style, hollow=bar.hollow))
            if bar.label and ink.text_width(bar.label) + 2 <= end - start:
                out.append(ink.text((start + end) / 2, y + 10, bar.label, anchor="middle"))
    return out


def plot(panel: Plot, box: Box, name: str) -> list[str]:
    """The axes and marks of a plot. name: one of its own in the document."""
    frame = Frame(box=box, x=panel.x, y=panel.y)
    out = [
        f'<clipPath id="{name}"><rect x="{box.left:.1f}" y="{box.top - 6:.1f}" width="{box.right - box.left + 8:.1f}" '
        f'height="{box.bottom - box.top + 12:.1f}"/></clipPath>'
    ]
    places = ticks(panel.y, max(2, int((box.bottom - box.top) / _PER_Y_TICK)))
    for y, label in zip(frame.at_y(np.array(places)).tolist(), tick_labels(places), strict=True):
        out.append(ink.rule("grid", box.left, y, box.right, y))
        out.append(ink.text(box.left - 6, y + 4, label, anchor="end"))
    out.append(f'<g clip-path="url(#{name})">')
    for mark in panel.marks:
        out += _mark(mark, frame)
    return [*out, "</g>", *_labels(panel.marks, frame)]


def x_axis(axis: Axis, box: Box) -> list[str]:
    """Numbers along an axis, and what they are."""
    width = box.right - box.left
    places = ticks(axis, max(2, int(width / _PER_X_TICK)))
    out = [ink.rule("axis", box.left, box.bottom, box.right, box.bottom)]
    for place_, label in zip(places, tick_labels(places), strict=True):
        x = box.left + width * (place_ - axis.low) / (axis.high - axis.low)
        out.append(ink.rule("axis", x, box.bottom, x, box.bottom + 4))
        out.append(ink.text(x, box.bottom + TICK, label, anchor="middle"))
    out.append(ink.text(box.right, box.bottom + TICK + AXIS_LABEL, axis.label, kind="quiet", anchor="end"))
    return out


def sample(mark: Mark, x: float, y: float) -> str:
    """A mark as the key shows it."""
    if isinstance(mark, Points):
        return ink.marker(x + SWATCH / 2, y, mark.style)
    ends = np.array([x, x + SWATCH])
    if isinstance(mark, Band):
        return ink.band(ends, np.full(2, y + 5), np.full(2, y - 5), mark.style)
    return ink.line(ends, np.full(2, y), mark.style)


def _mark(mark: Mark, frame: Frame) -> list[str]:
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


def _labels(marks: Sequence[Mark], frame: Frame) -> list[str]:
    """Words beside points, as many as there is room for."""
    words: list[str] = []
    wanted: list[list[Box]] = []
    taken: list[Box] = []
    for points in (mark for mark in marks if isinstance(mark, Points)):
        spots = list(zip(frame.at_x(points.x).tolist(), frame.at_y(points.y).tolist(), strict=True))
        taken += [Box(left=x - _MARKER, top=y - _MARKER, right=x + _MARKER, bottom=y + _MARKER) for x, y in spots]
        for label, (x, y) in zip(points.labels, spots, strict=False):
            words.append(label)
            wanted.append(beside(x, y, ink.text_width(label), _LABEL_HEIGHT, _LABEL_GAP))
    placed = zip(words, place(wanted, frame.box, taken), strict=True)
    return [ink.text(box.left, box.bottom - 2, label, kind="halo") for label, box in placed if box is not None]
