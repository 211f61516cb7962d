"""Whose are the processes that use a device? Each number is looked at through a descriptor of that very process."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autocap.errors import DeviceError
from autocap.job.processes import has_ended, status
from autocap.wire.who import HERE, Peer, entered_from, namespace_of, user_name

_PROC = Path("/proc")
_FIRST_NAMESPACE = "pid:[4026531836]"  # the kernel's PROC_PID_INIT_INO
_LOOKS = 3  # a process may end between being listed and being looked at; then the next list is without it


@dataclass(frozen=True, slots=True, kw_only=True)
class User:
    """Who uses a device. uid: `None` where that cannot be told. namespace: as `namespace_of` has it. by: who started it
    from our own namespace."""

    pid: int
    uid: int | None = None
    namespace: str | None = None
    by: int | None = None

    def is_of(self, peer: Peer) -> bool:
        """Whether it is a client's own. Users of two namespaces are two, but for what one of ours has put into one."""
        if self.uid is None or self.uid != peer.uid or peer.namespace is None:
            return False
        return self.namespace == peer.namespace or (peer.namespace == HERE and self.by == peer.uid)


@dataclass(frozen=True, slots=True, kw_only=True)
class Computing:
    """processes: what uses a device. untold: why it is not known which these are, as a clause."""

    processes: tuple[User, ...] = ()
    untold: str | None = None

    def other_than(self, peer: Peer) -> str | None:
        """Who else than a client computes there, as a clause; `None` for nobody. What cannot be told counts as somebody
        else. In another PID namespace than ours the client has to compute there: nothing else tells its user from
        those of the same number elsewhere."""
        if self.untold is not None:
            return self.untold
        if peer.namespace is None:
            return f"in which container {peer.name} is cannot be told, so nobody's processes are known to be theirs"
        other = next((one for one in self.processes if not one.is_of(peer)), None)
        if other is None:
            there = peer.namespace == HERE or self.processes
            return None if there else f"none of {peer.name}'s processes in their container computes on it"
        if other.uid is None:
            return f"process {other.pid} computes on it, and whose it is cannot be told"
        elsewhere = "" if other.uid != peer.uid else " of another container"
        return f"process {other.pid} of {user_name(other.uid)}{elsewhere} computes on it"


def computing(listed: Callable[[], Iterable[int] | None], proc: Path = _PROC) -> Computing:
    """Who computes on a device now. listed: the processes, `None` where there is no such list."""
    found = Computing()
    for _ in range(_LOOKS):
        try:
            pids = listed()
        except DeviceError as error:
            found = Computing(untold=f"who computes on it cannot be told: {error}")
            continue
        if pids is None:
            return Computing(untold="the driver does not list who computes on it")
        found = Computing(processes=tuple(user_of(pid, proc) for pid in pids))
        if all(one.uid is not None for one in found.processes):
            break
    return found


def sees_all_processes(namespace: Path = _PROC / "self/ns/pid") -> bool:
    """Whether we are in the machine's own PID namespace; in another one, the driver leaves processes of others out."""
    try:
        return os.readlink(namespace) == _FIRST_NAMESPACE
    except OSError:  # a kernel without them
        return True


def user_of(pid: int, proc: Path = _PROC) -> User:
    """Whose a process is; nobody's that is known where it has ended, or cannot be looked at."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return User(pid=pid)
    try:
        uid = int(status(pid, proc)["Uid"].split()[0])
        namespace = namespace_of(pid, proc)
        by = uid if namespace == HERE else entered_from(pid, proc)
        # Alive now, so the number was its own all the while.
        return User(pid=pid) if has_ended(fd) else User(pid=pid, uid=uid, namespace=namespace, by=by)
    except (OSError, LookupError, ValueError):
        return User(pid=pid)
    finally:
        with suppress(OSError):
            os.close(fd)
