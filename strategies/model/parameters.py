"""What the families of curves have in common: their result, how their parameters are drawn, and the clock that goes
with a power."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CLOCKS = np.geomspace(0.02, 1.0, 160)  # relative; between them everything is taken to be straight
_CONTRADICTED = 3.0  # what the log weight of a curve loses where the device says otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Curves over some caps. log_power, log_time: ln of mean power and of time per iteration, of any unit, shape
    (curves, caps). log_weight: how well each goes with the baseline's power and binding, shape (curves,)."""

    log_power: Floats
    log_time: Floats
    log_weight: Floats


def uniform(rng: np.random.Generator, count: int, low: float, high: float) -> Floats:
    """A parameter of every curve of a family, shape (count, 1)."""
    return rng.uniform(low, high, (count, 1))


def at_odds(binds: NDArray[np.bool_], binding: bool | None) -> Floats:
    """What the log weight of each curve loses if the baseline's cap binds it and the device denies that, or the other
    way round; of the shape of `binds`. binding: what the device says, `None` where it says nothing."""
    return np.zeros(binds.shape) if binding is None else np.where(binds != binding, _CONTRADICTED, 0.0)


def dynamic(x: Floats, knee: Floats, flat: Floats) -> Floats:
    """x V(x)², 1 at the full clock x = 1: V is `flat` below a knee, linear above it, and 1 at full clock."""
    slope = (1 - flat) / (1 - knee)
    return np.asarray(x * (flat + slope * np.maximum(x - knee, 0.0)) ** 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rising:
    """Something that rises with the clock, for every curve at CLOCKS; finds the clocks that go with its values.

    lowest, span: of each curve, shape (curves, 1). table: all curves one after another, each above the one before it.
    """

    lowest: Floats
    span: Floats
    table: Floats

    @classmethod
    def of(cls, values: Floats) -> "Rising":
        """values: rising, shape (curves, clocks)."""
        lowest, span = values[:, :1], values[:, -1:] - values[:, :1]
        return cls(lowest=lowest, span=span, table=((values - lowest) / span + 2 * _row(values)).ravel())

    def clocks(self, wanted: Floats) -> "Between":
        """Where each curve has the values wanted, shape (curves, anything); those that it has nowhere at its ends."""
        sought = np.clip((wanted - self.lowest) / self.span, 0.0, 1.0) + 2 * _row(wanted)
        first = len(CLOCKS) * _row(wanted)
        place = np.clip(np.searchsorted(self.table, sought, side="right") - 1, first, first + len(CLOCKS) - 2)
        below = self.table[place]
        return Between(place=place, part=(sought - below) / (self.table[place + 1] - below))


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """Places between the clocks of CLOCKS, the rows of all curves in one line. part: of the way to the next."""

    place: NDArray[np.int_]
    part: Floats

    @classmethod
    def of(cls, clock: Floats) -> "Between":
        """Of these clocks of each curve, shape (curves, 1)."""
        place = np.clip(np.searchsorted(CLOCKS, clock, side="right") - 1, 0, len(CLOCKS) - 2)
        part = (clock - CLOCKS[place]) / (CLOCKS[place + 1] - CLOCKS[place])
        return cls(place=place + len(CLOCKS) * _row(clock), part=part)

    def of_values(self, values: Floats) -> Floats:
        """What is there of values given at CLOCKS, shape (curves, clocks)."""
        line = values.ravel()
        below = line[self.place]
        return np.asarray(below + self.part * (line[self.place + 1] - below))

    @property
    def clock(self) -> Floats:
        """The clocks themselves."""
        place = self.place % len(CLOCKS)
        return np.asarray(CLOCKS[place] + self.part * (CLOCKS[place + 1] - CLOCKS[place]))


def _row(values: Floats) -> NDArray[np.int_]:
    return np.arange(len(values))[:, None]
