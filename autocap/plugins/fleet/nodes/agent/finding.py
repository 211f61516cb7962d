"""Which processes of this node are the job's, by what Slurm or Ray puts into their environment.

Slurm: those of a numbered step other than ours, with what the step's own daemon has started beside them; on a node
where there is no such step, those of the batch script, as with `mpirun`. Ray: the workers of the job's, by their
raylet, which tells pretended nodes on one machine apart. A worker that Ray had started before there was any job does
not say whose it has become: Ray's head does, of those that are the job's actors.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from autocap.job.processes import ProcessId, ancestors, environment, identify, pids, tree
from autocap.plugins.fleet.nodes.protocol import Target

_PROC = Path("/proc")
_STEP_DAEMON = "slurmstepd"
_ANY_JOB = b"ffffffff"
_STEP, _BATCH = "step", "batch"
_Environment = Mapping[bytes, bytes]


class JobHere(ABC):
    """The job's processes on the node of a process with that environment, which is ours. workers: that its engine says
    are the job's, whatever they show."""

    def __init__(
        self, target: Target, workers: Collection[ProcessId] = (), environ: Mapping[bytes, bytes] = os.environb
    ) -> None:
        self._environ, self._told = environ, frozenset(workers)
        self._job = os.fsencode(target.job)
        self._members: set[ProcessId] = set()
        self._strangers: set[ProcessId] = set()

    def roots(self) -> tuple[ProcessId, ...]:
        """Where the job begins on this node; none before it does. Looks through all of /proc."""
        roots = tuple(root for pid in sorted(self._first_pids()) if (root := identify(pid)) is not None)
        self._members = {each for each in tree(roots) if _name(each.pid) != _STEP_DAEMON} if roots else set()
        return roots

    def is_there(self) -> bool:
        """Whether any of its processes lives."""
        return any(each.is_alive() for each in self._members) or bool(self.roots() and self._members)

    def has(self, process: ProcessId) -> bool:
        """Whether a process is the job's, by it and those above it alone. What was said of it once stays."""
        if process not in self._members and process not in self._strangers:
            ours = any(self._is_of_it(pid) for pid in (process.pid, *ancestors(process.pid)))
            (self._members if ours else self._strangers).add(process)
        return process in self._members

    @abstractmethod
    def _first_pids(self) -> set[int]:
        """Where the job begins."""

    @abstractmethod
    def _is_of_it(self, pid: int) -> bool:
        """Whether this process shows that it is the job's."""


class SlurmJob(JobHere):
    """By its steps."""

    _has_steps = False

    def _is_of_it(self, pid: int) -> bool:
        step = self._step_of(pid)
        return step in (_BATCH, _STEP) and (step == _STEP or not self._has_steps)

    def _first_pids(self) -> set[int]:
        """The daemons of the job's steps here, and of other processes those that none of the job's has started."""
        steps = {pid: self._step_of(pid) for pid in pids()}
        numbered = {pid for pid, step in steps.items() if step == _STEP}
        self._has_steps = self._has_steps or bool(numbered)
        found = numbered or {pid for pid, step in steps.items() if step == _BATCH}
        return {_first(pid, found) for pid in found}

    def _step_of(self, pid: int) -> str | None:
        """Of what a process is: of a step of the job's, its batch script, or neither."""
        given, environ = _environment(pid), self._environ
        if given.get(b"SLURM_JOB_ID") != self._job or given.get(b"SLURMD_NODENAME") != environ.get(b"SLURMD_NODENAME"):
            return None
        step = given.get(b"SLURM_STEP_ID")
        if step is None:
            return _BATCH
        return None if step == environ.get(b"SLURM_STEP_ID") else _STEP


class RayJob(JobHere):
    """By its workers."""

    def _first_pids(self) -> set[int]:
        return self._workers(pids())

    def _is_of_it(self, pid: int) -> bool:
        return pid in self._workers([pid])

    def _workers(self, among: Iterable[int]) -> set[int]:
        """Ray's, of the job, which the raylet has started."""
        raylet = int(self._environ.get(b"RAY_RAYLET_PID", b"0"))
        above_us = set(ancestors(os.getpid()))
        return {
            pid
            for pid in among
            if pid not in above_us and next(ancestors(pid), None) == raylet and self._is_worker(pid, raylet)
        }

    def _is_worker(self, pid: int, raylet: int) -> bool:
        given = _environment(pid)
        if given.get(b"RAY_RAYLET_PID") != str(raylet).encode():
            return False
        job = given.get(b"RAY_JOB_ID")
        return job == self._job or (job == _ANY_JOB and identify(pid) in self._told)


def _first(pid: int, found: set[int]) -> int:
    """The step's daemon above a process, or else the first above it that is of those found."""
    first = pid
    for above in ancestors(pid):
        if _name(above) == _STEP_DAEMON:
            return above
        if above not in found:
            return first
        first = above
    return first


def _environment(pid: int) -> _Environment:
    try:
        return environment(pid)
    except OSError:  # it has ended, or is another user's
        return {}


def _name(pid: int) -> str:
    try:
        return (_PROC / str(pid) / "comm").read_text(errors="replace").strip()
    except OSError:
        return ""
