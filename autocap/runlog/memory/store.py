"""Where entries lie on disk: a file each, named after its key, in a directory that is the user's alone.

No lock is needed: a file is replaced as a whole, and of two runs that end at once the last one's stays. Whatever is not
the user's own regular file, or holds anything that this version would not have written, counts as not there.
"""

import logging
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from autocap.errors import MemoryUnavailable
from autocap.job.invoking_user import InvokingUser
from autocap.runlog.memory.entry import KEY_DIGITS, MOST_BYTES, Entry, from_bytes, to_bytes
from autocap.runlog.output_directory import TEMPORARY, put

log = logging.getLogger(__name__)
MOST_ENTRIES, MOST_BYTES_IN_ALL = 256, 4 << 20
_NAME = re.compile(rf"([0-9a-f]{{{KEY_DIGITS}}})\.json")
_OTHERS_WRITE = 0o022


def default_place(user: InvokingUser | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """`$XDG_STATE_HOME/autocap/memory`, by default below `~/.local/state`; under sudo below the user's home, whatever
    the variables say, as they may be root's. `None` for who has no home."""
    base = environ.get("XDG_STATE_HOME", "") if user is None else ""
    if not os.path.isabs(base):
        home = os.path.expanduser("~") if user is None else user.home
        if not os.path.isabs(home) or home == "/":
            return None
        base = os.path.join(home, ".local", "state")
    return Path(base) / "autocap" / "memory"


class MemoryStore:
    """The entries in a directory, which need not be there."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def read(self, key: str) -> Entry | None:
        """The entry of that key; `None` where there is none that can be used."""
        try:
            with self._opened() as place:
                return _read(place, key)
        except (OSError, MemoryUnavailable):
            log.debug("nothing is remembered in %s", self.place, exc_info=True)
            return None

    def use(self, key: str) -> None:
        """Note that an entry was used now: those used longest ago go first."""
        with suppress(OSError, MemoryUnavailable), self._opened() as place:
            os.utime(f"{key}.json", dir_fd=place, follow_symlinks=False)

    def entries(self) -> list[Entry]:
        """Every entry that can be used, that used last first; none where there is no directory.

        Raises MemoryUnavailable where that cannot be read.
        """
        try:
            with self._opened() as place:
                keys = [key for _, _, key in reversed(_files(place))]
                return [entry for key in keys if (entry := _read(place, key)) is not None]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unavailable(error, "read") from error

    def write(self, entry: Entry) -> None:
        """Keep an entry in place of the one of its key, and let those go for which there is no room any more.

        Raises MemoryUnavailable where it cannot be written.
        """
        try:
            text = to_bytes(entry)
            make_private(self.place)
            with self._opened() as place:
                put(place, f"{entry.key}.json", text, 0o600)
                _prune(place, entry.key)
        except OSError as error:
            raise self._unavailable(error, "written") from error
        except ValueError as error:
            raise MemoryUnavailable(f"what this run has shown is not remembered: {error}") from error

    def forget(self, key: str) -> None:
        """Remove an entry. Raises MemoryUnavailable where that fails."""
        try:
            with self._opened() as place:
                os.unlink(f"{key}.json", dir_fd=place)
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unavailable(error, "written") from error

    def forget_all(self) -> int:
        """Remove every file of ours, also what cannot be used; how many entries that were. Raises MemoryUnavailable."""
        try:
            with self._opened() as place:
                keys = [key for _, _, key in _files(place)]
                temporaries = [name for name in os.listdir(place) if TEMPORARY.fullmatch(name)]
                for name in [*(f"{key}.json" for key in keys), *temporaries]:
                    os.unlink(name, dir_fd=place)
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise self._unavailable(error, "written") from error
        return len(keys)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor of the directory. Raises OSError, and MemoryUnavailable where somebody else may write to it."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        place = os.open(self.place, flags)
        try:
            status = os.fstat(place)
            if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
                whose = f"belongs to user {status.st_uid}"
                if status.st_uid == os.geteuid():
                    whose = f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
                raise MemoryUnavailable(
                    f"{self.place} {whose}, so nothing is remembered there; make it your own, with mode 0700, or pass "
                    "--no-memory"
                )
            yield place
        finally:
            os.close(place)

    def _unavailable(self, error: OSError, what: str) -> MemoryUnavailable:
        return MemoryUnavailable(
            f"{self.place} cannot be {what}: {error.strerror}; make room or set its rights, or pass --no-memory"
        )


def make_private(path: Path) -> None:
    """The directory and its missing parents, each with mode 0700. Raises OSError."""
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        with suppress(FileExistsError):  # another autocap was faster
            folder.mkdir(mode=0o700)


def _read(place: int, key: str) -> Entry | None:
    """What the file holds that is the user's own; `None` where nothing of it can be used."""
    try:
        fd = os.open(f"{key}.json", os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    except FileNotFoundError:
        return None
    except OSError:
        log.debug("what is remembered as %s cannot be opened", key, exc_info=True)
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
            raise ValueError("it is no file of the user's alone")
        with open(fd, "rb", closefd=False) as file:
            return from_bytes(file.read(MOST_BYTES + 1), key)
    except (OSError, ValueError, TypeError, KeyError):
        log.debug("what is remembered as %s cannot be used", key, exc_info=True)
        return None
    finally:
        os.close(fd)


def _files(place: int) -> list[tuple[int, int, str]]:
    """When each entry was used last, in nanoseconds, its bytes and its key, that used longest ago first."""
    found = []
    for name in os.listdir(place):
        named = _NAME.fullmatch(name)
        if named is not None:
            with suppress(OSError):
                status = os.stat(name, dir_fd=place, follow_symlinks=False)
                found.append((status.st_mtime_ns, status.st_size, named[1]))
    return sorted(found)


def _prune(place: int, kept: str) -> None:
    """Remove those used longest ago, until there is room. kept: the one that was just written."""
    files = [one for one in _files(place) if one[2] != kept]
    count, in_all = len(files) + 1, sum(size for _, size, _ in files) + MOST_BYTES
    for _, size, key in files:
        if count <= MOST_ENTRIES and in_all <= MOST_BYTES_IN_ALL:
            break
        os.unlink(f"{key}.json", dir_fd=place)
        count, in_all = count - 1, in_all - size
