"""Pictures through matplotlib, as PNG or SVG files. matplotlib is imported only when something is drawn."""

import io
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np

from autocap.errors import AutocapError
from autocap.figures.labels import Box, beside, place
from autocap.figures.model import Band, Line, Mark, Marker, Panel, Picture, Plot, Points, Row, Rows, Style

if TYPE_CHECKING:
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
_LABEL_GAP = 8.0  # pixels
_ALONG = (1.0, 0.85, 0.7, 0.55, 0.4)


class PlotsUnavailable(AutocapError):
    """Plots were asked for, and matplotlib is not there."""


def require() -> None:
    """Raises PlotsUnavailable, with what to install, where matplotlib is missing."""
    if find_spec("matplotlib") is None:
        raise PlotsUnavailable("plots need matplotlib; install it with `pip install 'autocap[plots]'`")


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
        _panel(axes, panel)
        if picture.one_x and number < len(picture.panels) - 1:
            axes.set_xlabel("")
            axes.tick_params(labelbottom=False)
    for axes in list(figure.axes)[len(picture.panels) :]:
        axes.remove()
    figure.suptitle(picture.title, x=0.01, ha="left", fontweight="bold")
    if picture.note:
        figure.text(0.99, 0.985, picture.note, ha="right", va="top", fontweight="bold", color="#b04a00")
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


def _panel(axes: "Axes", panel: Panel) -> None:
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
        axes.set_title(panel.title, loc="left", fontweight="bold", fontsize="medium")
    for mark in panel.marks:
        _mark(axes, mark)
    named = sum(mark.name is not None for mark in panel.marks)
    if named:
        axes.legend(loc="lower right", bbox_to_anchor=(1.0, 0.99), ncols=named, frameon=False, fontsize="small",
                    columnspacing=1.0, handletextpad=0.4, borderpad=0.1)  # fmt: skip


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
    """Words beside points and lines, as many as there is room for. Pixels with y upwards, so boxes are upside down."""
    to_pixels, inside = axes.transData, axes.get_window_extent()
    size = axes.figure.dpi / 72 * 8.0
    words: list[str] = []
    wanted: list[list[Box]] = []
    taken: list[Box] = []
    for mark in plot.marks:
        if isinstance(mark, Band):
            continue
        places = to_pixels.transform(np.column_stack((mark.x, mark.y))).tolist()
        if isinstance(mark, Points):
            taken += [Box(left=x - 5, top=y - 5, right=x + 5, bottom=y + 5) for x, y in places]
            labelled = [(label, [spot]) for label, spot in zip(mark.labels, places, strict=False)]
        else:
            spots = [places[int(share * (len(places) - 1))] for share in _ALONG] if mark.end_label and places else []
            labelled = [(mark.end_label, spots)] if mark.end_label else []
        for label, spots in labelled:
            words.append(label)
            width = 0.58 * size * len(label)
            wanted.append([box for x, y in spots for box in beside(x, y, width, size, _LABEL_GAP)])
    page = Box(left=inside.x0, top=inside.y0, right=inside.x1, bottom=inside.y1)
    for label, box in zip(words, place(wanted, page, taken), strict=True):
        if box is not None:
            x, y = to_pixels.inverted().transform((box.left, (box.top + box.bottom) / 2))
            axes.text(x, y, label, fontsize=8.0, va="center", ha="left")
