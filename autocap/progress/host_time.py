"""The CPU time of a job's processes: a counter, as that of energy is, and a witness of a period in the power.

What lies between two looks at it is an average over all of the time, so that a load faster than the looks leaves no
more of itself than the bound of an average says. It bears a period out, and never calls one: a job that waits for its
GPU by spinning has none in it.
"""

import os
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from autocap.job.processes import Roots, spent_ns, tree
from autocap.progress.period.counted import Load
from autocap.progress.period.estimate import Floats

_KEPT = 6_000  # looks: 120 s of them, one every 20 ms
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
        self._looked: deque[tuple[float, float]] = deque(maxlen=_KEPT)
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
