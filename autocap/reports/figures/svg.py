"""Pictures as SVG, to stand inside an HTML page that holds `ink.CSS`.

The same picture is drawn anew for each width of page: type stays 12 pixels, and panels that stand side by side on a
wide page stand below each other on a narrow one.
"""

from collections.abc import Sequence
from html import escape

from autocap.reports.figures import ink
from autocap.reports.figures.labels import Box
from autocap.reports.figures.model import Mark, Panel, Picture, Plot, Rows
from autocap.reports.figures.panel import AXIS_LABEL, ROW, SWATCH, TICK, plot, rows, sample, x_axis
from autocap.reports.figures.scale import tick_labels, ticks

_NARROW = 560  # pixels; narrower than this, panels stand below each other
_LINE = 18.0  # from one line of text to the next
_GAP = 28.0  # between panels
_HEIGHTS = (130.0, 100.0)  # of a panel over time with share 1, on a wide page and a narrow one
_ASPECT, _LOWEST, _HIGHEST = 0.62, 170.0, 430.0
_Drawn = tuple[list[str], float]  # elements, and where they end at the bottom


def render(picture: Picture, width: float, kind: str) -> str:
    """The picture as an SVG element of that width, pixels. kind: its class, which makes its ids its own as well."""
    name = f"{picture.name}-{kind}"
    out, top = list[str](), 0.0
    if picture.note:
        out.append(ink.text(width, ink.FONT_PX, picture.note, kind="note", anchor="end"))
        top = _LINE + 6
    if picture.common_key:
        key, top = _key(picture.common_key, 0.0, 0.0, top + _LINE, width)
        out, top = out + key, top + _LINE / 2
    panels, bottom = (_above_each_other if picture.one_x else _in_columns)(picture, top, width, name)
    return (
        f'<svg class="{kind}" viewBox="0 0 {width:g} {bottom:.0f}" role="img" aria-labelledby="{name}-t {name}-d">'
        f'<title id="{name}-t">{escape(picture.title)}</title><desc id="{name}-d">{escape(_said(picture))}</desc>'
        + "".join(out + panels)
        + "</svg>"
    )


def _said(picture: Picture) -> str:
    return f"{picture.note}. {picture.caption}" if picture.note else picture.caption


def _above_each_other(picture: Picture, top: float, width: float, name: str) -> _Drawn:
    """Panels with one x axis, whose numbers stand below the last."""
    left, out, box = _left(picture.panels), list[str](), None
    for number, panel in enumerate(picture.panels):
        if isinstance(panel, Plot):
            head, top = _head(panel, 0.0, top, width, keyed=True)
            out += head
        height = ROW * len(panel.rows) if isinstance(panel, Rows) else panel.share * _HEIGHTS[width < _NARROW]
        box = Box(left=left, top=top, right=width - 8, bottom=top + height)
        out += _axes(panel, box, f"{name}-{number}")
        top = box.bottom + _LINE / 2
    if box is not None:
        out += x_axis(picture.panels[-1].x, box)
    return out, top + TICK + AXIS_LABEL


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
        box = Box(left=x + _left([panel]), top=start, right=x + column - 8, bottom=start + height)
        out += [*head, *_axes(panel, box, f"{name}-{number}"), *x_axis(panel.x, box)]
        bottom = max(bottom, box.bottom + TICK + AXIS_LABEL + _GAP)
    return out, bottom


def _axes(panel: Panel, box: Box, name: str) -> list[str]:
    return rows(panel, box) if isinstance(panel, Rows) else plot(panel, box, name)


def _left(panels: Sequence[Panel]) -> float:
    """The room that numbers and names need to the left of the axes."""
    words = list[str]()
    for panel in panels:
        if isinstance(panel, Rows):
            words += [row.name for row in panel.rows]
        else:
            words += tick_labels(ticks(panel.y, 5))
    return max(map(ink.text_width, words), default=0.0) + 10


def _head(plot: Plot, x: float, top: float, width: float, *, keyed: bool) -> _Drawn:
    """Title, what the y axis says, and the key, above the axes; and where the axes may begin."""
    first, kind = (plot.title, "head") if plot.title else (plot.y.label, "quiet")
    top += _LINE
    out = [ink.text(x, top - 4, first, kind=kind)]
    if keyed:
        key, top = _key(plot.key, x, x + ink.text_width(first) + 18, top, width)
        out += key
    if plot.title:
        top += _LINE
        out.append(ink.text(x, top - 4, plot.y.label, kind="quiet"))
    return out, top + 6


def _key(marks: Sequence[Mark], x: float, at: float, top: float, width: float) -> _Drawn:
    """Samples with names, from `at` on and in as many lines as they need; and the bottom of the last line."""
    out = []
    for mark in marks:
        name = mark.name or ""
        wide = SWATCH + 5 + ink.text_width(name)
        if at + wide > x + width:
            at, top = x, top + _LINE
        out += [sample(mark, at, top - 8), ink.text(at + SWATCH + 5, top - 4, name)]
        at += wide + 14
    return out, top
