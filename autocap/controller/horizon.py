"""What an iteration is worth while prices move, and what time is worth because of that.

An iteration that is not done now is done later, at what it costs then. So caps are not ranked by what an iteration
costs at this moment: with r and P the iterations a second and the power of a cap, v the price in force and λ what an
iteration is worth, the cap that holds at v is the one with the largest λ r - v P. λ is the same at all times:

- with money per hour h, the least that iterations can cost over the known values, ∫ (v P + h) dt / ∫ r dt (Dinkelbach
  1967: λ is that ratio where the best of λ r - v P - h comes to 0 in the sum);
- with so many iterations to be done in a time, the smallest λ that gets them done: the multiplier of that constraint.

The largest λ r - v P is μ, what a second is worth while v is in force: the same cap has the least v e + μ τ, with e and
τ the energy and time per iteration. So the metric cost at v, with μ in place of money per hour, ranks caps rightly;
where v never changes, μ is h.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Spans = Sequence[tuple[float, float]]  # seconds, and money per joule in them
_ROUNDS = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Choices:
    """What caps come to. rates: iterations a second, powers_w: draw of all devices; shape (caps,)."""

    rates: Floats
    powers_w: Floats

    @classmethod
    def of(cls, times_s: Sequence[float], energies_j: Sequence[float]) -> "Choices":
        """From seconds and joules per iteration."""
        times, energies = np.asarray(times_s, dtype=float), np.asarray(energies_j, dtype=float)
        return cls(rates=1 / times, powers_w=energies / times)

    def chosen(self, prices: Floats, worth: float) -> NDArray[np.intp]:
        """The cap at each price, money per joule, with an iteration worth so much; shape (prices,). Of caps that are
        worth the same, the first."""
        return np.asarray(np.argmax(worth * self.rates - prices[:, None] * self.powers_w, axis=1))

    def time_value(self, price: float, worth: float) -> float:
        """What a second is worth while a price is in force, money."""
        return float(np.max(worth * self.rates - price * self.powers_w))


def worth(choices: Choices, spans: Spans, second_price: float, iterations: float = 0.0) -> float:
    """What an iteration is worth, money, over spans of known prices; never below 0.

    second_price: money per second of all devices. iterations: to be done in the spans at least; where they cannot be,
    an iteration is worth so much that the fastest cap is chosen all the time.
    """
    seconds, prices = (np.array(each, dtype=float) for each in zip(*spans, strict=True))

    def done(value: float) -> tuple[float, float]:
        """Iterations, and what they cost, with an iteration worth so much."""
        caps = choices.chosen(prices, value)
        cost = seconds @ (prices * choices.powers_w[caps] + second_price)
        return float(seconds @ choices.rates[caps]), float(cost)

    value = 0.0
    for _ in range(_ROUNDS):  # a few do: each is a step of Newton's
        count, cost = done(value)
        value, before = max(0.0, cost / count), value
        if math.isclose(value, before, rel_tol=1e-9, abs_tol=1e-15):
            break
    return value if done(value)[0] >= iterations else _least(done, iterations, value, _scale(choices, prices))


def _scale(choices: Choices, prices: Floats) -> float:
    """What the energy of an iteration comes to at most."""
    return float(np.abs(prices).max() * (choices.powers_w / choices.rates).max()) or 1.0


def _least(done: Callable[[float], tuple[float, float]], iterations: float, low: float, step: float) -> float:
    """The least worth above `low` at which so many iterations are done."""
    high = low + step
    for _ in range(_ROUNDS):
        if done(high)[0] >= iterations:
            break
        low, high = high, 2 * high
    for _ in range(_ROUNDS):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        low, high = (low, middle) if done(middle)[0] >= iterations else (middle, high)
    return high
