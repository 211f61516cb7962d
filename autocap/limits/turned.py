"""What the guard knows of the knob whose values it holds: enough to tell two of them apart, and to say them."""

from dataclasses import dataclass

from autocap.knobs import POWER_LIMIT, Knob


@dataclass(frozen=True, slots=True, kw_only=True)
class Turned:
    """name, unit: as the knob has them. tolerance: no further apart than this, two values are the same."""

    name: str
    unit: str
    tolerance: float

    @classmethod
    def of(cls, knob: Knob) -> "Turned":
        return cls(name=knob.name, unit=knob.unit, tolerance=knob.tolerance)

    @property
    def is_power_limit(self) -> bool:
        return self.name == POWER_LIMIT.name

    @property
    def noun(self) -> str:
        """What a value of it is called."""
        return "limit" if self.is_power_limit else self.name

    @property
    def unset(self) -> str:
        """A clause for what cannot be guarded."""
        return unset(self.name)

    def same(self, one: float, other: float) -> bool:
        """Whether two values are the same."""
        return abs(one - other) <= self.tolerance

    def text(self, value: float) -> str:
        """A value, as "260 W", "clock 1200 MHz" or "mode 2"."""
        shown = f"{value:g} {self.unit}".rstrip()
        return shown if self.is_power_limit else f"{self.name} {shown}"


def unset(name: str) -> str:
    """The same, of the knob of that name."""
    return "no cap is set" if name == POWER_LIMIT.name else f"{name} is not set"


LIMIT = Turned.of(POWER_LIMIT)
