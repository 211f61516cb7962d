"""For how long which event allows how many watts, and which of several counts."""

import math
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An interval of an event. label: of the event, printable. from_s, to_s: seconds since 1970; to_s is infinite where
    it never ends. watts: allowed. priority: the lower goes before the higher, `None` after all."""

    label: str
    from_s: float
    to_s: float = math.inf
    watts: float
    priority: int | None = None


def holding(spans: Iterable[Span], wall_s: float) -> Span | None:
    """The one that counts at a time, seconds since 1970; `None` where none does.

    Of several the one whose priority goes first. OpenADR leaves open which of two with one priority counts: here the
    lower one does.
    """
    there = [span for span in spans if span.from_s <= wall_s < span.to_s]
    return min(there, key=_rank, default=None)


def coming(spans: Iterable[Span], wall_s: float) -> Span | None:
    """The first one that lies ahead; of several that begin at once the one that would count."""
    ahead = [span for span in spans if span.from_s > wall_s]
    return min(ahead, key=lambda span: (span.from_s, *_rank(span)), default=None)


def _rank(span: Span) -> tuple[bool, int, float, str]:
    return span.priority is None, span.priority or 0, span.watts, span.label
