"""What all processes that meet an emulated machine know of it: how it is, which limits were set, who plays the job."""

import fcntl
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import Protocol

from autocap.job.processes import SpareDescriptors
from autocap.testing.nvml.machine import Change, Machine
from autocap.wire.codec import decode, encode

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
    those of a machine with several, instead of that one. nodes: where the machine is one of several that do one job in
    lock step, the boards of all of them in their order, this one's too. job: which of such jobs has come here.
    """

    machine: Machine
    origin_s: float = 0.0
    changes: tuple[Change, ...] = ()
    job_pid: int | None = None
    reported_pid: int | None = None
    start_s: float | None = None
    nodes: tuple[str, ...] = ()
    job: str | None = None
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

    def whole(self) -> tuple[State, int]:
        """All the cards that the job runs on, as those of one machine, and the number of this machine's first."""


class MemoryBoard:
    """For one process."""

    def __init__(self, machine: Machine) -> None:
        self._state = State(machine=machine)

    def read(self) -> State:
        return self._state

    def update(self, change: Callable[[State], State]) -> None:
        self._state = change(self._state)

    def whole(self) -> tuple[State, int]:
        return self._state, 0


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
        self._nodes: Nodes | None = None

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

    def whole(self) -> tuple[State, int]:
        own = self.read()
        if not own.nodes:
            return own, 0
        with self._one_thread:
            if self._nodes is None:
                boards = [self if place == str(self._path) else FileBoard(Path(place)) for place in own.nodes]
                self._nodes = Nodes(boards, boards.index(self))
            return self._nodes.whole()

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

    def limits_mw(self) -> tuple[int, ...]:
        """The same of all cards."""
        return tuple(self.requested_mw(gpu) for gpu in range(len(self.read().machine.cards)))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        with open(self._path.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def _write(self, state: State) -> None:
        temporary = self._path.with_name(f"{self._path.name}.{os.getpid()}")
        temporary.write_text(json.dumps(encode(state)))
        # The kernel's own time may have a grain of milliseconds, within which a file's number comes again: whoever has
        # read the one before the last would take the last for it.
        now_ns = time.time_ns()
        os.utime(temporary, ns=(now_ns, now_ns))
        temporary.rename(self._path)


class Nodes:
    """The machines of a job in lock step as one. Its job begins where it has come to all of them.

    boards: of all, in their order. own: whose process, the job's, counts.
    """

    def __init__(self, boards: Sequence[FileBoard], own: int) -> None:
        self._boards, self._own = boards, own
        self._seen: list[State] = []
        self._taken = [0] * len(boards)  # of each machine's changes
        self._changes: tuple[Change, ...] = ()  # in the order in which they were met, so that more come only at the end
        self._state: tuple[State, int] | None = None

    def whole(self) -> tuple[State, int]:
        states = [board.read() for board in self._boards]
        if self._state is None or any(new is not old for new, old in zip(states, self._seen, strict=True)):
            self._seen, self._state = states, self._joined(states)
        return self._state

    def _joined(self, states: Sequence[State]) -> tuple[State, int]:
        firsts = list(accumulate((len(state.machine.cards) for state in states), initial=0))
        for number, (state, first) in enumerate(zip(states, firsts, strict=False)):
            fresh = state.changes[self._taken[number] :]
            self._changes += tuple(replace(change, gpu=first + change.gpu) for change in fresh)
            self._taken[number] = len(state.changes)
        starts_s = [state.start_s for state in states]
        begun = len({state.job for state in states}) == 1 and None not in starts_s
        machine = replace(
            states[self._own].machine,
            cards=tuple(card for state in states for card in state.machine.cards),
            start_s=None,
        )
        whole = replace(
            states[self._own],
            machine=machine,
            changes=self._changes,
            start_s=max(start_s for start_s in starts_s if start_s is not None) if begun else None,
        )
        return whole, firsts[self._own]


def requested(state: State, gpu: int, limit_mw: int, t_s: float) -> State:
    """The state once a limit is requested at t_s, or right after the last one, should that have been later."""
    t_s = max([t_s, *(change.t_s for change in state.changes[-1:])])
    return replace(state, changes=(*state.changes, Change(t_s=t_s, gpu=gpu, limit_mw=limit_mw)))


def timeline(state: State) -> list[Change]:
    """Every change of a limit, ours, others', the firmware's and a reload's, by time."""
    made = (*state.changes, *state.machine.changes, *by_reload(state.machine), *by_firmware(state))
    return sorted(made, key=lambda change: change.t_s)


def by_reload(machine: Machine) -> list[Change]:
    """All limits are the default once the driver is loaded again."""
    return [
        Change(t_s=t_s, gpu=gpu, limit_mw=card.default_mw)
        for t_s in machine.reloads
        for gpu, card in enumerate(machine.cards)
    ]


def by_firmware(state: State) -> list[Change]:
    """What the cards' own firmware makes of limits, unless another is set before."""
    made = []
    for gpu, card in enumerate(state.machine.cards):
        if card.steps is None:
            continue
        asked = [change for change in (*state.changes, *state.machine.changes) if change.gpu == gpu]
        asked.sort(key=lambda change: change.t_s)
        for change, after in zip_longest(asked, asked[1:]):
            t_s, limit_mw = change.t_s + card.steps.lag_s, card.steps.made_of(change.limit_mw)
            if limit_mw != change.limit_mw and (after is None or after.t_s > t_s):
                made.append(Change(t_s=t_s, gpu=gpu, limit_mw=limit_mw))
    return sorted(made, key=lambda change: change.t_s)


def requested_mw(state: State, gpu: int, t_s: float) -> int:
    """The limit that is requested of a card at some time."""
    past = [change.limit_mw for change in timeline(state) if change.gpu == gpu and change.t_s <= t_s]
    return past[-1] if past else state.machine.cards[gpu].arrival_mw
