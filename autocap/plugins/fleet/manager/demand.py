"""What the events of a VTN leave of the watts that were asked for: an event may lower them, and never raises them."""

import math
from collections.abc import Callable
from datetime import datetime
from typing import Protocol

from autocap.plugins.fleet.openadr.source import VtnSource
from autocap.plugins.fleet.openadr.spans import Span, coming, holding
from autocap.plugins.fleet.openadr.watching import Said


class Heard(Protocol):
    """Who hears a VTN, as `Feed` does."""

    @property
    def source(self) -> VtnSource: ...

    def news(self) -> list[Said]: ...


class Demand:
    """feed: hears the VTN. spans: those that an earlier manager knew. warn: takes a sentence."""

    def __init__(self, feed: Heard, spans: tuple[Span, ...], warn: Callable[[str], None]) -> None:
        self._feed, self.spans, self._warn = feed, spans, warn
        self._server = feed.source.server
        self._trouble = ""

    def hear(self) -> bool:
        """Whether other spans are known from now on. What was known before counts while the VTN cannot be asked."""
        before = self.spans
        for said in self._feed.news():
            self.spans = self.spans if said.spans is None else said.spans
            for note in said.notes:
                self._warn(note)
            if said.trouble and not self._trouble:
                self._warn(
                    f"{said.trouble}; the events that are known of {self._server} count for their time, then the "
                    "budget that was asked for"
                )
            if self._trouble and not said.trouble:
                self._warn(f"{self._server} answers again")
            self._trouble = said.trouble
        return self.spans != before

    def lowered(self, watts: float, wall_s: float) -> tuple[float, str]:
        """What is left of so many watts at a time, seconds since 1970, and why that is less, "" where it is not."""
        span = holding(self.spans, wall_s)
        if span is None or span.watts >= watts:
            return watts, ""
        return span.watts, f"{span.label} of {self._server} allows {span.watts:g} W"

    @property
    def over(self) -> str:
        """Why there are more watts again."""
        return f"no event of {self._server} lowers it any more"

    def sentences(self, watts: float, wall_s: float) -> tuple[str, ...]:
        """How things stand with so many watts asked for, at a time."""
        now, next = holding(self.spans, wall_s), coming(self.spans, wall_s)
        holds = f"no event of {self._server} counts now"
        if now is not None:
            until = "" if math.isinf(now.to_s) else f" until {_date(now.to_s)}"
            holds = f"{now.label} of {self._server} allows {now.watts:g} W{until}"
        found = [f"{watts:g} W are asked for; {holds}"]
        if next is not None:
            found.append(f"{next.label} allows {next.watts:g} W from {_date(next.from_s)} on")
        if self._trouble:
            found.append(f"what is known of {self._server} may be old: {self._trouble}")
        return tuple(found)


def _date(wall_s: float) -> str:
    """In local time, with its zone."""
    return datetime.fromtimestamp(wall_s).astimezone().isoformat(timespec="seconds")
