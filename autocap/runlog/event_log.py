"""`events.jsonl`: events as lines, read as a whole or followed while another process adds to them.

The process that writes the log holds a lock on it, which distinguishes a run that goes on from one that was killed: the
kernel releases the lock when its holder dies, also on another machine of a shared file system.
"""

import fcntl
import json
import logging
import os
import re
import time
from collections.abc import Sequence
from io import FileIO
from pathlib import Path
from typing import get_args

from autocap.errors import RunDirectoryError
from autocap.events import Event
from autocap.runlog.codec import decode, encode

EVENTS = "events.jsonl"

logger = logging.getLogger(__name__)


def _name(kind: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


_KINDS: dict[str, type[Event]] = {_name(kind): kind for kind in get_args(Event)}


def line_of(event: Event) -> bytes:
    """An event as one line."""
    fields = encode(event)
    assert isinstance(fields, dict)
    return (json.dumps({"event": _name(type(event)), **fields}, allow_nan=False) + "\n").encode()


def events_of(lines: Sequence[bytes], path: Path | None, first: int = 1) -> list[Event]:
    """The events that lines hold, without those that only a later version knows, and without damaged ones.

    path: the file, for the warning about a damaged line; `None` where it may have been cut short, which is not worth
    one. first: the number of the first line.
    """
    events = []
    for number, line in enumerate(lines, first):
        try:
            entry = json.loads(line)
            kind = _KINDS.get(entry["event"])
            if kind is not None:
                events.append(decode(kind, entry))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            if path is not None:
                logger.warning("%s: line %d is damaged and left out: %s", path, number, error)
    return events


def read_events(run_dir: Path) -> list[Event]:
    """The events of a run, oldest first, as far as they were written; a line cut short by a kill is left out.

    Events and fields that only a later version knows are skipped. Raises RunDirectoryError where there is no run.
    """
    try:
        lines = (run_dir / EVENTS).read_bytes().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        raise RunDirectoryError(
            f"{run_dir} holds no run: there is no {EVENTS} in it; pass a directory that autocap wrote"
        ) from None
    except OSError as error:
        raise RunDirectoryError(
            f"{run_dir / EVENTS} cannot be read: {error.strerror}; check its permissions"
        ) from error
    *whole, last = lines or [b""]
    return events_of(whole, run_dir / EVENTS) + events_of([last], None)


def locked(log: FileIO, run_dir: Path) -> FileIO:
    """The log, locked for as long as it is open, so that nobody else writes to it.

    Raises RunDirectoryError, and closes it, where another autocap has locked it.
    """
    try:
        fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        log.close()
        raise RunDirectoryError(
            f"{run_dir} is being written by another autocap; wait for it, or choose another with --out"
        ) from None
    except OSError:  # a file system without locks: whether it is written is not known there
        logger.debug("%s is not locked", run_dir, exc_info=True)
    return log


class EventTail:
    """The events of a run, as they are written by whoever runs it; a context manager.

    last_s: when the last event happened, seconds on the run's clock. Raises RunDirectoryError where there is no such
    directory; its log may come later.
    """

    def __init__(self, run_dir: Path) -> None:
        if not run_dir.is_dir():
            raise RunDirectoryError(f"there is no run directory {run_dir}; pass a directory that autocap writes")
        self._path = run_dir / EVENTS
        self._log: FileIO | None = None
        self._half = b""  # of a line that is still being written
        self._lines = 0
        self.last_s = 0.0

    def __enter__(self) -> "EventTail":
        return self

    def __exit__(self, *error: object) -> None:
        if self._log is not None:
            self._log.close()

    def read(self) -> list[Event]:
        """The events that were added since the last call; none while there is no log. Raises RunDirectoryError."""
        try:
            if self._log is None:
                self._log = FileIO(self._path)
            *lines, self._half = (self._half + self._log.readall()).split(b"\n")
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RunDirectoryError(f"{self._path} cannot be read: {error.strerror}; check its permissions") from error
        found = events_of(lines, self._path, self._lines + 1)
        self._lines += len(lines)
        self.last_s = found[-1].t_s if found else self.last_s
        return found

    @property
    def now_s(self) -> float:
        """Now, on the run's clock, by the log's time stamp."""
        if self._log is None:
            return 0.0
        return self.last_s + max(0.0, time.time() - os.fstat(self._log.fileno()).st_mtime)

    @property
    def is_orphaned(self) -> bool:
        """Whether there is a log that nobody writes any more."""
        if self._log is None:
            return False
        try:
            fcntl.flock(self._log, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:  # locked by the writer, or a file system without locks
            return False
        fcntl.flock(self._log, fcntl.LOCK_UN)
        return True
