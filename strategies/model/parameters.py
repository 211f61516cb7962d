"""What the families of curves have in common: their result, and how their parameters are drawn."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_CONTRADICTED = 3.0  # what the log weight of a curve loses where the device says otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class Curves:
    """Curves over some caps. log_power, log_time: ln of mean power and of time per iteration, of any unit, shape
    (curves, caps). log_weight: how well each goes with the baseline's power and binding, shape (curves,)."""

    log_power: Floats
    log_time: Floats
    log_weight: Floats


def uniform(rng: np.random.Generator, low: float, high: float, count: int) -> Floats:
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
