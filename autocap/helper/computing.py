"""Whose are the processes that use a device? Each number is looked at through a descriptor of that very process."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autocap.errors import DeviceError
from autocap.helper.who import has_ended, user_name

_PROC = Path("/proc")
_FIRST_NAMESPACE = "pid:[4026531836]"  # the kernel's PROC_PID_INIT_INO
_LOOKS = 3  # a process may end between being listed and being looked at; then the next list is without it


@dataclass(frozen=True, slots=True, kw_only=True)
class Computing:
    """processes: what uses a device, each with its user, `None` where that cannot be told. untold: why it is not known
    which these are, as a clause."""

    processes: tuple[tuple[int, int | None], ...] = ()
    untold: str | None = None

    def other_than(self, uid: int) -> str | None:
        """Who else than a user computes there, as a clause; `None` for nobody. What cannot be told counts as somebody
        else."""
        if self.untold is not None:
            return self.untold
        pid, whose = next(((pid, whose) for pid, whose in self.processes if whose != uid), (0, uid))
        if whose == uid:
            return None
        if whose is None:
            return f"process {pid} computes on it, and whose it is cannot be told"
        return f"process {pid} of {user_name(whose)} computes on it"


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
        found = Computing(processes=tuple((pid, uid_of(pid, proc)) for pid in pids))
        if all(whose is not None for _, whose in found.processes):
            break
    return found


def sees_all_processes(namespace: Path = _PROC / "self/ns/pid") -> bool:
    """Whether we are in the machine's own PID namespace; in another one, the driver leaves processes of others out."""
    try:
        return os.readlink(namespace) == _FIRST_NAMESPACE
    except OSError:  # a kernel without them
        return True


def uid_of(pid: int, proc: Path = _PROC) -> int | None:
    """The real user of a process; `None` where it has ended, or cannot be looked at."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        lines = (proc / str(pid) / "status").read_text().splitlines()
        uid = next(int(line.split()[1]) for line in lines if line.startswith("Uid:"))
        return None if has_ended(fd) else uid  # alive now, so the number was its own all the while
    except (OSError, StopIteration, ValueError):
        return None
    finally:
        with suppress(OSError):
            os.close(fd)
