"""Small files of the kernel's that are read and written again and again, each opened once.

While a cap is held the loop then needs no descriptor that it has not got. What the name stands for is asked each time,
which takes none: a zone that has gone, or came back with its driver, is noticed as if the file were opened afresh.
"""

import os
import weakref
from collections.abc import Callable
from pathlib import Path

_MOST_BYTES = 4096  # a page, which is what such a file shows


class KeptFiles:
    """open: opens one. All methods raise OSError."""

    def __init__(self, open: Callable[[Path, int], int] = os.open) -> None:
        self._open = open
        self._fds: dict[tuple[Path, int], int] = {}
        weakref.finalize(self, _close_all, self._fds)

    def read(self, path: Path) -> bytes:
        return os.pread(self._fd(path, os.O_RDONLY), _MOST_BYTES, 0)

    def write(self, path: Path, data: bytes) -> None:
        """Never creates: a file that is not there is one that has gone."""
        fd = self._fd(path, os.O_WRONLY)
        os.ftruncate(fd, 0)
        os.pwrite(fd, data, 0)

    def close(self) -> None:
        """Keep none; one that is used after that is opened again."""
        _close_all(self._fds)

    def _fd(self, path: Path, flags: int) -> int:
        named = os.stat(path)
        fd = self._fds.get((path, flags))
        if fd is not None:
            opened = os.fstat(fd)
            if (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino):
                return fd
            os.close(self._fds.pop((path, flags)))
        self._fds[path, flags] = self._open(path, flags)
        return self._fds[path, flags]


def _close_all(fds: dict[tuple[Path, int], int]) -> None:
    while fds:
        os.close(fds.popitem()[1])
