"""What is announced of prices and carbon that change: the value in force, and the caps that follow it."""

from dataclasses import field

from autocap.events.base import Event, event
from autocap.records import CAPS_W


@event("sourced")
class Sourced(Event):
    """Where the values of a kind are read, once the first are. kind: as Quoted has it. currency: of the money."""

    kind: str
    source: str
    currency: str | None = None


@event("quoted")
class Quoted(Event):
    """From now on a kilowatt-hour costs or emits so much. kind: "price", money per kWh, or "carbon", grams of CO₂ per
    kWh. value: `None` where nothing is known any more. until_s: when it ends, as far as that is known. since_s: when it
    came into force, `None` for `t_s`: a value that was known before holds from its time on, also where that is noticed
    a moment later."""

    kind: str
    value: float | None
    until_s: float | None
    since_s: float | None = None

    @property
    def from_s(self) -> float:
        return self.t_s if self.since_s is None else self.since_s


@event("followed")
class Followed(Event):
    """Other caps hold from now on, watts per device, because of the value in force. gain: what that should save, of
    what an iteration at the limits found on arrival costs or emits at that value; 0.01 is one per cent."""

    settings: tuple[float, ...] = field(metadata=CAPS_W)
    kind: str
    value: float
    gain: float
    gain_stderr: float
