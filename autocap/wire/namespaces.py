"""In which namespaces a process is. The number of a user means the same person only inside of one: the root of two
containers is uid 0 in both."""

import os
from pathlib import Path

from autocap.job.keeper import keeper
from autocap.job.processes import status

_PROC = Path("/proc")
_MOST_ANCESTORS = 256
HERE = "here"  # our own namespace
_WHOLE_MACHINE = ["0", "0", "4294967295"]  # the uid_map of the first user namespace: every user is itself


def namespace_of(pid: int, proc: Path = _PROC) -> str | None:
    """`HERE`, or a name that only processes of the same other namespace have; `None` where that cannot be told, as of a
    namespace that we do not see into (pid 0), and where the kernel shows it to CAP_SYS_PTRACE alone."""
    said = _said(pid, proc)
    if said is None:
        return None
    if len(said.get("NSpid", "").split()) <= 1:  # kernels before 4.1 have no such line
        return HERE
    try:
        root = keeper()
        return os.readlink(proc / str(pid) / "ns/pid") if root is None else root.namespace(pid)
    except OSError:
        return None


def entered_from(pid: int, proc: Path = _PROC) -> int | None:
    """The user of whoever, in our own namespace, started what a process of another one descends from; `None` where that
    cannot be told."""
    for _ in range(_MOST_ANCESTORS):
        said = _said(pid, proc)
        if said is None:
            return None
        if len(said.get("NSpid", "").split()) <= 1:
            return int(said["Uid"].split()[0])
        pid = int(said["PPid"])
    return None


def _said(pid: int, proc: Path) -> dict[str, str] | None:
    try:
        return status(pid, proc) if pid > 0 else None
    except OSError:
        return None


def is_namespaced(uid_map: Path = _PROC / "self/uid_map") -> bool:
    """Whether a process, this one unless told otherwise, is in a user namespace other than the machine's first."""
    try:
        return uid_map.read_text().split() != _WHOLE_MACHINE
    except OSError:  # a kernel without user namespaces
        return False
