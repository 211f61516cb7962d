"""What the controller asks of the runner, and what a search or a check ends with."""

from dataclasses import dataclass

from autocap.events import Event
from autocap.records import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCaps:
    """Request these limits, watts, one per device."""

    settings: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Pass an event on."""

    event: Event


Action = SetCaps | Announce


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Hold these caps, watts per device. reference: how they were measured. again_s: they were not confirmed, and are
    to be after so long; `None` where they were."""

    settings: tuple[float, ...]
    reference: Measurement
    again_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Revert:
    """Hold the limits found on arrival, as nothing is better. reference: how they were measured."""

    reference: Measurement


class RevertForNow(Revert):
    """The same; but a later search may find something better."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepByCurve:
    """Hold what is best at or below the ceiling by all that was measured: the limits that the baseline was measured at
    do not hold, so nothing can be confirmed against it. reference: what is expected there."""

    reference: Measurement


Kept = Keep | Revert | KeepByCurve
