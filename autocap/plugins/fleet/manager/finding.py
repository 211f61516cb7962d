"""Which jobs compute on which GPUs, from the driver's process lists and /proc.

A job is what one process group computes: what a shell starts with one command line, and what leads a session of its
own. The workers of a launcher (torchrun, mpirun, srun) begin groups of their own; they say so in their environment, and
count as one job, their launcher's. A GPU on which two jobs compute makes one of them, as it has one limit.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autocap.job.keeper import keeper
from autocap.job.processes import ancestors, environment
from autocap.text import printable

_PROC = Path("/proc")
WORKER_VARIABLES = frozenset(
    {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "PMI_RANK", "SLURM_LOCALID"}
)
_LONGEST = 40  # characters of a name


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundJob:
    """pid: the lowest of its processes; `None` where they are hidden from us. uuids: its GPUs, in the order in which
    they were listed. pids: all of its processes there; groups: what these belong to."""

    pid: int | None
    uuids: tuple[str, ...]
    pids: frozenset[int] = frozenset()
    groups: frozenset[int] = frozenset()

    def has(self, pid: int | None) -> bool:
        """Whether a process is one of them."""
        return pid == self.pid or pid in self.pids

    @property
    def name(self) -> str:
        """What reports call it."""
        return f"hidden on {self.uuids[0]}" if self.pid is None else f"{_program(self.pid)} {self.pid}"


def group_of(pid: int) -> int | None:
    """What a process belongs to: its launcher's PID, or else its process group's; `None` where it is hidden."""
    try:
        group = os.getpgid(pid)
    except OSError:
        return None
    with suppress(OSError):  # another user's environment
        if _is_worker(pid):
            return next(ancestors(pid), group)
    return group


def _is_worker(pid: int) -> bool:
    """Whether a launcher has started it. Raises OSError."""
    try:
        return not WORKER_VARIABLES.isdisjoint(name.decode(errors="replace") for name in environment(pid))
    except PermissionError:
        root = keeper()
        if root is None:
            raise
        return root.is_worker(pid)


def jobs_of(listings: Mapping[str, Sequence[int]], group_of: Callable[[int], int | None] = group_of) -> list[FoundJob]:
    """The jobs behind what the driver lists: PIDs by UUID. group_of: as above."""
    joined: dict[int | str, int | str] = {}  # a group, and one that it is the same job as

    def job_of(group: int | str) -> int | str:
        while joined.setdefault(group, group) != group:
            group = joined[group]
        return group

    pids: dict[int | str, set[int]] = {}
    groups: dict[str, int | str] = {}
    for uuid, listed in listings.items():
        for pid in listed:
            group = group_of(pid)
            if group is not None:
                pids.setdefault(group, set()).add(pid)
            key = uuid if group is None else group
            joined[job_of(key)] = job_of(groups.setdefault(uuid, key))
    uuids: dict[int | str, list[str]] = {}
    for uuid, key in groups.items():
        uuids.setdefault(job_of(key), []).append(uuid)
    return [
        _job([(group, its) for group, its in pids.items() if job_of(group) == job], its_uuids)
        for job, its_uuids in uuids.items()
    ]


def _job(groups: Sequence[tuple[int | str, set[int]]], uuids: Sequence[str]) -> FoundJob:
    """groups: each with its processes."""
    pids = frozenset(pid for _, its in groups for pid in its)
    whole = frozenset(group for group, _ in groups if isinstance(group, int))
    return FoundJob(pid=min(pids, default=None), uuids=tuple(uuids), pids=pids, groups=whole)


def _program(pid: int) -> str:
    """What runs: a script's name, rather than its interpreter's."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "PID"
    plain = [word for word in words if word and not word.startswith("-")]
    named = plain[1] if len(plain) > 1 and Path(plain[0]).name.startswith("python") else (plain or ["PID"])[0]
    return printable(Path(named).name or named)[:_LONGEST]
