"""What is known of a price or of the carbon of electricity, now and as far ahead as somebody says; and what is
announced of it: the value in force, and the caps that follow it."""

import math
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import pairwise

from autocap.events.base import Event, event
from autocap.records import CAPS_W

PRICE, CARBON = "price", "carbon"
KINDS = (PRICE, CARBON)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """What a kilowatt-hour costs or emits, now and as far ahead as is known. All times on the run's clock, seconds.

    kind: "price" (money per kWh, which may be negative) or "carbon" (grams of CO₂ per kWh, never negative).
    values: (from_s, value), ascending in from_s; each holds until the next one. until_s: where the last one ends.
    Raises ValueError for what is none.
    """

    kind: str
    values: tuple[tuple[float, float], ...]
    until_s: float

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ValueError(f"a quote is of a {' or of '.join(KINDS)}, not of {self.kind!r}")
        if not self.values:
            raise ValueError("a quote needs a value at least")
        if not all(math.isfinite(number) for pair in self.values for number in pair) or not math.isfinite(self.until_s):
            raise ValueError("a quote's times and values must be finite")
        edges_s = (*(from_s for from_s, _ in self.values), self.until_s)
        if any(later_s <= earlier_s for earlier_s, later_s in pairwise(edges_s)):
            raise ValueError("a quote's values must follow one another in time, each longer than 0 s")
        if self.kind == CARBON and min(value for _, value in self.values) < 0:
            raise ValueError("carbon is never below 0 g per kWh")

    def at(self, t_s: float) -> float | None:
        """The value in force at a time; `None` before the first and after the last."""
        index = self._index(t_s)
        return None if index is None else self.values[index][1]

    def ends_s(self, t_s: float) -> float | None:
        """When the value in force at a time ends, seconds; `None` where none is in force."""
        index = self._index(t_s)
        return None if index is None else self._edges_s[index + 1]

    def ahead(self, t_s: float) -> tuple[tuple[float, float], ...]:
        """(seconds, value) from a time on, to the end of what is known; nothing where that is over."""
        edges_s = self._edges_s
        spans = zip(edges_s, edges_s[1:], (value for _, value in self.values), strict=False)
        return tuple((end_s - max(from_s, t_s), value) for from_s, end_s, value in spans if end_s > t_s)

    @property
    def _edges_s(self) -> tuple[float, ...]:
        return (*(from_s for from_s, _ in self.values), self.until_s)

    def _index(self, t_s: float) -> int | None:
        index = bisect_right(self.values, t_s, key=lambda pair: pair[0]) - 1
        return index if index >= 0 and t_s < self.until_s else None


@event("sourced")
class Sourced(Event):
    """Where the values of a kind are read, once the first are. kind: as Quoted has it. currency: of the money."""

    kind: str
    source: str
    currency: str | None = None


@event("quoted")
class Quoted(Event):
    """From now on a kilowatt-hour costs or emits so much. kind: "price", money per kWh, or "carbon", grams of CO₂ per
    kWh. value: `None` where nothing is known any more. until_s: when it ends, as far as that is known. since_s: when it
    came into force, `None` for `t_s`: a value that was known before holds from its time on, also where that is noticed
    a moment later."""

    kind: str
    value: float | None
    until_s: float | None
    since_s: float | None = None

    @property
    def from_s(self) -> float:
        return self.t_s if self.since_s is None else self.since_s


@event("followed")
class Followed(Event):
    """Other caps hold from now on, watts per device, because of the value in force. gain: what that should save, of
    what an iteration at the limits found on arrival costs or emits at that value; 0.01 is one per cent."""

    settings: tuple[float, ...] = field(metadata=CAPS_W)
    kind: str
    value: float
    gain: float
    gain_stderr: float
