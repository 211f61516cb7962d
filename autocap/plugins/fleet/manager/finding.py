"""Which jobs compute on which GPUs, from the driver's process lists and /proc; who may tune them, and how much they
count.

A job is what one process group computes: what a shell starts with one command line, and what leads a session of its
own. The workers of a launcher (torchrun, mpirun, srun) begin groups of their own; they say so in their environment, and
count as one job, their launcher's. A GPU on which two jobs compute makes one of them, as it has one limit.

Whether who tunes a job computes on what they name is looked at anew for as long as they hold it: whoever may register
a job could else set the caps of another one's GPUs. A job's weight, as a user has said it, is known by its process
group or launcher, so that it stays when a tuner comes or goes, and when another manager takes up."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from autocap.job.keeper import keeper
from autocap.job.processes import ProcessId, ancestors, environment, identify
from autocap.limits.helper.computing import User, computing, user_of
from autocap.text import printable
from autocap.wire.who import HERE, Peer

_PROC = Path("/proc")
WORKER_VARIABLES = frozenset(
    {"LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_RANK", "PMI_RANK", "SLURM_LOCALID"}
)
_LONGEST = 40  # characters of a name
Known = tuple[tuple[int, float], ...]


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
    jobs = []
    for job, its_uuids in uuids.items():
        its = {group for group in pids if job_of(group) == job}
        all_pids = frozenset(pid for group in its for pid in pids[group])
        whole = frozenset(group for group in its if isinstance(group, int))
        jobs.append(FoundJob(pid=min(all_pids, default=None), uuids=tuple(its_uuids), pids=all_pids, groups=whole))
    return jobs


def _program(pid: int) -> str:
    """What runs: a script's name, rather than its interpreter's."""
    try:
        words = (_PROC / str(pid) / "cmdline").read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return "PID"
    plain = [word for word in words if word and not word.startswith("-")]
    named = plain[1] if len(plain) > 1 and Path(plain[0]).name.startswith("python") else (plain or ["PID"])[0]
    return printable(Path(named).name or named)[:_LONGEST]


@dataclass(slots=True, kw_only=True)
class Claim:
    """Of a tuner to a job. trusted: it is root's, or theirs whose the budget is, who may tune the jobs of others too.
    root: the process that the job began with; `None` of a container, whose numbers are not ours. groups: that the job's
    processes were of when they were last seen."""

    peer: Peer
    trusted: bool
    root: ProcessId | None
    groups: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class Presence:
    """On one device. pids: the job's processes that compute there. other: who else does, and is in the way; a
    clause."""

    pids: tuple[int, ...] = ()
    other: str | None = None


class NoClaim(Exception):
    """The message says why somebody has none, a sentence."""


def claimed(peer: Peer, pid: int, *, trusted: bool) -> Claim:
    """The claim of who connected to the job of a process. Raises NoClaim where that is somebody else's."""
    if peer.namespace != HERE:
        return Claim(peer=peer, trusted=False, root=None)
    root, group = identify(pid), group_of(pid)
    if root is None or not (trusted or user_of(pid).is_of(peer)):
        raise NoClaim(f"process {pid} is not {peer.name}'s, so its caps are not theirs to set")
    return Claim(peer=peer, trusted=trusted, root=root, groups=set() if group is None else {group})


class Claims:
    """listed: the PIDs that the driver lists on a device, `None` where it keeps no list; may raise DeviceError."""

    def __init__(self, listed: Callable[[str], Iterable[int] | None]) -> None:
        self._listed = listed

    def look(self, claim: Claim, uuid: str) -> Presence:
        """What computes on a device now."""
        found = computing(lambda: self._listed(uuid))
        groups = {one.pid: group_of(one.pid) for one in found.processes}
        own = tuple(one.pid for one in found.processes if _is_of(claim, one, groups[one.pid]))
        claim.groups |= {group for pid in own if (group := groups[pid]) is not None}
        if claim.trusted:
            if found.untold is not None:
                return Presence(pids=() if claim.root is None else (claim.root.pid,))
        elif (other := found.other_than(claim.peer)) is not None:
            return Presence(pids=own, other=other)
        if found.processes and not own:
            return Presence(other=f"process {found.processes[0].pid} computes on it, and none of the job's does")
        return Presence(pids=own)


def _is_of(claim: Claim, one: User, group: int | None) -> bool:
    """Whether a process is of the job."""
    if claim.root is None:
        return one.is_of(claim.peer)
    root = claim.root.pid
    descends = claim.root.is_alive() and (one.pid == root or root in ancestors(one.pid))
    return descends or (group is not None and group in claim.groups)


class Weights:
    """known: of earlier. group_of: what a process belongs to."""

    def __init__(self, known: Known = (), group_of: Callable[[int], int | None] = group_of) -> None:
        self._by_group, self._group_of = dict(known), group_of

    @property
    def known(self) -> Known:
        """By group; those of groups that are gone left out, as their numbers are given away again."""
        self._by_group = {group: weight for group, weight in self._by_group.items() if _is_there(group)}
        return tuple(self._by_group.items())

    def of(self, pid: int | None) -> float | None:
        """Of the job of a process; `None` where nobody has said one."""
        group = None if pid is None or not self._by_group else self._group_of(pid)
        return None if group is None else self._by_group.get(group)

    def put(self, pid: int, weight: float, pids: Iterable[int | None]) -> list[int]:
        """From now on the job of a process has that weight. pids: one process of each job; which of these are of it."""
        group = self._group_of(pid)
        same = [one for one in pids if one is not None and group is not None and self._group_of(one) == group]
        if same and group is not None:
            self._by_group[group] = weight
        return same


def _is_there(group: int) -> bool:
    if Path(f"/proc/{group}").exists():  # its leader, or a launcher, which may lead none
        return True
    with suppress(PermissionError):  # somebody else's, which is there
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
    return True
