"""A run's work, stretch by stretch between its running totals."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autocap.events import Event, LastTotals, Tally
from autocap.reports.summary.value_course import Floats

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
