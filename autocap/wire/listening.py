"""The socket that clients connect to: systemd's, or one of our own."""

import grp
import os
import socket
import stat
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager, suppress
from pathlib import Path

from autocap.errors import AutocapError, UsageError
from autocap.job.trusted_code import replaceable

_FIRST_FD = 3  # of those that systemd hands over
_BACKLOG = 4096  # who connects meanwhile waits; beyond, or beyond the kernel's somaxconn, they have to try again


class NotListening(AutocapError):
    """There is no socket that clients could connect to."""


def handed_over(environ: MutableMapping[str, str] = os.environ) -> socket.socket | None:
    """systemd's socket, `None` where it hands none over to this very process. Raises NotListening for another kind.

    The variables are removed: a child of ours has no such socket.
    """
    pid, count = environ.pop("LISTEN_PID", ""), environ.pop("LISTEN_FDS", "")
    environ.pop("LISTEN_FDNAMES", None)
    if pid != str(os.getpid()) or not count.isdigit() or count == "0":
        return None
    if count != "1":
        raise NotListening(f"systemd hands {count} sockets over, and one is expected; look at autocap-helper.socket")
    os.set_inheritable(_FIRST_FD, False)
    try:
        found = socket.socket(fileno=_FIRST_FD)
        listens = found.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
    except OSError as error:
        raise NotListening(f"what systemd hands over is no socket: {error}; look at autocap-helper.socket") from error
    if found.family != socket.AF_UNIX or found.type != socket.SOCK_STREAM or not listens:
        raise NotListening("what systemd hands over is no stream socket with a path; look at autocap-helper.socket")
    return found


def gid_of(group: str) -> int:
    """Raises UsageError where there is no such group."""
    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise UsageError(f"there is no group '{group}'; make it with `groupadd --system {group}`") from None


@contextmanager
def own(path: Path, gid: int | None, uid: int | None = None) -> Iterator[socket.socket]:
    """A socket at a path, which is removed at the end. gid: of those who may connect, besides its owner; our own group
    when `None`. uid: its owner, ourselves when `None`. Raises NotListening where it cannot be had, as where another
    helper has it, and for root where somebody else could put something in its place: a link, of whose target we would
    change the mode, or their own socket."""
    who = replaceable(str(path)) if os.geteuid() == 0 else None
    if who is not None:
        raise NotListening(
            f"the socket {path} could be replaced, as {who}; pass --socket with a path that is root's alone"
        )
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            made = _bind(listener, path, gid, uid)
        except OSError as error:
            raise NotListening(f"no socket can be had at {path}: {error}; pass --socket with another path") from error
        try:
            yield listener
        finally:
            with suppress(OSError):
                if _identity(path) == made:
                    os.unlink(path)


def _bind(listener: socket.socket, path: Path, gid: int | None, uid: int | None) -> tuple[int, int]:
    """Listen at a path; which file that made. Raises OSError, NotListening."""
    _remove_dead(path)
    before = os.umask(0o177)  # nobody connects before it is known who may
    try:
        listener.bind(str(path))
    finally:
        os.umask(before)
    if gid is not None or uid is not None:
        os.chown(path, -1 if uid is None else uid, -1 if gid is None else gid, follow_symlinks=False)
    os.chmod(path, 0o660)
    listener.listen(_BACKLOG)
    return _identity(path)


def _remove_dead(path: Path) -> None:
    """A socket that a killed helper has left. Raises NotListening where one lives, or where it is no socket."""
    try:
        if not stat.S_ISSOCK(os.stat(path, follow_symlinks=False).st_mode):
            raise NotListening(f"{path} is no socket; pass --socket with another path")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:  # nobody listens
            os.unlink(path)
            return
        except BlockingIOError:  # somebody does, and has much to do
            pass
    raise NotListening(f"another helper listens at {path}; end it, or pass --socket with another path")


def _identity(path: Path) -> tuple[int, int]:
    status = os.stat(path, follow_symlinks=False)
    return status.st_dev, status.st_ino
