"""Files that are there whole or not at all, in a directory that is held open."""

import os
import re
import secrets
from contextlib import suppress
from io import FileIO

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
