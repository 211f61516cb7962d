"""Axes, what they span and round numbers along them; and text, beside what it names and on nothing else."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from autocap.reports.figures.model import Axis, Floats

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
