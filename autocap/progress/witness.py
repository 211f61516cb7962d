"""What is counted beside a period in the power, and may bear it out: calls, of which is told whether they go with it,
and the CPU time of the job's processes. Neither drives anything.

CPU time is a counter, as that of energy is: what lies between two looks at it is an average over all of the time, so
that a load faster than the looks leaves no more of itself than the bound of an average says. It bears a period out, and
never calls one: a job that waits for its GPU by spinning has none in it.
"""

import os
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress

import numpy as np

from autocap.job.processes import Roots, spent_ns, tree
from autocap.progress import Mark
from autocap.progress.period.counted import Load
from autocap.progress.period.estimate import Floats
from autocap.progress.period.progress import PeriodProgress
from autocap.records import Sample, StepReading

_KEPT_LOOKS = 6_000  # looks: 120 s of them, one every 20 ms
_MOST = 64  # processes that are looked at: 0.3 us each
_LOOK_S, _LOOKS = 10.0, 12  # how often it is seen which there are, for as long as a period is usually looked for
_FEWEST = 3


class HostTime:
    """Of the job's processes that /proc shows; a thread that runs is counted up to the last tick of its CPU, 1 to 10 ms
    ago. cpu_ns: of one process; raises OSError where it has ended."""

    def __init__(self, cpu_ns: Callable[[int], int] = spent_ns) -> None:
        self._cpu_ns = cpu_ns
        self._job: Roots | None = None
        self._spent_ns: dict[int, int] = {}  # of each process, at the last look
        self._looked: deque[tuple[float, float]] = deque(maxlen=_KEPT_LOOKS)
        self._total_s = 0.0
        self._looks, self._look_s = 0, -np.inf

    def follow(self, job: Roots | None) -> None:
        """The job is there: this process and its descendants."""
        self._job = job

    def read(self, t_s: float) -> None:
        """Look, at a time on the run's clock."""
        if self._job is not None and t_s >= self._look_s and self._looks < _LOOKS:
            self._looks, self._look_s = self._looks + 1, t_s + _LOOK_S
            with suppress(OSError):
                pids = [process.pid for process in tree(self._job)[:_MOST]]
                self._spent_ns = {pid: self._spent_ns.get(pid, -1) for pid in pids}
        for pid, before_ns in list(self._spent_ns.items()):
            try:
                now_ns = self._cpu_ns(pid)
            except OSError:
                del self._spent_ns[pid]
                continue
            self._spent_ns[pid] = now_ns
            if before_ns >= 0:
                self._total_s += max(0, now_ns - before_ns) / 1e9
        if self._spent_ns:
            self._looked.append((t_s, self._total_s))

    def load(self, t_s: Floats) -> Load | None:
        """The CPUs that were in use on average between two looks, while readings of those times were taken; `None`
        where too few were."""
        looked = np.array([one for one in self._looked if t_s[0] <= one[0] <= t_s[-1]])
        if len(looked) < _FEWEST or not np.all(np.diff(looked[:, 0]) > 0):
            return None
        stamps_s, spent_s = looked.T
        return Load(t_s=stamps_s[1:], cpus=np.diff(spent_s) / np.diff(stamps_s), most=float(os.cpu_count() or 1))


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
