"""Iterations done, from cycles counted at one cap after another."""

import numpy as np

from autocap.progress import Mark
from autocap.progress.period.estimate import Cycles, Floats

Knots = list[tuple[float, float]]  # times, seconds, and the cycles counted until then


class Numbering:
    """Marks, each once, from what is counted again and again. last: the last mark, at whatever cap."""

    def __init__(self) -> None:
        self.last: Mark | None = None
        self._period_s = 0.0  # then
        self._here = self._bridge = False  # there is one at this cap; was one at the cap before
        self._begun_s = 0.0

    @property
    def period_s(self) -> float:
        """Of the cycles counted last, seconds; 0 before."""
        return self._period_s

    def begin(self, begun_s: float) -> None:
        """Other caps hold from then on. What runs from the last cycle counted to the first one there is known from the
        periods before and after."""
        self._bridge, self._here, self._begun_s = self._here, False, begun_s

    def of(self, cycles: Cycles) -> tuple[Mark, ...]:
        """The boundaries that are new. The last cycle is left for the next look, which knows it better."""
        times, counts = cycles.t_s, cycles.count
        known = times <= times[-1] - cycles.period_s
        if self.last is None or not self._here:
            fresh = known
            base = self._before(float(times[0]), cycles.period_s) - counts[0]
        else:
            fresh = known & (times >= self.last.t_s + 0.5 * cycles.period_s)
            base = self.last.iterations - float(np.interp(self.last.t_s, times, counts))
        return self._marked(times[fresh], base + counts[fresh], cycles.period_s)

    def along(self, knots: Knots, period_s: float) -> tuple[Mark, ...]:
        """The ends of iterations after the last mark, and those of pauses, along what a tracker has counted. knots:
        from before the last mark on, if it is one of this cap."""
        if len(knots) < 2:
            return ()
        times, counts = np.array(knots).T
        if self.last is None or not self._here:
            self.last = Mark(t_s=float(times[0]), iterations=self._before(float(times[0]), period_s))
        done = self.last.iterations + counts - float(np.interp(self.last.t_s, times, counts))
        ends = np.arange(self.last.iterations + 1.0, done[-1] + 1e-9)
        still = np.flatnonzero(np.diff(done) == 0)
        at = np.concatenate((np.interp(ends, done, times), times[still], times[still + 1]))
        reached = np.concatenate((ends, done[still], done[still]))
        order = np.lexsort((reached, at))
        at, reached = at[order], reached[order]
        fresh = at > self.last.t_s
        return self._marked(at[fresh], reached[fresh], period_s)

    def _marked(self, times: Floats, counts: Floats, period_s: float) -> tuple[Mark, ...]:
        marks = tuple(Mark(t_s=float(t), iterations=float(n)) for t, n in zip(times, counts, strict=True))
        if marks:
            self.last, self._here, self._period_s = marks[-1], True, period_s
        return marks

    def _before(self, first_s: float, period_s: float) -> float:
        """Iterations done when the first cycle counted at this cap begins. Across caps at which none was counted they
        are not known, and the count stands still."""
        if self.last is None:
            return 0.0
        if not self._bridge:
            return self.last.iterations
        at_last_cap = (self._begun_s - self.last.t_s) / self._period_s
        return self.last.iterations + at_last_cap + (first_s - self._begun_s) / period_s
