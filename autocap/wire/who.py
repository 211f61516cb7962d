"""Who is at the other end of a connection, as the kernel noted it when they connected; nothing is looked up later.

The number of a user means the same person only inside of one namespace: the root of two containers is uid 0 in both.
And whoever may use newuidmap can be many users at once (`/etc/subuid`, subuid(5)).
"""

import ctypes
import errno
import os
import pwd
import socket
import struct
import threading
from dataclasses import dataclass
from pathlib import Path

from autocap.job.keeper import keeper
from autocap.job.processes import has_ended, status

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


_SUBUID = Path("/etc/subuid")
_MOST_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class _Table:
    """key: of the file that it was read from. ranges: first, behind the last, and whose."""

    key: tuple[int, int, int] | None
    ranges: tuple[tuple[int, int, int], ...]


class Subordinates:
    """Reads a file again when it has changed. From any thread."""

    def __init__(self, path: Path = _SUBUID) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._table = _Table(None, ())

    def owner_of(self, uid: int) -> int | None:
        """The user to whom this one was given; `None` for nobody."""
        return next((owner for first, end, owner in self._ranges() if first <= uid < end), None)

    def _ranges(self) -> tuple[tuple[int, int, int], ...]:
        try:
            status = os.stat(self._path)
        except OSError:
            return ()
        key = (status.st_ino, status.st_size, status.st_mtime_ns)
        with self._lock:
            if self._table.key != key:
                self._table = _Table(key, _read(self._path))
            return self._table.ranges


def _read(path: Path) -> tuple[tuple[int, int, int], ...]:
    """What cannot be understood is left out."""
    try:
        with path.open("rb") as file:
            lines = file.read(_MOST_BYTES).decode(errors="replace").splitlines()
    except OSError:
        return ()
    found = []
    for line in lines:
        name, *numbers = line.strip().split(":")
        try:
            first, count = map(int, numbers)
            owner = int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid
        except (ValueError, KeyError):
            continue
        if first > 0 and count > 0:
            found.append((first, first + count, owner))
    return tuple(found)


_system = Subordinates()


def owner_of(uid: int) -> int | None:
    """As the machine's own table has it."""
    return _system.owner_of(uid)


_SO_PEERGROUPS, _SO_PEERPIDFD = 59, 77  # of the kernel's asm-generic/socket.h; Python has no names for them
_CREDENTIALS = struct.Struct("iII")
_MOST_GROUPS = 65536  # that a process can be in
_LIBC = ctypes.CDLL(None, use_errno=True)
_UIDS = Path("/proc/self/uid_map")
_NO_UID = Path("/proc/sys/kernel/overflowuid")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """pid: of the process that connected, 0 where it is of a namespace that is hidden from us. groups: all that it was
    in, its own first. namespace: as `namespace_of` has it. subordinate_to: to whom this user
    was given, `None` to nobody."""

    uid: int
    pid: int
    groups: tuple[int, ...]
    namespace: str | None = HERE
    subordinate_to: int | None = None

    @property
    def account(self) -> tuple[int, bool]:
        """Whose connections and requests are counted together: a user's, with those of its subordinates. Those of other
        namespaces are others, as the root of a container is not ours."""
        return self.uid if self.subordinate_to is None else self.subordinate_to, self.namespace == HERE

    def is_user(self, *uids: int) -> bool:
        """Whether it is one of these users of our own: in another namespace these numbers are other people's."""
        return self.uid in uids and self.namespace == HERE

    @property
    def name(self) -> str:
        return user_name(self.uid)

    @property
    def who(self) -> str:
        """What messages call it."""
        return f"{self.name} (PID {self.pid})"


def uid_at(connection: socket.socket) -> int:
    """The user at the other end, which is looked at in a moment; `peer_of` takes longer. Raises OSError."""
    return _credentials(connection)[1]


def _credentials(connection: socket.socket) -> tuple[int, int, int]:
    pid, uid, gid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid, gid


def peer_of(connection: socket.socket) -> Peer:
    """Raises OSError where the kernel does not say."""
    pid, uid, gid = _credentials(connection)
    return Peer(
        uid=uid,
        pid=pid,
        groups=(gid, *_further_groups(connection)),
        namespace=_namespace(connection, pid),
        subordinate_to=owner_of(uid),
    )


def _namespace(connection: socket.socket, pid: int) -> str | None:
    """Of the very process that connected; `None` where it has ended by now."""
    try:
        fd = pidfd_of(connection, pid)
    except OSError:
        return None
    if fd is None:
        return None
    try:
        found = namespace_of(pid)
        return None if has_ended(fd) else found  # alive now, so the number was its own all the while
    finally:
        os.close(fd)


def _further_groups(connection: socket.socket) -> tuple[int, ...]:
    """Those besides its own. By C's getsockopt, as Python's takes no more than 1024 bytes. Raises OSError."""
    found = (ctypes.c_uint32 * _MOST_GROUPS)()
    size = ctypes.c_uint32(ctypes.sizeof(found))
    if _LIBC.getsockopt(connection.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, found, ctypes.byref(size)) == 0:
        return tuple(found[: size.value // ctypes.sizeof(ctypes.c_uint32)])
    number = ctypes.get_errno()
    if number == errno.ENOPROTOOPT:  # before Linux 4.13 there is only its own
        return ()
    raise OSError(number, f"the groups of who connected cannot be read: {os.strerror(number)}")


def is_nobody_known(uid: int, uids: Path = _UIDS, no_uid: Path = _NO_UID) -> bool:
    """Whether a uid stands for all users whom our namespace has no number for, who cannot be told apart."""
    try:
        return uid == int(no_uid.read_text()) and is_namespaced(uids)
    except OSError:  # a kernel without user namespaces
        return False


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def pidfd_of(connection: socket.socket, pid: int) -> int | None:
    """Readable once the process that connected has ended; `None` where the kernel gives none. Raises OSError where it
    has ended already: its number may be somebody else's by now."""
    try:  # from Linux 6.5 on: the very process, whatever became of its number
        (fd,) = struct.unpack("i", connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, 4))
        return int(fd)
    except OSError as error:
        if error.errno != errno.ENOPROTOOPT:
            raise
    return os.pidfd_open(pid) if pid > 0 else None
