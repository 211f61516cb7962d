"""A job whose threads call a function, as the counter of calls meets it, in virtual time."""

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from autocap.job.processes import ProcessId
from autocap.progress.calls.counter import CallCounter
from autocap.progress.calls.host import Function
from autocap.progress.calls.target import CallsUnavailable, ProcessHidden
from autocap.progress.counter import IterationCounter
from autocap.records import Reading, Sample

KEPT = 1024  # calls of a thread whose times are known


@dataclass
class CalledThread:
    """calls_s: when its calls so far were, the last of them at last_s."""

    calls_s: list[float] = field(default_factory=list)
    is_alive: bool = True

    @property
    def count(self) -> int:
        return len(self.calls_s)

    @property
    def last_s(self) -> float:
        return self.calls_s[-1]

    def call(self, t_s: float, times: int = 1) -> None:
        self.calls_s += [t_s] * times


@dataclass
class CalledProcess:
    """threads: by number, those that compute most first. rank: RANK. has_library: whether it has loaded it by
    now. is_hidden: it does not show."""

    threads: dict[int, CalledThread]
    rank: int | None = None
    has_library: bool = True
    is_hidden: bool = False


class _ThreadCalls:
    def __init__(self, thread: CalledThread, watched: set[int], tid: int) -> None:
        self._thread, self._watched, self._tid = thread, watched, tid
        self._before = thread.count
        watched.add(tid)

    def last(self) -> tuple[int, float] | None:
        count = self._thread.count - self._before
        return (count, self._thread.last_s) if count else None

    def after(self, count: int) -> list[float] | None:
        missed = self._thread.count - self._before - count
        return None if missed > KEPT else self._thread.calls_s[self._before + count :]

    def close(self) -> None:
        self._watched.discard(self._tid)


@dataclass
class CalledJob:
    """The machine with the job on it. now_s: the time. watched: threads whose calls are counted now. refusal: why none
    can be. looks: how often a process was asked for the library."""

    processes_by_pid: dict[int, CalledProcess]
    cost_s: float = 2e-6
    now_s: float = 100.0
    refusal: str | None = None
    watched: set[int] = field(default_factory=set)
    looks: int = 0
    is_closed: bool = False

    def now(self) -> float:
        return self.now_s

    def pause(self, seconds: float) -> None:
        self.now_s += seconds

    def rehearse(self) -> None:
        if self.refusal is not None:
            raise CallsUnavailable(self.refusal)

    def processes(self, root: ProcessId) -> tuple[ProcessId, ...]:
        return tuple(ProcessId(pid, 1) for pid in self.processes_by_pid)

    def rank(self, pid: int) -> int | None:
        return self.processes_by_pid[pid].rank

    def threads(self, pid: int) -> list[int]:
        return [tid for tid, thread in self.processes_by_pid[pid].threads.items() if thread.is_alive]

    def is_there(self, pid: int, tid: int) -> bool:
        return tid in self.threads(pid)

    def function(self, pid: int) -> Function | None:
        self.looks += 1
        if self.processes_by_pid[pid].is_hidden:
            raise ProcessHidden(f"process {pid} hides what it has loaded; run autocap as root")
        if not self.processes_by_pid[pid].has_library:
            return None
        self.rehearse()
        with Path(os.devnull).open("rb") as file:
            return Function(file, 0, self.cost_s)

    def open(self, tid: int, function: Function) -> _ThreadCalls | None:
        for process in self.processes_by_pid.values():
            if tid in process.threads:
                return _ThreadCalls(process.threads[tid], self.watched, tid)
        return None

    def close(self) -> None:
        self.is_closed = True


def iteration_counter(
    kind: str, job: CalledJob, *, ours: bool = False, pause: Callable[[float], None] | None = None
) -> IterationCounter:
    """What counts the iterations of such a job. kind: of `--progress`. pause: lets the job go on for some seconds."""
    return IterationCounter(
        kind, ours=ours, new_calls=lambda target: CallCounter(target, job, job.now, pause or job.pause), now=job.now
    )


def counted_sample(job: CalledJob, source: CallCounter | IterationCounter) -> Sample:
    """What is read of the job now. Its power repeats nothing."""
    reading = Reading(t_s=job.now_s, power_w=200.0, requested_w=300.0)
    return Sample(t_s=job.now_s, readings=(reading,), steps=source.read(0.0))


def await_dropped_calls() -> None:
    """What is no longer watched is closed elsewhere: return once it is."""
    for one in threading.enumerate():
        if one.name == "calls that are counted no more":
            one.join()
