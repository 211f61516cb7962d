"""Who is at the other end of a connection, as the kernel noted it when they connected; nothing is looked up later."""

import ctypes
import errno
import os
import pwd
import socket
import struct
from dataclasses import dataclass
from pathlib import Path

from autocap.job.processes import has_ended
from autocap.wire.namespaces import HERE, is_namespaced, namespace_of
from autocap.wire.subordinates import owner_of

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
