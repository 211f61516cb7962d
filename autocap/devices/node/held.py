"""The last reading of a slow meter: held until the next one comes, and a gap once that is overdue."""

import math
import re

from autocap.records import NodeReading

_WATTS = re.compile(r"\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?=\s*[Ww]?(?:atts)?$)")
_MOST_W = 1e6  # no machine draws more: it is another unit
_OVERDUE = 5.0  # refreshes without a reading
_LEAST_OVERDUE_S = 3.0
_REMEMBERED_S = 120.0  # how soon a value changed is forgotten after so long, as the machine may have got busier
_FEWEST = 10  # readings that show how often they come
_MOST_WARNINGS = 3  # of a kind; more of them say nothing new
_SHOWN = 40  # characters of what is no power


def watts(text: str) -> float | None:
    """The power on a line, with or without its unit W; `None` where there is none above 0."""
    match = _WATTS.match(text.strip())
    value = float(match[0]) if match else 0.0
    return value if 0 < value < _MOST_W else None


class HeldPower:
    """Keeps the readings of one meter, whose class it is the base of. called: what sentences call the meter. every_s:
    seconds between readings at most, as far as is known before they come.

    A meter may be asked more often than it looks. So a value that comes again is a fresh reading only once so much time
    has passed as there was between two different ones; else it is the old one, held, under its old stamp.
    """

    whole = True

    def __init__(self, called: str, every_s: float) -> None:
        self._called = called
        self._interval_s, self._readings = every_s, 0  # between two readings, and how many there were
        self._changes_s = math.inf  # the shortest time between two values that differ
        self._forget_s = math.inf
        self._last_s: float | None = None
        self._changed_s: float | None = None
        self._stamp_s = 0.0
        self._watts: float | None = None
        self._warned: dict[str, int] = {}
        self._notes: list[str] = []

    @property
    def refresh_s(self) -> float | None:
        """Seconds between two fresh readings; `None` while there were too few."""
        return self._expected_s if self._readings >= _FEWEST else None

    @property
    def _expected_s(self) -> float:
        return self._interval_s if math.isinf(self._changes_s) else max(self._changes_s, self._interval_s)

    @property
    def known(self) -> bool:
        """Whether there is a reading."""
        return self._watts is not None

    def put(self, t_s: float, watts: float) -> None:
        """The meter gives this reading now."""
        if self._last_s is not None and t_s > self._last_s:
            since_s = t_s - self._last_s
            if self._readings == 1 and since_s < self._interval_s:  # which was only the most that was to be expected
                self._interval_s = since_s
            self._interval_s += 0.2 * (since_s - self._interval_s)
        self._last_s = t_s
        self._readings += 1
        if watts != self._watts:
            self._learn(t_s)
        if watts != self._watts or t_s - self._stamp_s >= 0.9 * self._expected_s:
            self._stamp_s = t_s
        self._watts = watts

    def refuse(self, t_s: float, text: str) -> None:
        """The meter gives something now that is no power: a gap from here on."""
        self._watts, self._last_s = None, t_s
        shown = text.strip()[:_SHOWN]
        self._say("rubbish", f"{self._called} says '{shown}', which is no power in watts above 0")

    def lose(self, why: str) -> None:
        """The meter gives no more readings: a gap for good."""
        self._watts = None
        self._say("lost", f"{self._called} {why}")

    def at(self, now_s: float) -> NodeReading:
        """The reading that stands for now."""
        silent_s = 0.0 if self._last_s is None else now_s - self._last_s
        if self._watts is not None and silent_s > max(_OVERDUE * self._expected_s, _LEAST_OVERDUE_S):
            self._watts = None
            self._say("silent", f"{self._called} has said nothing for {silent_s:.0f} s")
        return NodeReading(t_s=self._stamp_s, power_w=self._watts, whole=self.whole)

    def notes(self) -> tuple[str, ...]:
        notes, self._notes = tuple(self._notes), []
        return notes

    def _learn(self, t_s: float) -> None:
        """How long a value lasts, from the shortest of late."""
        if self._watts is not None and self._changed_s is not None:
            lasted_s = t_s - self._changed_s
            if lasted_s <= self._changes_s or t_s >= self._forget_s:
                self._changes_s, self._forget_s = lasted_s, t_s + _REMEMBERED_S
        self._changed_s = t_s

    def _say(self, kind: str, what: str) -> None:
        self._warned[kind] = self._warned.get(kind, 0) + 1
        if self._warned[kind] <= _MOST_WARNINGS:
            self._notes.append(f"{what}; until it tells the node's power again nothing is measured")
