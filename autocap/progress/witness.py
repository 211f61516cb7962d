"""Calls that are counted beside a period in the power: do they go with it? They drive nothing, but are told of."""

from collections import deque
from collections.abc import Sequence

import numpy as np

from autocap.progress import Mark
from autocap.progress.period.progress import PeriodProgress
from autocap.records import Sample, StepReading

_FEWEST_CYCLES = 12.0
_CYCLES_A_CALL = 10.0  # of which fewer than one falls into a cycle
_EDGES = 1.5  # calls that are counted or not, at both ends
_MOST_OF_ONE = 8  # calls in a cycle, or cycles in a call: of more nothing is told
_KEPT = 20_000  # readings


class CallWitness:
    """Holds the count of calls against the cycles of a period. what: one call, in a message.

    remark: what it found, once it has seen enough; `None` before, and where no calls were made.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self._called: deque[tuple[float, int]] = deque(maxlen=_KEPT)  # t_s of a call, and how many there were by then
        self._last: Mark | None = None
        self._cycles = self._calls = 0.0
        self.remark: str | None = None

    def called(self, reading: StepReading | None) -> None:
        """Take in the count of calls, with the time of the newest."""
        if reading is not None and (not self._called or reading.t_s > self._called[-1][0]):
            self._called.append((reading.t_s, reading.count))

    def marked(self, marks: Sequence[Mark]) -> None:
        """Take in the ends of cycles, as they become known. A pause holds none; what is called in it is left out."""
        if self.remark is not None or not marks or len(self._called) < 2:
            return
        t_s, counts = np.array(self._called, dtype=float).T
        for mark in marks:
            last, self._last = self._last, mark
            if last is not None and last.t_s >= t_s[0] and mark.t_s <= t_s[-1] and mark.iterations > last.iterations:
                self._cycles += mark.iterations - last.iterations
                self._calls += float(np.diff(np.interp([last.t_s, mark.t_s], t_s, counts))[0])
        self.remark = self._found()

    def _found(self) -> str | None:
        if self._cycles < _FEWEST_CYCLES or self._calls <= 0:
            return None
        each = self._calls / self._cycles
        if self._cycles < _CYCLES_A_CALL / min(1.0, each):
            return None
        error = _EDGES / self._cycles
        in_one = max(1, round(each))
        of_one = max(1, round(1 / each))
        if max(in_one, of_one) > _MOST_OF_ONE:
            return (
                f"{each:.3g} times a {self._what} goes with each period in the power, too many or too few to tell more"
            )
        if abs(each - in_one) <= error:
            return (
                f"the period in the power is an iteration: one {self._what} goes with each"
                if in_one == 1
                else f"the period in the power holds {in_one} times a {self._what}: it is as many iterations, or one"
            )
        if abs(each - 1 / of_one) <= error:
            return f"the period in the power is a part of an iteration: a {self._what} takes {of_one} of them"
        return (
            f"the period in the power does not go with the iterations: {each:.2f} times a {self._what} in each; "
            "pass --progress calls"
        )


class WitnessedPeriod(PeriodProgress):
    """The period, whose marks a witness sees as well."""

    witness: CallWitness | None = None

    def marks(self, sample: Sample) -> tuple[Mark, ...]:
        marks = super().marks(sample)
        if self.witness is not None:
            self.witness.marked(marks)
        return marks
