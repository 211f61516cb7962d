"""Whose a subordinate user is: whoever may use newuidmap can be many users at once (`/etc/subuid`, subuid(5))."""

import os
import pwd
import threading
from dataclasses import dataclass
from pathlib import Path

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
