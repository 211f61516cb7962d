"""Whether who tunes a job computes on what they name. It is looked at anew for as long as they hold it: whoever may
register a job could else set the caps of another one's GPUs."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from autocap.job.processes import ProcessId, ancestors, identify
from autocap.limits.helper.computing import User, computing, user_of
from autocap.plugins.fleet.manager.finding import group_of
from autocap.wire.who import HERE, Peer


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
