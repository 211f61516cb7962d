"""Trials that count no more, in words."""

from collections.abc import Sequence

from autocap.events import Event, TrialWithdrawn
from autocap.reports.summary.summarise import all_of


def sentence(event: TrialWithdrawn) -> str:
    """Which one, and why."""
    return f"what was measured at {event.cap_w:g} W does not count: {event.reason}"


def sentences(events: Sequence[Event]) -> tuple[str, ...]:
    """Of all of a run."""
    return tuple(sentence(event) for event in all_of(TrialWithdrawn, events))
