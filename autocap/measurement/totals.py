"""What the job has used since its first steady iteration, and which part of it the search took."""

from collections.abc import Sequence

from autocap.events import State, Tally
from autocap.measurement.metering import EnergyCurve, Metered
from autocap.progress import Mark

_EXPLORING = (State.SEARCHING, State.CONFIRMING)
_SHORTEST_GAP_S = 1e-6

_Used = tuple[float, float, float]  # seconds, joules, iterations


class RunningTotals:
    """Adds up time, energy and iterations, sample by sample, from the moment `open` is called."""

    def __init__(self) -> None:
        self._curve = EnergyCurve()  # from before the last mark on
        self._counted = (0.0, 0.0, 0.0)  # seconds, joules and iterations up to the last mark, without pauses
        self._marked: tuple[float, float, float] | None = None  # the last mark: t_s, and of the curve joules and gaps
        self._counted_from = self._counted
        self._since: _Used | None = None  # t_s, energy_j, iterations
        self._now = (0.0, 0.0, 0.0)
        self._exploration = (0.0, 0.0, 0.0)
        self._paused = (0.0, 0.0, 0.0)
        self._unknown = 0.0  # iterations over which the energy was not known, so that nothing of them is counted

    def add(self, metered: Metered, state: State) -> None:
        """Add a sample, taken while the controller was in `state`."""
        self._curve.add(metered)
        if metered.marks:
            counted = self._counted
            unknown = self._count(metered.marks)
            if metered.pause_ended and self._since is not None:
                self._paused = _grown(self._paused, self._counted, counted)
            elif self._since is not None:
                self._unknown += unknown
        before, self._now = self._now, (metered.t_s, metered.energy_j, self._counted[2])
        if state in _EXPLORING:
            self._exploration = _grown(self._exploration, self._now, before)

    def open(self) -> None:
        """Begin to count here, once activity is steady; a second call changes nothing."""
        if self._since is None:
            self._since, self._counted_from = self._now, self._counted

    def tally(self, t_s: float) -> Tally | None:
        """The totals so far; `None` before `open`."""
        if self._since is None:
            return None
        elapsed_s, energy_j, iterations = (now - then for now, then in zip(self._now, self._since, strict=True))
        return Tally(
            t_s=t_s,
            since_s=self._since[0],
            elapsed_s=elapsed_s,
            energy_j=energy_j,
            iterations=iterations,
            counted_s=self._counted[0] - self._counted_from[0],
            counted_j=self._counted[1] - self._counted_from[1],
            exploration_s=self._exploration[0],
            exploration_energy_j=self._exploration[1],
            exploration_iterations=self._exploration[2],
            paused_s=self._paused[0],
            paused_j=self._paused[1],
            paused_iterations=self._paused[2] + self._unknown,
        )

    def _count(self, marks: Sequence[Mark]) -> float:
        """Time and energy from mark to mark, which may lie in the past, without those over which the count stood still
        (pauses, and caps at which no iteration could be counted) and those with a gap in the power; returns the
        iterations of the latter."""
        # One mark at a time, as they usually come: arrays of one or two cost more than all the rest of a sample.
        counted_s, counted_j, done = self._counted
        last_s, last_j, last_gap_s = self._marked or (marks[0].t_s, *self._curve.at(marks[0].t_s))
        unknown = 0.0
        for mark in marks:
            used_j, gap_s = self._curve.at(mark.t_s)
            if gap_s - last_gap_s > _SHORTEST_GAP_S:
                unknown += mark.iterations - done
            elif mark.iterations > done:
                counted_s += mark.t_s - last_s
                counted_j += used_j - last_j
            last_s, last_j, last_gap_s, done = mark.t_s, used_j, gap_s, mark.iterations
        self._counted = (counted_s, counted_j, done)
        self._marked = last_s, last_j, last_gap_s  # as it was then: the curve has fewer points of it later on
        self._curve.forget_before(last_s)
        return unknown


def _grown(total: _Used, now: _Used, then: _Used) -> _Used:
    """The total with what has come between two states of the job."""
    seconds, joules, iterations = (sum_ + after - before for sum_, after, before in zip(total, now, then, strict=True))
    return seconds, joules, iterations
