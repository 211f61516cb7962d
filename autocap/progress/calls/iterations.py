"""Iterations of a job out of the calls of its processes: so many calls each, as their repetition tells."""

import math
from dataclasses import dataclass, replace

from autocap.job.processes import ProcessId
from autocap.progress.calls.repetition import Repetition, is_even, is_fair, repetition
from autocap.progress.calls.stamps import CallStamps
from autocap.progress.calls.target import CallsUnavailable, CallTarget
from autocap.progress.ranks import ProcessSteps

_FIRST_LOOK, _GROWTH = 9, 1.25  # calls; two looks at once would see the same
_EVEN_S = 1.0  # of calls, before they are said to be even: a burst alone may be
_FAIR_S, _PATIENCE_S = 10.0, 60.0
_ALIKE = 0.02  # two looks


@dataclass(slots=True)
class _Counted:
    """Of one process. first: the number of the call that ended the iteration before its first one. begun_s: when that
    was. steps: what was last known."""

    first: int
    begun_s: float = 0.0
    steps: ProcessSteps | None = None


class CallIterations:
    """calls: of an iteration, `None` while that is not known. A constant multiple does no harm: it is found once, for
    all the processes of a job, and kept."""

    def __init__(self, target: CallTarget) -> None:
        self._target = target
        self.calls: float | None = None
        self._since_s: float | None = None
        self._looked = 0  # calls
        self._before: Repetition | None = None
        self._counted: dict[ProcessId, _Counted] = {}

    @property
    def doubt(self) -> str | None:
        """What is not known yet; `None` once it is, or before there were calls."""
        if self.calls is not None or self._since_s is None:
            return None
        return f"how many calls of {self._target.symbol} make an iteration is not known yet"

    @property
    def remark(self) -> str | None:
        """What was found."""
        if self.calls in (None, 1.0):
            return None
        return (
            f"{self.calls:.5g} calls of {self._target.symbol} are taken for an iteration, as they repeat after so many"
        )

    def learn(self, process: ProcessId, stamps: CallStamps, now_s: float) -> None:
        """Look at the newest calls of a process. Raises CallsUnavailable where long looking finds nothing."""
        if self.calls is not None or not stamps:
            return
        self._since_s = now_s if self._since_s is None else self._since_s
        waited_s = now_s - self._since_s
        seen = stamps.first + len(stamps)
        if seen < max(_FIRST_LOOK, _GROWTH * self._looked) and waited_s < _PATIENCE_S:
            return
        self._looked = seen
        t_s = stamps.t_s
        before, self._before = self._before, repetition(t_s)
        if is_even(t_s) and t_s[-1] - t_s[0] >= _EVEN_S:
            self.calls = 1.0
        elif before and self._before and abs(self._before.calls / before.calls - 1) <= _ALIKE:
            self.calls = self._before.calls
            self._counted[process] = _Counted(first=stamps.first + self._before.first)
        elif self._before is None and waited_s >= _FAIR_S and is_fair(t_s):
            self.calls = 1.0
        elif waited_s >= _PATIENCE_S:
            raise CallsUnavailable(
                f"{self._target.symbol} is called in bursts in which nothing repeats, so how many calls make an "
                "iteration is not known; choose a function that is called once an iteration"
            )

    def of(self, calls: ProcessSteps, stamps: CallStamps) -> ProcessSteps | None:
        """The iterations of a process by its calls, as of when the last of them ended; `None` before the first."""
        if self.calls is None or not stamps:
            return None
        one = self._counted.setdefault(calls.process, _Counted(first=stamps.first))
        ended = math.floor((calls.count - one.first) / self.calls)
        if ended >= 0 and (one.steps is None or ended >= one.steps.count):
            t_s = stamps.of(one.first + math.ceil(ended * self.calls))
            if t_s is not None:  # else too many calls have come at once: at the next iteration
                one.begun_s = t_s if one.steps is None else one.begun_s
                one.steps = replace(calls, first_s=one.begun_s, last_s=t_s, count=ended + 1)
        return one.steps

    def restart(self) -> None:
        """Calls were not counted for a while: those from now on begin new iterations."""
        self._counted.clear()
