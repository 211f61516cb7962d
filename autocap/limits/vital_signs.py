"""Is a controller that falls silent hung, or does it only not get the CPU? Judged by what /proc shows of its threads.

A controller that sleeps, waits, is stopped or computes without an end is hung: it had the time for a beat and gave
none. One of which a thread is runnable, and which has used next to no CPU time since its last beat, stands in the
queue for a CPU: putting its limits back helps nobody, and would begin its trial anew each time. The kernel's own
figure for that wait (`/proc/PID/schedstat`) counts it only once it is over, so it is not asked.
"""

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autocap.job.processes import ProcessId
from autocap.limits.times import HANG_S, SPENT_S, STARVED_LOOK_S, STARVED_S

_SHORTEST_S = 0.001  # a wait; clocks and sums are no finer
_PROC = Path("/proc")
_STAT_BYTES = 4096
_STATE, _START_TICKS = 0, 19  # of the fields behind the command's name
_STOPPED = (b"T", b"t")  # by a signal, or by who traces it
_ALL_THREADS = 2  # CPUCLOCK_SCHED of the kernel's posix-timers.h


@dataclass(frozen=True, slots=True, kw_only=True)
class Look:
    """cpu_s: CPU time of all threads so far. runnable: whether one of them runs or waits for a CPU."""

    cpu_s: float
    runnable: bool


def is_hung(silence_s: float, since: Look | None, now: Look | None) -> bool:
    """Whether a controller that has given no beat for so long counts as hung.

    since: at its last beat; now: at this moment. `None` where /proc does not show it: then silence alone counts.
    """
    if silence_s < HANG_S:
        return False
    if silence_s >= STARVED_S or since is None or now is None:
        return True
    return not (now.runnable and now.cpu_s - since.cpu_s < SPENT_S)


def next_look_s(silence_s: float) -> float:
    """Seconds until one that has given no beat for so long, and does not count as hung, may do so."""
    due_s = HANG_S if silence_s < HANG_S else min(silence_s + STARVED_LOOK_S, STARVED_S)
    return max(_SHORTEST_S, due_s - silence_s)


class VitalSigns:
    """Looks at one process. Its descriptor is kept: it goes on standing for this very process, and for a dead one once
    that has ended. owner: the process; a look at one that is hidden or gone shows nothing. most_threads: of which are
    looked at, where it may be a process that wants us to be busy; all when `None`."""

    def __init__(self, owner: ProcessId, most_threads: int | None = None) -> None:
        self._owner, self._most_threads = owner, most_threads
        self._cpu_clock = (~owner.pid << 3) | _ALL_THREADS  # as the kernel numbers the CPU clocks of processes
        self._fd: int | None = None
        with suppress(OSError):
            self._fd = os.open(_PROC / str(owner.pid) / "stat", os.O_RDONLY)
        if self._fd is not None and not self._is_owners(_fields(self._fd)):
            self.close()

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def are_there(self) -> bool:
        """Whether the process lives; as `ProcessId.is_alive`, without opening anything."""
        if self._fd is None:
            return self._owner.is_alive()
        fields = _fields(self._fd)
        return self._is_owners(fields) and fields[_STATE] not in (b"Z", b"X")

    def is_stopped(self) -> bool:
        """Whether it is seen to be stopped, so that it can do nothing at all."""
        fields = [] if self._fd is None else _fields(self._fd)
        return self._is_owners(fields) and fields[_STATE] in _STOPPED

    def look(self, *, threads: bool) -> Look | None:
        """As it is now; `None` where it is not shown. threads: `False` to leave out whether one is runnable and whether
        the number is still the owner's: for the look at each beat, which is to cost little, and is only ever compared
        with one that has seen to both."""
        if self._fd is None:
            return None
        try:
            cpu_s = time.clock_gettime(self._cpu_clock)
        except OSError:  # it has ended
            return None
        if not threads:
            return Look(cpu_s=cpu_s, runnable=False)
        fields = _fields(self._fd)
        return (
            Look(cpu_s=cpu_s, runnable=self._has_a_runnable_thread(fields[_STATE])) if self._is_owners(fields) else None
        )

    def _has_a_runnable_thread(self, leader: bytes) -> bool:
        if leader in _STOPPED:  # a stop is one of all threads; some may only not have come to it yet
            return False
        if leader == b"R":
            return True
        tasks = _PROC / str(self._owner.pid) / "task"
        try:
            return any(_state(tasks / tid / "stat") == b"R" for tid in os.listdir(tasks)[: self._most_threads])
        except OSError:
            return False

    def _is_owners(self, fields: list[bytes]) -> bool:
        return len(fields) > _START_TICKS and int(fields[_START_TICKS]) == self._owner.start_ticks


def _fields(fd: int) -> list[bytes]:
    """The fields behind the command's name, which may hold spaces and brackets; none for a process that is gone."""
    try:
        return os.pread(fd, _STAT_BYTES, 0).rpartition(b")")[2].split()
    except OSError:
        return []


def _state(path: Path) -> bytes | None:
    try:
        return path.read_bytes().rpartition(b")")[2].split()[_STATE]
    except (OSError, IndexError):  # a thread that has just ended
        return None
