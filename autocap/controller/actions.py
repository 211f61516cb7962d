"""What the controller asks of the runner."""

from dataclasses import dataclass

from autocap.events import Event


@dataclass(frozen=True, slots=True, kw_only=True)
class SetCaps:
    """Request these limits, watts, one per device."""

    caps_w: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Announce:
    """Pass an event on."""

    event: Event


Action = SetCaps | Announce
