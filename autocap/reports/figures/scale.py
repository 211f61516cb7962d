"""Axes: what they span, and round numbers along them."""

import math
from collections.abc import Iterable

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
