"""What a picture shows, before it is drawn: panels with marks in the units of their axes.

Everything is decided here and in the modules that build pictures; the renderer (`svg`) computes nothing but places on
its own page. Colours are Okabe and Ito's, which colour-blind readers can distinguish; markers and dashes say the same
again, for grey print.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, StrEnum

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Colour(Enum):
    """A colour on a light page and on a dark one."""

    INK = ("#1a1a1a", "#ececec")
    MUTED = ("#767676", "#9a9a9a")
    ORANGE = ("#b87800", "#e69f00")
    SKY = ("#2f8fc6", "#56b4e9")
    GREEN = ("#008560", "#2fc79b")
    BLUE = ("#0072b2", "#6cb6ff")
    VERMILION = ("#d55e00", "#ff8a3d")
    PURPLE = ("#a8568a", "#e08fc0")


class Marker(StrEnum):
    DISC = "disc"
    RING = "ring"
    SQUARE = "square"
    DIAMOND = "diamond"
    TRIANGLE = "triangle"
    DOWN = "down"
    STAR = "star"


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    """dash: lengths drawn and left out in turn, points; none for a solid line. width: points."""

    colour: Colour
    marker: Marker = Marker.DISC
    dash: tuple[float, ...] = ()
    width: float = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """x, y: shape (n,); NaN breaks the line. stepped: y holds until the next x. name: in the key, `None` for none."""

    name: str | None
    style: Style
    x: Floats
    y: Floats
    stepped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """The area between two lines; all of shape (n,), NaN breaks it."""

    name: str | None
    style: Style
    x: Floats
    low: Floats
    high: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Points:
    """x, y: shape (n,). x_error, y_error: half lengths of error bars, of the same shape, NaN for none. labels: beside
    the points, as many as there is room for."""

    name: str | None
    style: Style
    x: Floats
    y: Floats
    x_error: Floats | None = None
    y_error: Floats | None = None
    labels: tuple[str, ...] = ()


Mark = Line | Band | Points


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """What an axis says and what it spans. log: of an x axis, that equal lengths are equal ratios. names: of an x axis
    on which there is nothing but these places, each with its name."""

    label: str
    low: float
    high: float
    log: bool = False
    names: tuple[tuple[float, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """One pair of axes. share: of the picture's height, against the other panels'."""

    title: str | None
    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    share: float = 1.0

    @property
    def key(self) -> tuple[Mark, ...]:
        """The marks that a key names: points first, as they matter most and are drawn last."""
        named = [mark for mark in self.marks if mark.name is not None]
        return tuple(sorted(named, key=lambda mark: not isinstance(mark, Points)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A stretch of x. hollow: drawn as an outline. label: inside, if there is room."""

    start: float
    end: float
    hollow: bool = False
    label: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One named row of bars."""

    name: str
    style: Style
    bars: tuple[Bar, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """What was going on when: rows of bars above an axis."""

    x: Axis
    rows: tuple[Row, ...]


Panel = Plot | Rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """name: of its file. caption: what is to be seen, in a sentence or two. columns: panels side by side where there is
    room. one_x: the panels stand above each other and share the x axis of the last. note: put into the picture itself,
    such as that power is emulated. folded: a page shows it when it is asked to."""

    name: str
    title: str
    caption: str
    panels: tuple[Panel, ...]
    columns: int = 1
    one_x: bool = False
    note: str = ""
    folded: bool = False

    @property
    def plots(self) -> tuple[Plot, ...]:
        return tuple(panel for panel in self.panels if isinstance(panel, Plot))

    @property
    def common_key(self) -> tuple[Mark, ...]:
        """The named marks of every panel, where there are several and all have the same; one key serves for all."""
        keys = [[(type(mark), mark.name, mark.style) for mark in plot.key] for plot in self.plots]
        return self.plots[0].key if len(keys) > 1 and all(key == keys[0] for key in keys) else ()


_ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
_FEWEST = 4  # steps on an axis
_MARGIN = 0.06  # of the span, on either side


def spanning(label: str, values: Iterable[Floats], *, low: float | None = None, around: float | None = None) -> Axis:
    """An axis that all values fit on, with a margin. low: where it begins whatever they are; around: a value that must
    be on it. Not-numbers are left out."""
    some = [array[np.isfinite(array)] for array in values]
    finite = np.concatenate([*some, [] if around is None else [around], [] if low is None else [low]])
    if not len(finite):
        return Axis(label=label, low=0.0, high=1.0)
    bottom, top = float(finite.min()), float(finite.max())
    margin = _MARGIN * (top - bottom) or 0.05 * abs(top) or 1.0
    return Axis(label=label, low=bottom - margin if low is None else low, high=top + margin)


def ticks(axis: Axis, count: int) -> list[float]:
    """Round numbers on an axis: as many as asked for or fewer, but for the three or so that an axis needs."""
    if axis.log:
        powers = range(math.floor(math.log10(axis.low)), math.ceil(math.log10(axis.high)))
        round_ = [float(f"{first}e{power}") for power in powers for first in (1, 2, 5)]
        return [place for place in round_ if axis.low <= place <= axis.high]
    places = _multiples(axis, _step((axis.high - axis.low) / max(count, 1)))
    return places if len(places) > 2 else _multiples(axis, _step((axis.high - axis.low) / _FEWEST))


def tick_labels(places: list[float]) -> list[str]:
    """Numbers to as many digits as neighbours need to differ."""
    if len(places) < 2:
        return [f"{place:g}" for place in places]
    step = places[1] - places[0]
    digits = next((some for some in range(9) if abs(round(step, some) - step) < 1e-6 * step), 9)
    return [f"{place + 0.0:.{digits}f}" for place in places]


def _multiples(axis: Axis, step: float) -> list[float]:
    first, last = math.ceil(axis.low / step - 1e-9), math.floor(axis.high / step + 1e-9)
    return [number * step for number in range(first, last + 1)]


def _step(span: float) -> float:
    power: float = 10.0 ** math.floor(math.log10(span))
    return next(factor * power for factor in _ROUND if factor * power >= span * 0.999)


@dataclass(frozen=True, slots=True, kw_only=True)
class Box:
    """A rectangle on the page; y grows downwards."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Box") -> bool:
        across = self.left < other.right and other.left < self.right
        return across and self.top < other.bottom and other.top < self.bottom

    def within(self, other: "Box") -> bool:
        across = other.left <= self.left and self.right <= other.right
        return across and other.top <= self.top and self.bottom <= other.bottom


def beside(x: float, y: float, width: float, height: float, gap: float) -> list[Box]:
    """The places around a point for text of that size, the best first."""
    w, h = width, height
    near = 0.75 * gap
    corners = [  # error bars leave a point to the sides and up and down, so the corners come first
        (x + near, y - near - h),
        (x - near - w, y - near - h),
        (x + near, y + near),
        (x - near - w, y + near),
        (x - w / 2, y - gap - h),
        (x - w / 2, y + gap),
        (x + gap, y - h / 2),
        (x - gap - w, y - h / 2),
    ]
    return [Box(left=left, top=top, right=left + w, bottom=top + h) for left, top in corners]


def place(wanted: Iterable[Sequence[Box]], inside: Box, taken: Iterable[Box]) -> list[Box | None]:
    """For each label, in turn, the first of its places that is inside and free; `None` where none is."""
    busy, found = list(taken), list[Box | None]()
    for places in wanted:
        free = (box for box in places if box.within(inside) and not any(box.overlaps(other) for other in busy))
        box = next(free, None)
        found.append(box)
        if box is not None:
            busy.append(box)
    return found
