"""Two sets of caps measured in turn, so that slow drift of the machine cancels; and whether a cap that was measured so
against the baseline is really better."""

import math
from dataclasses import dataclass
from enum import Enum, auto

from autocap.measurement.combining import pool
from autocap.metrics import Metric
from autocap.records import Measurement

Caps = tuple[float, ...]

_ROUNDS = 3
# Two windows of the cap, each measured to √2 of the target, together reach the target.
WINDOW_ERROR = math.sqrt(2)


class Comparison:
    """Windows that alternate outer, inner, outer, inner, outer: each at the inner caps lies between two at the outer.

    opening: a window at the outer caps that was measured just before, and stands for the first one.
    """

    def __init__(self, outer_w: Caps, inner_w: Caps, opening: Measurement | None = None) -> None:
        self.outer_w, self.inner_w = outer_w, inner_w
        self._outer = [] if opening is None else [opening]
        self._inner: list[Measurement] = []

    @property
    def inner_next(self) -> bool:
        """Whether the next window is to be taken at the inner caps."""
        return len(self._outer) > len(self._inner)

    @property
    def next_w(self) -> Caps:
        """The caps of the next window, watts per device."""
        return self.inner_w if self.inner_next else self.outer_w

    @property
    def rounds(self) -> int:
        """How many inner windows there are; 0 while the last of them has no outer one after it."""
        return len(self._inner) if self.inner_next else 0

    def add(self, window: Measurement) -> None:
        """Add the window that was asked for."""
        (self._inner if self.inner_next else self._outer).append(window)

    @property
    def outer(self) -> Measurement:
        return pool(self._outer)

    @property
    def inner(self) -> Measurement:
        return pool(self._inner)


class Ruling(Enum):
    """What a confirmation says of a cap."""

    BETTER = auto()  # than the baseline by more than two sigma, and not too slow
    NOT_BETTER = auto()
    TOO_SLOW = auto()  # or not surely within the limit on slowdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """reason: a sentence with numbers. measurement: of the cap, baseline: of the windows between."""

    ruling: Ruling
    reason: str
    measurement: Measurement
    baseline: Measurement


def judge(compared: Comparison, metric: Metric) -> Judgement | None:
    """What windows of a cap (outer) and of the baseline (inner) say of the cap; `None` while that is open."""
    if not compared.rounds:
        return None
    cap, baseline, last = compared.outer, compared.inner, compared.rounds >= _ROUNDS
    cost = metric.versus(cap, baseline)
    numbers = f"{metric.name} {cost.value:.4f} ± {cost.stderr:.4f} of the baseline's"

    def found(ruling: Ruling, reason: str) -> Judgement:
        return Judgement(ruling=ruling, reason=reason, measurement=cap, baseline=baseline)

    if metric.forbids(cap, baseline):
        return found(Ruling.TOO_SLOW, f"too slow: {_slowdown(cap, baseline, metric)}")
    if cost.value - 2 * cost.stderr > 1:
        return found(Ruling.NOT_BETTER, f"worse than the baseline: {numbers}")
    if not metric.allows(cap, baseline):
        unsure = f"not surely within the slowdown limit: {_slowdown(cap, baseline, metric)}"
        return found(Ruling.TOO_SLOW, unsure) if last else None
    if cost.value + 2 * cost.stderr < 1:
        return found(Ruling.BETTER, numbers)
    return found(Ruling.NOT_BETTER, f"not better beyond its error: {numbers}") if last else None


def _slowdown(cap: Measurement, baseline: Measurement, metric: Metric) -> str:
    ratio = cap.period_s / baseline.period_s
    error = math.hypot(cap.period_rel_stderr, baseline.period_rel_stderr)
    return f"{100 * (ratio - 1):+.2f} ± {100 * error:.2f} % time, {100 * (metric.max_slowdown or 0):g} % allowed"
