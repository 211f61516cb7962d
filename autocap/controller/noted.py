"""What caps have shown outside of trials, while they were held."""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from autocap.records import Measurement

_MOST_HELD = 24
_ALIKE = 0.01  # of a cap held: what was held so near later stands for it first
_CLOSE = 0.001  # a relative error of the time per iteration
_BESIDE = 0.01  # of a cap: what was looked at so near is looked at anew

T = TypeVar("T")


def latest(held: Sequence[T], cap_w: Callable[[T], float]) -> tuple[T, ...]:
    """What caps have shown, one after the other, without the oldest where it is too much: of those first that others
    were held beside later, so that what is known of caps apart from these stays."""
    if len(held) <= _MOST_HELD:
        return tuple(held)
    beside = (
        place
        for place, one in enumerate(held)
        if any(abs(cap_w(other) / cap_w(one) - 1) < _ALIKE for other in held[place + 1 :])
    )
    gone = next(beside, 0)
    return (*held[:gone], *held[gone + 1 :])


class Noted:
    """All as at the first baseline. held: one after the other, to which the curve of the trials is bent. close: one of
    each cap that was looked at closely, which stands beside the trials'."""

    def __init__(self) -> None:
        self.held: tuple[Measurement, ...] = ()
        self.close: tuple[Measurement, ...] = ()
        self._looked_s: dict[float, float] = {}  # when a cap was looked at closely

    def hold(self, shown: Measurement) -> None:
        """Take in what a cap has shown."""
        self.held = latest((*self.held, shown), lambda one: max(one.cap_w))

    def look(self, shown: Measurement, *, instead: bool) -> None:
        """Take in what was seen at a close look. instead: of what was seen there or beside it before; else it was of
        the baseline's own limits, and is part of that."""
        cap_w = max(shown.cap_w)
        if shown.period_rel_stderr <= _CLOSE:
            self._looked_s[cap_w] = shown.start_s
        if instead:
            others = (one for one in self.close if abs(max(one.cap_w) - cap_w) > _BESIDE * cap_w)
            self.close = (*others, shown)

    def is_close(self, cap_w: float, since_s: float) -> bool:
        """Whether a cap, watts, was looked at closely since then."""
        return self._looked_s.get(cap_w, -math.inf) >= since_s
