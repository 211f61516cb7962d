"""What is known of a value that moves: in force now, ahead as far as somebody says, and what it was in the last day."""

from collections.abc import Iterable
from itertools import pairwise

from autocap import events
from autocap.controller.context import StepContext
from autocap.events.quote import CARBON, PRICE, Quote

_DAY_S = 86400.0
SAME_S = 5.0  # two times of the day that are as near are one: clocks drift
_WORDS = {PRICE: "price of electricity", CARBON: "carbon of electricity"}
Spans = list[tuple[float, float]]  # seconds, and the value in them


class Quotes:
    """Of one kind. value: in force; `None` where nothing is known. from_s, until_s: between which it is."""

    def __init__(self, kind: str, context: StepContext) -> None:
        self._kind, self._context = kind, context
        self._quote: Quote | None = None
        self._seen: list[tuple[float, float | None]] = []  # (since_s, value), as each came into force
        self.value: float | None = None
        self.from_s = self.until_s = 0.0

    def take(self, quote: Quote | None) -> events.Quoted | None:
        """This is known from now on, until there is more; `None`: nothing. What there is to announce of it."""
        now_s, first = self._context.now_s, not self._seen
        before, until_s, self.value = self.value, self.until_s, None if quote is None else quote.at(now_s)
        if self.value is None and before is None and not first:
            return None
        self._quote = None if self.value is None else quote
        self.from_s = self.until_s = now_s
        if self._quote is not None:
            self.from_s = max(from_s for from_s, _ in self._quote.values if from_s <= now_s)
            self.until_s = self._quote.ends_s(now_s) or now_s
        if not first and self.value == before and abs(self.until_s - until_s) < SAME_S:
            return None
        # What was foretold came when it was to, however much later somebody has looked.
        foretold = not first and self.from_s < now_s and abs(self.from_s - until_s) < SAME_S
        since_s = self.from_s if foretold and self.from_s > self._seen[-1][0] else now_s
        self._seen = [*(one for one in self._seen if one[0] > now_s - 2 * _DAY_S), (since_s, self.value)]
        return events.Quoted(
            t_s=now_s,
            kind=self._kind,
            value=self.value,
            until_s=None if self.value is None else self.until_s,
            since_s=None if since_s == now_s else since_s,
        )

    @property
    def loss(self) -> str:
        """What to say where no value is in force."""
        if self.typical is None:
            return f"the {_WORDS[self._kind]} is not known; until it is, caps go by energy and time alone"
        return f"the {_WORDS[self._kind]} is not known any more; until it is, caps go by the mean of what it was"

    @property
    def typical(self) -> float | None:
        """The mean of what is known ahead and, where that is less than a day, of what was before; by their sizes where
        that is not above 0, and `None` where nothing ever was known."""
        spans = self.spans()
        if not spans:
            return None
        seconds = _seconds(spans)
        mean = sum(span_s * value for span_s, value in spans) / seconds
        return mean if mean > 0 else sum(span_s * abs(value) for span_s, value in spans) / seconds

    @property
    def in_force(self) -> float:
        """The value to go by: a usual one where none is known."""
        return (self.typical or 0.0) if self.value is None else self.value

    @property
    def ahead(self) -> Spans:
        """What is known of the time to come."""
        return [] if self._quote is None else list(self._quote.ahead(self._context.now_s))

    def spans(self, until_s: float | None = None) -> Spans:
        """What is known ahead and, where that is less than a day, so much of the last day that it is one. until_s: the
        end of it all; then what the last day was stands for the rest of it."""
        if until_s is None:
            return [*self.ahead, *_first(self._before(), _DAY_S - _seconds(self.ahead))]
        ahead = _first(self.ahead, until_s - self._context.now_s)
        rest_s, like = until_s - self._context.now_s - _seconds(ahead), _first(self._before(), _DAY_S) or ahead
        stretch = rest_s / _seconds(like) if like else 0.0
        return [*ahead, *((stretch * span_s, value) for span_s, value in like if stretch > 0)]

    def _before(self) -> Spans:
        """What was, the latest first."""
        edges = [*self._seen, (self._context.now_s, None)]
        known = [(to_s - since_s, value) for (since_s, value), (to_s, _) in pairwise(edges) if to_s > since_s]
        return [(span_s, value) for span_s, value in reversed(known) if value is not None]


def _seconds(spans: Spans) -> float:
    return sum(span_s for span_s, _ in spans)


def _first(spans: Iterable[tuple[float, float]], seconds: float) -> Spans:
    """The beginning of spans, so long."""
    out: Spans = []
    for span_s, value in spans:
        if seconds <= 0:
            break
        out.append((min(span_s, seconds), value))
        seconds -= span_s
    return out
