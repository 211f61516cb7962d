"""What the search for a cap took of a run: its energy and time beyond what the same iterations take once it is over.

Between the running totals of a run, some seconds apart, so many iterations were made with so much time and energy,
pauses left out. What they take while a cap is held is that of the whole run, had there been no search. The error is
that of the mean of those that were held.
"""

import math
from dataclasses import dataclass, replace

from autocap.events import Event, ProgressFound, State, StateEntered, Tally, TrialStarted
from autocap.plugins.recur.record import SearchSpent

_FEWEST = 3  # stretches that were held, for a mean with an error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Held:
    """Sums over stretches: how many, iterations, seconds and joules, and those squared over the iterations."""

    count: int = 0
    iterations: float = 0.0
    seconds: float = 0.0
    joules: float = 0.0
    seconds_2: float = 0.0
    joules_2: float = 0.0

    def error(self, total: float, squares: float) -> float:
        """Standard error of a mean per iteration."""
        spread = max(0.0, squares - total**2 / self.iterations) / (self.count - 1)
        return math.sqrt(spread / self.iterations)


class Searching:
    """Is told all events of a run. searched: whether a cap was tried."""

    def __init__(self) -> None:
        self.searched = False
        self._counts = True  # what is counted are iterations
        self._last: Tally | None = None
        self._total = (0.0, 0.0, 0.0)  # iterations, seconds, joules
        self._holding = False  # since the last totals
        self._state: State | None = None
        self._held = _Held()

    def event(self, event: Event) -> None:
        """Take in what is recorded."""
        match event:
            case TrialStarted():
                self.searched = True
            case ProgressFound(confidence=confidence):
                self._counts = self._counts and confidence == "high"
            case StateEntered(state=state):
                self._state = state
                self._holding = self._holding and state is State.HOLDING
            case Tally():
                self._take(event)

    @property
    def spent(self) -> SearchSpent | None:
        """What it took so far; `None` where that cannot be told, as where the job ended too soon after it."""
        held = self._held
        if not self.searched or not self._counts or held.count < _FEWEST:
            return None
        iterations, seconds, joules = self._total
        rest = iterations - held.iterations
        return SearchSpent(
            energy_j=joules - iterations * held.joules / held.iterations,
            time_s=seconds - iterations * held.seconds / held.iterations,
            energy_stderr_j=rest * held.error(held.joules, held.joules_2),
            time_stderr_s=rest * held.error(held.seconds, held.seconds_2),
        )

    def _take(self, tally: Tally) -> None:
        last, self._last = self._last, tally
        if last is not None and last.since_s != tally.since_s:
            self._counts = False  # what is counted is another thing from here on
        before = (0.0, 0.0, 0.0) if last is None else _active(last)
        iterations, seconds, joules = (now - then for now, then in zip(_active(tally), before, strict=True))
        self._total = (self._total[0] + iterations, self._total[1] + seconds, self._total[2] + joules)
        if self._holding and iterations > 0:
            held = self._held
            self._held = replace(
                held,
                count=held.count + 1,
                iterations=held.iterations + iterations,
                seconds=held.seconds + seconds,
                joules=held.joules + joules,
                seconds_2=held.seconds_2 + seconds**2 / iterations,
                joules_2=held.joules_2 + joules**2 / iterations,
            )
        self._holding = self._state is State.HOLDING


def _active(tally: Tally) -> tuple[float, float, float]:
    return (
        tally.iterations - tally.paused_iterations,
        tally.counted_s - tally.paused_s,
        tally.counted_j - tally.paused_j,
    )
