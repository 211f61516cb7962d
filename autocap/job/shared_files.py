"""Files in shared memory that live as long as their maker: those in which a job counts its steps.

The maker holds an advisory lock on its file, which the kernel drops with the last process that has the file open from
it, however that dies and in whatever PID namespace it ran. So a file that nobody has locked is a dead maker's, and
whoever comes next may remove it. A name that is given, as to the nodes of one job, is one that such a file could have.
"""

import errno
import fcntl
import os
import re
import stat
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path

from autocap.errors import AutocapError
from autocap.job.invoking_user import file_rights_of

# Without the 2, as versions that held no lock named them, even the files of makers that live would look dead.
_PREFIX = "autocap-steps-2-"
_NAME = re.compile(re.escape(_PREFIX) + "[0-9a-f]{32}")
_MOST_AT_ONCE = 1000  # that are looked at, whoever made them: the next time goes on
_TRIES = 10
_FIRST_FD = 3  # a program whose streams are closed must not write its output to the file


class SharedFile:
    """A new file of that many bytes, allocated, private to the user whose rights we act with.

    name: that of such a file on another machine, which this one is to have here; `None` for a new one. path: its name.
    fd: open for reading and writing, not inheritable. To be closed, which removes it. A fork of this process lets go of
    it, and its maker alone removes it. Raises OSError where the directory takes none, FileExistsError where it has one
    of that name.
    """

    def __init__(self, directory: Path, size: int, name: str | None = None) -> None:
        if name is not None and not is_name(name):
            raise OSError(errno.EINVAL, "no name of a file that counts steps")
        with _folder(directory) as folder:
            for _ in range(_TRIES):
                made = name or f"{_PREFIX}{os.urandom(16).hex()}"
                self.fd = _new(made, folder)
                status = os.fstat(self.fd)
                try:
                    # Removed as a dead maker's already, where somebody looked between the making and the locking.
                    if _lock(self.fd) and _stands_for(folder, made, status):
                        # Allocated, not merely long: on a full disk a hole would kill the job that writes to it.
                        os.posix_fallocate(self.fd, 0, size)
                        break
                    os.close(self.fd)
                except OSError:
                    os.close(self.fd)
                    _remove(folder, made, status)
                    raise
            else:
                raise OSError(errno.EAGAIN, "others remove what is made there")
        self.path = directory / made
        self._status = status
        _live.add(self)

    def close(self) -> None:
        """Remove it, if its name still stands for this very file, and let go of it. Raises nothing."""
        if self.fd < 0:  # closed, or a fork of its maker
            return
        with suppress(OSError), _folder(self.path.parent) as folder:
            _remove(folder, self.path.name, self._status)
        self._forget()

    def _forget(self) -> None:
        _live.discard(self)
        fd, self.fd = self.fd, -1
        with suppress(OSError):  # a program that closed what it did not open may have another file there by now
            if fd >= 0 and _same(os.fstat(fd), self._status):
                os.close(fd)


def is_name(name: str) -> bool:
    """Whether such a file may be called that."""
    return _NAME.fullmatch(name) is not None


def directories() -> tuple[Path, ...]:
    """Where such files lie: in memory, and where that is not possible among the temporary files."""
    temporary = os.path.abspath(os.environ.get("TMPDIR") or "/tmp")
    return tuple(dict.fromkeys((Path("/dev/shm"), Path(temporary), Path("/tmp"))))


def new_file(size: int, what: str, header: bytes, directory: Path | None = None) -> SharedFile:
    """A file that begins so, where there is room for it. what: it is for, in a message. directory: the only one to look
    at. Raises AutocapError where it cannot be made."""
    failures = []
    for each in directories() if directory is None else (directory,):
        try:
            made = SharedFile(each, size)
        except OSError as error:
            failures.append(f"{each}: {error.strerror}")
            continue
        os.pwrite(made.fd, header, 0)
        return made
    raise AutocapError(
        f"no file of {size} bytes for {what} can be created ({'; '.join(failures)}); set TMPDIR to a directory that "
        "takes one"
    )


def remove_dead(places: Sequence[Path] | None = None, *, observe: bool = False) -> list[Path]:
    """Remove the files of dead makers: those of our own user, and everybody's where we are root; which they were.

    places: instead of `directories()`. observe: only say which would be. Raises nothing, and waits for nobody.
    """
    removed = []
    for directory in directories() if places is None else places:
        with suppress(OSError), _folder(directory) as folder:
            for name, status in islice(_ours(folder), _MOST_AT_ONCE):
                with suppress(OSError):  # somebody else was first, or it is not to be had
                    if _remove_if_dead(folder, name, status, observe=observe):
                        removed.append(directory / name)
    return removed


def _ours(folder: int) -> Iterator[tuple[str, os.stat_result]]:
    """The files that we may remove, if their makers are dead."""
    for name in filter(_NAME.fullmatch, os.listdir(folder)):
        with suppress(FileNotFoundError):
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and os.geteuid() in (0, status.st_uid):
                yield name, status


def _remove_if_dead(folder: int, name: str, status: os.stat_result, *, observe: bool) -> bool:
    """Whether its maker was dead, so that it was removed, or would be."""
    with file_rights_of(status.st_uid, status.st_gid):
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        try:
            if not _same(os.fstat(fd), status) or not _lock(fd):
                return False
            return _stands_for(folder, name, status) if observe else _remove(folder, name, status)
        finally:
            os.close(fd)


def _remove(folder: int, name: str, status: os.stat_result) -> bool:
    """Remove the name while it stands for that file, with no more than its owner's rights: between the look and the
    removal the owner may put something else there. Whether it did stand for it."""
    if not _stands_for(folder, name, status):
        return False
    with file_rights_of(status.st_uid, status.st_gid):
        os.unlink(name, dir_fd=folder)
    return True


@contextmanager
def _folder(path: Path) -> Iterator[int]:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield fd
    finally:
        os.close(fd)


def _new(name: str, folder: int) -> int:
    fd = os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    if fd >= _FIRST_FD:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FD)
    finally:
        os.close(fd)


def _lock(fd: int) -> bool:
    """Lock it unless somebody else has. flock: a lock of the open file, not of a process, is inherited with it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _stands_for(folder: int, name: str, status: os.stat_result) -> bool:
    try:
        return _same(os.stat(name, dir_fd=folder, follow_symlinks=False), status)
    except FileNotFoundError:
        return False


def _same(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)


_live: "weakref.WeakSet[SharedFile]" = weakref.WeakSet()


def _forget_in_child() -> None:
    for file in list(_live):
        file._forget()


os.register_at_fork(after_in_child=_forget_in_child)  # else a fork would keep the lock beyond its maker's death
