"""What the job has used since its first steady iteration, and which part of it the search took."""

from collections.abc import Sequence

from autocap.events import State, Tally
from autocap.progress import Mark
from autocap.records import Sample
from autocap.window import EnergyMeter

_EXPLORING = (State.SEARCHING, State.CONFIRMING)


class Accounts:
    """Adds up time, energy and iterations, sample by sample, from the moment `open` is called."""

    def __init__(self) -> None:
        self._meter = EnergyMeter()
        self._iterations = 0.0
        self._since: tuple[float, float, float] | None = None  # t_s, energy_j, iterations
        self._now = (0.0, 0.0, 0.0)
        self._exploration = (0.0, 0.0, 0.0)

    def feed(self, sample: Sample, marks: Sequence[Mark], state: State) -> None:
        """Add a sample, taken while the controller was in `state`."""
        self._meter.feed(sample)
        if marks:
            self._iterations = marks[-1].iterations
        before, self._now = self._now, (sample.t_s, self._meter.energy_j, self._iterations)
        if state in _EXPLORING:
            spent = zip(self._exploration, self._now, before, strict=True)
            t_s, energy_j, iterations = (total + now - then for total, now, then in spent)
            self._exploration = (t_s, energy_j, iterations)

    def open(self) -> None:
        """Begin to count here, once activity is steady; a second call changes nothing."""
        self._since = self._since or self._now

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
            exploration_s=self._exploration[0],
            exploration_energy_j=self._exploration[1],
            exploration_iterations=self._exploration[2],
        )
