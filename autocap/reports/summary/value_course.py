"""How the price or the carbon of a kilowatt-hour went over a run, and its work, stretch by stretch between its running
totals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocap.events import Event, LastTotals, Quoted, Tally
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


_LEAST_COUNTED = 0.8  # share of the run; with less of it counted, the rest may have been different


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkDone:
    """All of shape (n,): when each stretch began, how long it was, its energy, and the iterations in it; active_*: of
    the time and energy, what was iterations. counted: whether enough was for the whole run to be spoken for."""

    from_s: Floats
    seconds: Floats
    joules: Floats
    iterations: Floats
    active_s: Floats
    active_j: Floats
    counted: bool

    @property
    def to_s(self) -> Floats:
        return self.from_s + self.seconds

    @property
    def paused_s(self) -> Floats:
        """Seconds of pauses, and of what was not counted."""
        return np.maximum(0.0, self.seconds - self.active_s)

    @property
    def paused_j(self) -> Floats:
        return np.maximum(0.0, self.joules - self.active_j)


def work_done(events: Sequence[Event]) -> WorkDone | None:
    """That of the last count of iterations, as a job that is counted anew begins anew; `None` where there is none.

    Of totals that follow each other the last counts (`LastTotals`), as a log is read.
    """
    tallies, last_totals = list[Tally](), LastTotals()
    for event in events:
        if last_totals.replaces(event):
            tallies.pop()
        if isinstance(event, Tally):
            tallies.append(event)
    if not tallies:
        return None
    rows = [_row(one) for one in tallies if one.since_s == tallies[-1].since_s]
    table = np.diff(np.array([(0.0,) * 5, *rows]), axis=0)
    elapsed_s = np.array([0.0, *(row[0] for row in rows)])
    longer = table[:, 0] > 0
    if not longer.any():
        return None
    last = tallies[-1]
    counted = last.iterations > last.paused_iterations and last.counted_s >= _LEAST_COUNTED * last.elapsed_s
    seconds, joules, iterations, active_s, active_j = table[longer].T
    return WorkDone(
        from_s=last.since_s + elapsed_s[:-1][longer],
        seconds=seconds,
        joules=joules,
        iterations=iterations,
        active_s=active_s,
        active_j=active_j,
        counted=counted and last.counted_s > last.paused_s,
    )


def _row(tally: Tally) -> tuple[float, ...]:
    return (
        tally.elapsed_s,
        tally.energy_j,
        tally.iterations - tally.paused_iterations,
        tally.counted_s - tally.paused_s,
        tally.counted_j - tally.paused_j,
    )
