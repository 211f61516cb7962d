"""What all processes that meet an emulated machine know of it: how it is, which limits were set, who plays the job."""

import fcntl
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from autocap.job.spare_descriptors import SpareDescriptors
from autocap.runlog.codec import decode, encode
from bench.nvml_emulation.machine import Change, Machine

_DESCRIPTORS = 2  # that a state is read and replaced with


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayedJob:
    """One of several jobs on a machine. gpus: its cards. pid: the process that plays it, which is also what the driver
    shows. start_s: when it began. profile, iterations: instead of the machine's."""

    gpus: tuple[int, ...]
    pid: int
    start_s: float
    profile: str | None = None
    iterations: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """origin_s: the system's monotonic clock at the machine's time 0. changes: limits set so far, in order of time.

    job_pid: the process that plays the job; reported_pid: what the driver says it is; start_s: when it began. jobs:
    those of a machine with several, instead of that one.
    """

    machine: Machine
    origin_s: float = 0.0
    changes: tuple[Change, ...] = ()
    job_pid: int | None = None
    reported_pid: int | None = None
    start_s: float | None = None
    jobs: tuple[PlayedJob, ...] = ()

    def with_job(self, job: PlayedJob) -> "State":
        """Once that job has come, in the place of whatever was on its cards."""
        others = tuple(one for one in self.jobs if not set(one.gpus) & set(job.gpus))
        return replace(self, jobs=(*others, job))


class Board(Protocol):
    """Where the state is kept."""

    def read(self) -> State: ...

    def update(self, change: Callable[[State], State]) -> None:
        """Replace the state by what becomes of it; one writer at a time."""


class MemoryBoard:
    """For one process."""

    def __init__(self, machine: Machine) -> None:
        self._state = State(machine=machine)

    def read(self) -> State:
        return self._state

    def update(self, change: Callable[[State], State]) -> None:
        self._state = change(self._state)


class FileBoard:
    """For several processes, and their threads: a file that is replaced as a whole, and a lock beside it for those who
    do."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # A library has its device open; this stands in for it where a process may open nothing more.
        self._spare = SpareDescriptors(_DESCRIPTORS)
        weakref.finalize(self, self._spare.close)
        self._one_thread = threading.RLock()
        self._seen: tuple[int, int] | None = None
        self._state: State | None = None

    @staticmethod
    def create(path: Path, machine: Machine) -> "FileBoard":
        """Write a machine whose time begins now."""
        board = FileBoard(path)
        board._write(State(machine=machine, origin_s=time.monotonic()))
        return board

    def read(self) -> State:
        status = os.stat(self._path)
        seen = (status.st_ino, status.st_mtime_ns)
        with self._one_thread:
            if self._state is None or seen != self._seen:
                with self._spare.lent():
                    self._seen, self._state = seen, self._load()
            return self._state

    def update(self, change: Callable[[State], State]) -> None:
        with self._one_thread, self._spare.lent(), self._locked():
            self._write(change(self._load()))

    def _load(self) -> State:
        return decode(State, json.loads(self._path.read_text()))

    def now_s(self) -> float:
        """The machine's own time."""
        return time.monotonic() - self.read().origin_s

    def request(self, gpu: int, limit_mw: int) -> None:
        """Set a limit as another tool would."""
        self.update(lambda state: requested(state, gpu, limit_mw, self.now_s()))

    def requested_mw(self, gpu: int) -> int:
        """The limit that is requested at the moment."""
        return requested_mw(self.read(), gpu, self.now_s())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self._path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self, state: State) -> None:
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(encode(state)))
        temporary.rename(self._path)


def requested(state: State, gpu: int, limit_mw: int, t_s: float) -> State:
    """The state once a limit is requested at t_s, or right after the last one, should that have been later."""
    t_s = max([t_s, *(change.t_s for change in state.changes[-1:])])
    return replace(state, changes=(*state.changes, Change(t_s=t_s, gpu=gpu, limit_mw=limit_mw)))


def timeline(state: State) -> list[Change]:
    """Every change of a limit, ours and others', by time."""
    return sorted((*state.changes, *state.machine.changes), key=lambda change: change.t_s)


def requested_mw(state: State, gpu: int, t_s: float) -> int:
    """The limit that is requested of a card at some time."""
    past = [change.limit_mw for change in timeline(state) if change.gpu == gpu and change.t_s <= t_s]
    return past[-1] if past else state.machine.cards[gpu].arrival_mw
