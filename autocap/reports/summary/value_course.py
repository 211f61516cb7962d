"""How the price or the carbon of a kilowatt-hour went over a run."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocap.events import Event, Quoted
from autocap.events.quote import CARBON, PRICE
from autocap.metrics import Rates

Floats = NDArray[np.float64]
_SHORTEST_S = 1e-9
_EVER_S = 1e9  # before the first value, and after the last


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueCourse:
    """at_s: seconds on the run's clock, shape (n,), ascending. values: per kWh from then on, shape (n,), NaN from where
    on none was known. The last one holds for whatever comes after the run."""

    at_s: Floats
    values: Floats

    def over(self, from_s: Floats, to_s: Floats) -> tuple[Floats, Floats]:
        """Of stretches of time, shape (m,) each: the mean of the values while they were known, and for which share of
        the stretch they were."""
        to_s = np.maximum(to_s, from_s + _SHORTEST_S)
        known = np.isfinite(self.values)
        edges_s = np.concatenate(([-_EVER_S], self.at_s, [_EVER_S]))
        value = np.concatenate(([0.0], np.where(known, self.values, 0.0)))
        there = np.concatenate(([0.0], known.astype(float)))

        def integral(of: Floats) -> Floats:
            sums = np.concatenate(([0.0], np.cumsum(of * np.diff(edges_s))))
            return np.interp(to_s, edges_s, sums) - np.interp(from_s, edges_s, sums)

        known_s = integral(there)
        mean = np.divide(integral(value), known_s, out=np.zeros_like(known_s), where=known_s > 0)
        return mean, known_s / (to_s - from_s)

    def amounts(self, kwh: Floats, from_s: Floats, to_s: Floats) -> Floats:
        """What energy comes to that is used evenly over each stretch of time; none where no value was known."""
        mean, share = self.over(from_s, to_s)
        return kwh * share * mean


def courses(events: Sequence[Event], rates: Rates) -> dict[str, ValueCourse]:
    """By kind, those that are known at all: a number that was given holds all the time."""
    found: dict[str, ValueCourse] = {}
    for kind, number in ((PRICE, rates.energy_price), (CARBON, rates.carbon_g_per_kwh)):
        quoted = [event for event in events if isinstance(event, Quoted) and event.kind == kind]
        if number is not None:
            found[kind] = ValueCourse(at_s=np.zeros(1), values=np.array([number]))
        elif any(event.value is not None for event in quoted):
            values = [np.nan if event.value is None else event.value for event in quoted]
            at_s = np.maximum.accumulate(np.array([event.from_s for event in quoted], dtype=float))
            found[kind] = ValueCourse(at_s=at_s, values=np.array(values))
    return found
