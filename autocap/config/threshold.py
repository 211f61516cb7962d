"""A number that decides when something counts. It stands in the `Tuning` of its room with its unit and its reason.

No option sets one: `autocap config --all` prints them, `python -m bench scenarios --tuning NAME=VALUE` tries others.
"""

from dataclasses import dataclass, field, fields
from typing import TypeVar

from autocap.config.option import Record

V = TypeVar("V", int, float)


@dataclass(frozen=True, slots=True, kw_only=True)
class Threshold:
    """reason: what it is, and why not more or less. bench: the one that shows what it does, "" where none does."""

    name: str
    value: float
    unit: str
    reason: str
    bench: str


def threshold(value: V, unit: str, reason: str, bench: str = "") -> V:
    """A field of a `Tuning`."""
    return field(default=value, metadata={"unit": unit, "reason": reason, "bench": bench})


def thresholds(tuning: Record) -> list[Threshold]:
    """Those of a room, in its order."""
    return [Threshold(name=one.name, value=getattr(tuning, one.name), **one.metadata) for one in fields(tuning)]
