"""Which CPUs a job computes on: what /proc and the scheduler show of its processes. Linux only."""

import os
from contextlib import suppress
from pathlib import Path

from autocap.job.processes import ProcessId, Roots, spent_ticks, tree

_PROC = Path("/proc")
_COMPUTES = 0.1  # of what the busiest process uses: launchers, shells and monitors stay far below


class CpuUse:
    """Where the processes of a job may run, of those that do its work; each look covers the time since the last."""

    def __init__(self, job: Roots) -> None:
        self._job = job
        self._spent: dict[ProcessId, int] = {}

    def look(self) -> frozenset[int]:
        """The CPUs that the processes which compute may use; none while none does. The first look covers their lives.

        Ranks may be bound to packages by a launcher that is not.
        """
        before, self._spent = self._spent, {process: spent_ticks(process.pid) for process in tree(self._job)}
        moved = {process: spent - before.get(process, 0) for process, spent in self._spent.items()}
        most = max(moved.values(), default=0)
        if most == 0:
            return frozenset()
        found: set[int] = set()
        for process, ticks in moved.items():
            if ticks >= _COMPUTES * most:
                with suppress(OSError):  # it has ended
                    found |= os.sched_getaffinity(process.pid)
        return frozenset(found)
