"""Where the price and the carbon of electricity are read, where they change as time goes on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """As given: `file:PATH`, `command:CMD` or the name of a service; `None` where a number, or nothing, was given."""

    energy_price: str | None = None
    carbon: str | None = None


NO_SOURCES = Sources()
