"""Pictures through matplotlib, as PNG or SVG files. matplotlib is imported only when something is drawn."""

import io
import logging
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np

from autocap.errors import AutocapError
from autocap.printable import printable
from autocap.reports.figures.layout import Box, beside, place
from autocap.reports.figures.model import (
    Axis,
    Band,
    Bar,
    Colour,
    Line,
    Mark,
    Marker,
    Panel,
    Picture,
    Plot,
    Points,
    Row,
    Rows,
    Style,
)

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_DPI = 120
_WIDTH_IN = 9.0
_LONE_IN, _TIMED_IN, _ROW_IN = 5.2, 1.6, 0.24  # heights: of a lone panel, of one over time with share 1, of a row
_PANEL_IN = 2.9  # of one of several panels
_MOST_COLUMNS = 3
_BAR = 0.62  # of a row's height
_SIZE = 6.0  # of a marker, points
_SIZES = {Marker.STAR: 11.0, Marker.DIAMOND: 6.5}
_MARKERS = {
    Marker.DISC: "o",
    Marker.RING: "o",
    Marker.SQUARE: "s",
    Marker.DIAMOND: "D",
    Marker.TRIANGLE: "^",
    Marker.DOWN: "v",
    Marker.STAR: "*",
}
_MOST_LABELS = 100  # of which there is room for far fewer
_LABEL_GAP = 8.0  # pixels
_LABEL_PT, _CHARACTER = 8.0, 0.6  # size of labels, and the mean width of a character in it
_KEY_COLUMNS = 5
_KEY: Any = {"frameon": False, "fontsize": "small", "columnspacing": 1.0, "handletextpad": 0.4, "borderpad": 0.1}


class PlotsUnavailable(AutocapError):
    """Plots were asked for, and matplotlib is not there."""


def require() -> None:
    """Raises PlotsUnavailable, with what to install, where matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise PlotsUnavailable("plots need matplotlib; install it with `pip install matplotlib`")
    # It warns of a home directory that it cannot write to, as that of a service; the plots are the same.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)


def rehearse() -> None:
    """Draw a picture of nothing, which loads all that drawing needs. Raises PlotsUnavailable without matplotlib, and
    whatever it raises where it cannot read its own files."""
    one, style, axis = np.ones(2), Style(colour=Colour.INK), Axis(label="W", low=0.0, high=2.0)
    marks = (
        Line(name="line", style=style, x=one, y=one),
        Band(name="band", style=style, x=one, low=one, high=one),
        Points(name="points", style=style, x=one, y=one, y_error=one, labels=("1 W",)),
    )
    rows = Rows(x=axis, rows=(Row(name="row", style=style, bars=(Bar(start=0.0, end=1.0, label="bar"),)),))
    picture = Picture(
        name="rehearsal", title="title", caption="", panels=(rows, Plot(title="plot", x=axis, y=axis, marks=marks))
    )
    for kind in ("png", "svg"):
        draw(picture, kind)


def draw(picture: Picture, kind: str) -> bytes:
    """The picture as a file of that kind, `png` or `svg`. Raises PlotsUnavailable without matplotlib."""
    require()
    from matplotlib import rc_context

    # Text stays text, and the same picture is the same file.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": picture.name, "font.size": 9.0}):
        figure = _figure(picture)
        file = io.BytesIO()
        metadata = {"Title": picture.title, "Description": picture.caption}
        figure.savefig(file, format=kind, metadata={**metadata, "Date": None} if kind == "svg" else metadata)
    return file.getvalue()


def _figure(picture: Picture) -> "Figure":
    from matplotlib.figure import Figure  # not pyplot: nothing here may open a window or keep a figure alive

    columns = min(picture.columns, len(picture.panels), _MOST_COLUMNS)
    rows = -(-len(picture.panels) // columns)
    heights = [_height(panel, picture) for panel in picture.panels[::columns]]
    figure = Figure(figsize=(_WIDTH_IN, sum(heights) + 0.9), dpi=_DPI, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, height_ratios=heights).flat
    for number, (axes, panel) in enumerate(zip(grid, picture.panels, strict=False)):
        _panel(axes, panel, keyed=not picture.common_key)
        if picture.one_x and number < len(picture.panels) - 1:
            axes.set_xlabel("")
            axes.tick_params(labelbottom=False)
    for axes in list(figure.axes)[len(picture.panels) :]:
        axes.remove()
    figure.suptitle(picture.title, x=0.01, ha="left", fontweight="bold")
    if picture.note:
        figure.text(0.99, 0.985, picture.note, ha="right", va="top", fontweight="bold", color="#b04a00")
    if picture.common_key:
        handles = _handles(figure.axes[0], picture.common_key)
        figure.legend(handles=handles, loc="outside lower center", ncols=_KEY_COLUMNS, **_KEY)
    figure.draw_without_rendering()  # settles where the axes are, which labels need
    for axes, panel in zip(figure.axes, picture.panels, strict=True):
        if isinstance(panel, Plot):
            _labels(axes, panel)
    return figure


def _height(panel: Panel, picture: Picture) -> float:
    if isinstance(panel, Rows):
        return _ROW_IN * len(panel.rows)
    if picture.one_x:
        return _TIMED_IN * panel.share
    return _LONE_IN if len(picture.panels) == 1 else _PANEL_IN


def _panel(axes: "Axes", panel: Panel, *, keyed: bool) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_xlim(panel.x.low, panel.x.high)
    axes.set_xlabel(panel.x.label)
    if isinstance(panel, Rows):
        _rows(axes, panel)
        return
    axes.set_ylim(panel.y.low, panel.y.high)
    axes.set_ylabel(panel.y.label)
    axes.grid(axis="y", color="#e3e3e3", linewidth=0.8)
    axes.set_axisbelow(True)
    if panel.title:
        axes.set_title(printable(panel.title).replace("$", r"\$"), loc="left", fontweight="bold", fontsize="medium")
    for mark in panel.marks:
        _mark(axes, mark)
    if keyed and panel.key:
        columns = _KEY_COLUMNS if not panel.title else len(panel.key)
        axes.legend(
            handles=_handles(axes, panel.key), loc="lower right", bbox_to_anchor=(1.0, 0.99), ncols=columns, **_KEY
        )


def _handles(axes: "Axes", key: Sequence[Mark]) -> "list[Artist]":
    """What stands for each mark in a key."""
    handles, labels = axes.get_legend_handles_labels()
    by_label = dict(zip(labels, handles, strict=True))
    return [by_label[mark.name] for mark in key if mark.name is not None]


def _rows(axes: "Axes", panel: Rows) -> None:
    axes.set_yticks(range(len(panel.rows)), [row.name for row in panel.rows])
    axes.set_ylim(len(panel.rows) - 0.4, -0.6)
    axes.tick_params(axis="y", length=0)
    for number, row in enumerate(panel.rows):
        _bars(axes, row, number)


def _bars(axes: "Axes", row: Row, number: int) -> None:
    colour = row.style.colour.light
    low, high = axes.get_xlim()
    room = (high - low) / 100  # about a character
    for bar in row.bars:
        fill = "none" if bar.hollow else (colour, 0.4)
        axes.broken_barh([(bar.start, bar.end - bar.start)], (number - _BAR / 2, _BAR), facecolor=fill,
                         edgecolor=colour, linewidth=0.8)  # fmt: skip
        if bar.end - bar.start > room * len(bar.label):
            axes.text((bar.start + bar.end) / 2, number, bar.label, ha="center", va="center", fontsize="x-small")


def _mark(axes: "Axes", mark: Mark) -> None:
    colour = mark.style.colour.light
    if isinstance(mark, Band):
        axes.fill_between(mark.x, mark.low, mark.high, color=colour, alpha=0.22, linewidth=0, label=mark.name)
    elif isinstance(mark, Line):
        axes.plot(mark.x, mark.y, color=colour, linewidth=mark.style.width, linestyle=_dashes(mark.style),
                  drawstyle="steps-post" if mark.stepped else "default", label=mark.name)  # fmt: skip
    else:
        hollow = mark.style.marker is Marker.RING
        axes.errorbar(mark.x, mark.y, xerr=mark.x_error, yerr=mark.y_error, linestyle="none", color=colour,
                      marker=_MARKERS[mark.style.marker], markersize=_SIZES.get(mark.style.marker, _SIZE),
                      markerfacecolor="white" if hollow else colour, elinewidth=1.0, label=mark.name)  # fmt: skip


def _dashes(style: Style) -> "str | tuple[float, tuple[float, ...]]":
    # matplotlib counts dashes in widths of the line.
    return (0.0, tuple(part / style.width for part in style.dash)) if style.dash else "-"


def _labels(axes: "Axes", plot: Plot) -> None:
    """Words beside points, as many as there is room for. Pixels with y upwards, so boxes stand on their heads."""
    to_pixels, inside = axes.transData, axes.get_window_extent()
    size = axes.figure.dpi / 72 * _LABEL_PT
    words: list[str] = []
    wanted: list[list[Box]] = []
    taken: list[Box] = []
    for points in (mark for mark in plot.marks if isinstance(mark, Points)):
        spots = to_pixels.transform(np.column_stack((points.x, points.y))).tolist()
        taken += [Box(left=x - 5, top=y - 5, right=x + 5, bottom=y + 5) for x, y in spots]
        for label, (x, y) in zip(points.labels[:_MOST_LABELS], spots, strict=False):
            words.append(label)
            wanted.append(beside(x, y, _CHARACTER * size * len(label), size, _LABEL_GAP))
    page = Box(left=inside.x0, top=inside.y0, right=inside.x1, bottom=inside.y1)
    for label, box in zip(words, place(wanted, page, taken), strict=True):
        if box is not None:
            x, y = to_pixels.inverted().transform((box.left, (box.top + box.bottom) / 2))
            axes.text(x, y, label, fontsize=_LABEL_PT, va="center", ha="left")
