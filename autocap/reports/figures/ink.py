"""SVG elements as text. Colours are CSS variables, so that one file suits light and dark pages."""

import html
import re
from collections.abc import Iterator
from itertools import accumulate

import numpy as np

from autocap.reports.figures.model import Colour, Floats, Marker, Style
from autocap.text import printable

FONT_PX = 12.0
# Widths of characters as a share of the font size, in DejaVu Sans: wider than what most systems show a page in.
_WIDTHS = {
    **dict.fromkeys(" !',.:;I[]ijl|", 0.35),
    **dict.fromkeys("()-/frt²", 0.42),
    **dict.fromkeys("ABCDGHKNOQRTUVXYZ", 0.77),
    **dict.fromkeys("%@MWmw_…", 1.0),
    **dict.fromkeys("±−×", 0.85),
}
_OTHER_WIDTH, _BOLDER = 0.67, 1.1  # a digit of 12 pixels is 8 wide where glyphs are fitted to pixels
_ASIAN = "\u2e80"  # from here on characters fill a square
_RADIUS = 4.0

CSS = "\n".join(
    [
        "svg text{font:12px system-ui,sans-serif;fill:var(--ink);font-variant-numeric:tabular-nums}",
        "svg .quiet{fill:var(--muted)}svg .note{fill:var(--label);font-weight:600}svg .head{font-weight:600}",
        "svg .grid{stroke:var(--rule);stroke-width:1}svg .axis{stroke:var(--muted);stroke-width:1}",
        "svg .line{fill:none;stroke-linejoin:round}svg .band{fill-opacity:.22}svg .bar{fill-opacity:.38}",
        *(
            f"svg .s-{colour.name.lower()}{{stroke:var(--{colour.name.lower()})}}"
            f"svg .f-{colour.name.lower()}{{fill:var(--{colour.name.lower()})}}"
            for colour in Colour
        ),
    ]
)


# Of the page itself, light and dark.
_PAGE = {"page": ("#fff", "#141414"), "rule": ("#e3e3e3", "#333"), "shade": ("#0003", "#000c")}
_PAGE |= {"label": ("#b04a00", "#ff8a3d")} | {colour.name.lower(): colour.value for colour in Colour}


def variables(*, dark: bool) -> str:
    """The declarations of the colours of a page and its pictures."""
    return "".join(f"--{name}:{pair[dark]};" for name, pair in _PAGE.items())


def on_light(svg: str) -> str:
    """Pictures with the colours in place of the variables, which few programs but browsers know."""
    return re.sub(r"var\(--([a-z]+)\)", lambda found: _PAGE.get(found[1], (found[0],))[0], svg)


def escape(words: str) -> str:
    """Words for a page: neither markup, nor anything that a terminal would obey into which they are copied."""
    return html.escape(printable(words))


def text_width(text: str, *, bold: bool = False) -> float:
    """How wide a text is at most, about, pixels."""
    return sum(_widths(text, bold=bold))


def fitted(text: str, width: float, *, bold: bool = False) -> str:
    """As much of a text as there is room for, pixels; an ellipsis for the rest."""
    if text_width(text, bold=bold) <= width:
        return text
    ends = accumulate(_widths(text, bold=bold), initial=text_width("…", bold=bold))
    return f"{text[: sum(end <= width for end in ends) - 1].rstrip()}…"


def _widths(text: str, *, bold: bool) -> Iterator[float]:
    size = FONT_PX * (_BOLDER if bold else 1.0)
    return (size * _WIDTHS.get(character, 1.0 if character > _ASIAN else _OTHER_WIDTH) for character in text)


def text(x: float, y: float, words: str, *, kind: str = "", anchor: str = "start") -> str:
    """Words on a baseline. anchor: start, middle or end."""
    of_class = f' class="{kind}"' if kind else ""
    at = "" if anchor == "start" else f' text-anchor="{anchor}"'
    return f'<text x="{x:.1f}" y="{y:.1f}"{of_class}{at}>{escape(words)}</text>'


def rule(kind: str, x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line class="{kind}" x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"/>'


def line(x: Floats, y: Floats, style: Style, *, stepped: bool = False) -> str:
    """A line through points on the page, shape (n,); NaN breaks it."""
    d = _path(*_stairs(x, y)) if stepped else _path(x, y)
    return f'<path class="line {_stroke(style)}" {_pen(style)} d="{d}"/>' if d else ""


def band(x: Floats, low: Floats, high: Floats, style: Style) -> str:
    """The area between two lines, each stretch between NaNs by itself."""
    out = []
    for stretch in _stretches(np.isfinite(low) & np.isfinite(high)):
        there, back = _path(x[stretch], low[stretch]), _path(x[stretch][::-1], high[stretch][::-1])
        out.append(f"{there}L{back[1:]}Z")
    return f'<path class="band {_fill(style)}" d="{"".join(out)}"/>' if out else ""


def bar(x: float, y: float, width: float, height: float, style: Style, *, hollow: bool) -> str:
    kind = f"{_stroke(style)}" if hollow else f"bar {_fill(style)}"
    more = ' fill="none"' if hollow else ""
    return f'<rect class="{kind}"{more} x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def error_bars(ends: Floats, style: Style) -> list[str]:
    """ends: x and y of both ends of each bar, shape (n, 4); one that is not known is left out."""
    known: list[list[float]] = ends[np.isfinite(ends).all(axis=1)].tolist()
    return [rule(_stroke(style), x1, y1, x2, y2) for x1, y1, x2, y2 in known]


def marker(x: float, y: float, style: Style) -> str:
    """A point; a hollow one lets what is behind it be seen as little as a full one."""
    if style.marker in (Marker.DISC, Marker.RING):
        hollow = style.marker is Marker.RING
        kind = (
            f'class="{_stroke(style)}" fill="var(--page)" stroke-width="1.5"' if hollow else f'class="{_fill(style)}"'
        )
        return f'<circle {kind} cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS - hollow * 0.5:g}"/>'
    corners = " ".join(f"{x + _RADIUS * dx:.1f},{y + _RADIUS * dy:.1f}" for dx, dy in _CORNERS[style.marker])
    return f'<polygon class="{_fill(style)}" points="{corners}"/>'


def _star() -> tuple[tuple[float, float], ...]:
    angles = np.pi * (np.arange(10) / 5 - 0.5)
    radii = np.where(np.arange(10) % 2, 0.75, 1.75)
    return tuple(zip((radii * np.cos(angles)).tolist(), (radii * np.sin(angles)).tolist(), strict=True))


_CORNERS: dict[Marker, tuple[tuple[float, float], ...]] = {
    Marker.SQUARE: ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
    Marker.DIAMOND: ((0, -1.35), (1.35, 0), (0, 1.35), (-1.35, 0)),
    Marker.TRIANGLE: ((0, -1.25), (1.15, 0.85), (-1.15, 0.85)),
    Marker.DOWN: ((0, 1.25), (1.15, -0.85), (-1.15, -0.85)),
    Marker.STAR: _star(),
}


def _pen(style: Style) -> str:
    dash = f' stroke-dasharray="{" ".join(f"{part:g}" for part in style.dash)}"' if style.dash else ""
    return f'stroke-width="{style.width:g}"{dash}'


def _stroke(style: Style) -> str:
    return f"s-{style.colour.name.lower()}"


def _fill(style: Style) -> str:
    return f"f-{style.colour.name.lower()}"


def _path(x: Floats, y: Floats) -> str:
    known = np.isfinite(x) & np.isfinite(y)
    parts = []
    for stretch in _stretches(known):
        points = [f"{px:.1f} {py:.1f}" for px, py in zip(x[stretch].tolist(), y[stretch].tolist(), strict=True)]
        parts.append("M" + "L".join(points))
    return "".join(parts)


def _stairs(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """A value that holds until the next, as corners."""
    return np.repeat(x, 2)[1:], np.repeat(y, 2)[:-1]


def _stretches(known: "np.ndarray[tuple[int], np.dtype[np.bool_]]") -> list[slice]:
    """The runs of points that are there."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], known, [False])).astype(int)))
    return [slice(int(start), int(end)) for start, end in zip(edges[::2], edges[1::2], strict=True)]
