"""Where files are written, in a directory that somebody else may write to as well.

The directory is found step by step and kept open; every file in it is made, replaced and removed through that
descriptor, new and under no name that anybody can know beforehand. So no link, pipe or device that was put in our way
is followed, and renaming the directory changes nothing.
"""

import errno
import os
import re
import secrets
import stat
from contextlib import suppress
from io import FileIO
from pathlib import Path

from autocap.errors import RunDirectoryError

TEMPORARY = re.compile(r"\.autocap-[0-9a-f]{16}\.tmp")  # what a writer that was killed leaves
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def create(place_fd: int, name: str, mode: int = 0o666) -> FileIO:
    """A new file, unbuffered. Raises OSError, FileExistsError where anything has that name."""
    return FileIO(os.open(name, _NEW, mode, dir_fd=place_fd), "wb")


def put(place_fd: int, name: str, data: bytes, mode: int = 0o666) -> None:
    """Put a file there instead of whatever has that name. Raises OSError."""
    temporary = f".autocap-{secrets.token_hex(8)}.tmp"
    file = create(place_fd, temporary, mode)
    try:
        with file:
            write(file, data)
            os.fsync(file.fileno())  # a disk of the network may say only here that it is full
        os.rename(temporary, name, src_dir_fd=place_fd, dst_dir_fd=place_fd)
    except BaseException:
        with suppress(OSError):  # the first failure is the one to tell
            os.unlink(temporary, dir_fd=place_fd)
        raise


def write(file: FileIO, data: bytes) -> None:
    """All of it. Raises OSError."""
    rest = memoryview(data)
    while rest:  # a disk that fills up takes a part first and fails at the next try
        rest = rest[file.write(rest) :]


_LONGEST = 4000  # bytes of a path, with the kernel's limit of 4096 and room for a name
_MOST_LINKS = 40  # as the kernel has it
_OTHERS_WRITE = 0o022
_PLACE = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class OutputRefused(RunDirectoryError):
    """A directory that is not ours to write to, or what stands where a file of ours belongs; the message names it."""


class OutputDirectory:
    """A directory to write to, with those of its parents that are missing made if `make` says so.

    Raises OutputRefused for a symbolic link on the way that somebody else put where others may write, and, to root, for
    a directory of another user, OSError where it cannot be reached or made.
    """

    def __init__(self, path: Path, *, make: bool = True) -> None:
        self.path = path
        self._made: list[tuple[int, str]] = []  # name and directory around it of those that were made, outermost first
        if len(os.fsencode(path)) > _LONGEST:  # nobody could name what is in it
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        self._fd = os.open("/" if path.is_absolute() else ".", _PLACE)
        try:
            self._descend(make)
            self._require_ours()
            if not os.access(".", os.W_OK | os.X_OK, dir_fd=self._fd, effective_ids=True):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except BaseException:
            with suppress(OSError):
                self.remove_made()
            self.close()
            raise

    def __enter__(self) -> "OutputDirectory":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of it; more calls do nothing."""
        for around, _ in self._made:
            os.close(around)
        if self._fd >= 0:
            os.close(self._fd)
        self._made, self._fd = [], -1

    def holds(self, name: str) -> bool:
        """Whether anything has that name."""
        try:
            os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except FileNotFoundError:
            return False
        return True

    def create(self, name: str) -> FileIO:
        """A new file, unbuffered. Raises OSError, FileExistsError where anything has that name."""
        return create(self._fd, name)

    def open(self, name: str) -> FileIO:
        """A file that is there, to read and to write, unbuffered. Raises OutputRefused for what is no regular file."""
        try:
            fd = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._fd)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
                raise self._no_file(name) from error
            raise
        if not stat.S_ISREG(os.fstat(fd).st_mode):
            os.close(fd)
            raise self._no_file(name)
        return FileIO(fd, "r+b")

    def put(self, name: str, data: bytes) -> None:
        """Put a file there, whole or not at all, instead of whatever has that name. Raises OSError."""
        put(self._fd, name, data)

    def remove(self, name: str) -> None:
        """Remove a file, or a link to one; none there is fine. Raises OSError, for a directory as well."""
        with suppress(FileNotFoundError):
            os.unlink(name, dir_fd=self._fd)

    def remove_temporaries(self) -> None:
        """Remove what writers that were killed have left. Raises OSError."""
        place = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=self._fd)
        try:
            names = [name for name in os.listdir(place) if TEMPORARY.fullmatch(name)]
        finally:
            os.close(place)
        for name in names:
            if stat.S_ISREG(os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_mode):
                self.remove(name)

    def remove_made(self) -> None:
        """Remove the directories that were made, as far as they are empty. Raises OSError at the first that is not."""
        for around, name in reversed(self._made):
            os.rmdir(name, dir_fd=around)

    def _no_file(self, name: str) -> OutputRefused:
        return OutputRefused(f"{self.path / name} is no regular file; look at it and remove it")

    def _descend(self, make: bool) -> None:
        parts = [part for part in self.path.parts if part != "/"]
        links = 0
        while parts:
            part = parts.pop(0)
            try:
                inner = os.open(part, _PLACE, dir_fd=self._fd)
            except FileNotFoundError:
                if not make:
                    raise
                inner = self._make(part)
            except NotADirectoryError:
                there = os.stat(part, dir_fd=self._fd, follow_symlinks=False)
                if not stat.S_ISLNK(there.st_mode):
                    if make and not parts:
                        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST)) from None
                    raise
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from None
                target = Path(self._target(part, there))
                parts = [*(step for step in target.parts if step != "/"), *parts]
                if not target.is_absolute():
                    continue
                inner = os.open("/", _PLACE)
            os.close(self._fd)
            self._fd = inner

    def _make(self, part: str) -> int:
        with suppress(FileExistsError):  # somebody else was faster
            os.mkdir(part, 0o755 if os.geteuid() == 0 else 0o777, dir_fd=self._fd)
            self._made.append((os.dup(self._fd), part))
        return os.open(part, _PLACE, dir_fd=self._fd)

    def _target(self, link: str, status: os.stat_result) -> str:
        """What a link points to. Raises OutputRefused for one that somebody else put there."""
        around, us = os.fstat(self._fd), os.geteuid()
        theirs = status.st_uid not in (0, us) and around.st_mode & _OTHERS_WRITE
        if theirs or (us == 0 and (around.st_uid != 0 or status.st_uid != 0)):
            raise OutputRefused(
                f"on the way to {self.path}, {link} is a symbolic link that user {around.st_uid or status.st_uid} may "
                "have put there, and is not followed; choose another directory"
            )
        return os.readlink(link, dir_fd=self._fd)

    def _require_ours(self) -> None:
        if os.geteuid() != 0:
            return
        status = os.fstat(self._fd)
        if status.st_uid != 0 or status.st_mode & _OTHERS_WRITE:
            whose = f"belongs to user {status.st_uid}" if status.st_uid != 0 else "can be written by others"
            raise OutputRefused(
                f"{self.path} {whose}: output directories of other users are refused for root; choose another, or "
                "run as that user"
            )
