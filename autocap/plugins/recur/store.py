"""The database of recurring jobs: one SQLite file in a directory that is the user's alone.

Every change is a transaction, taken with the write lock from its beginning, so that two recurrences which begin at once
choose one after the other, and a process that is killed leaves what it had finished. Nothing is held between calls. A
recurrence is kept as running before its job starts, with the process that follows it: if that is gone, it is lost.
"""

import os
import socket
import sqlite3
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from autocap.errors import AutocapError, RecurrenceUnavailable
from autocap.job.processes import ProcessId, boot_id, own_identity
from autocap.plugins.recur.policy import Outcome
from autocap.plugins.recur.record import JobSettings, KeptRecurrence
from autocap.runlog.memory.store import default_place, make_private
from autocap.text import printable_json
from autocap.wire.codec import decode, encode
from autocap.wire.json_lines import parse

FILE = "recur.sqlite3"
_VERSION = 1
_PATIENCE_S = 10.0  # with others that write
_OTHERS_WRITE = 0o022
_MOST_SETTINGS = 1 << 20  # bytes
_SCHEMA = """
CREATE TABLE IF NOT EXISTS jobs (name TEXT PRIMARY KEY, settings TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS recurrences (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, number INTEGER NOT NULL, batch_size INTEGER NOT NULL,
    outcome TEXT NOT NULL, started_at TEXT NOT NULL, ended_at TEXT, spent TEXT, reason TEXT NOT NULL, cap_w REAL,
    gpus TEXT NOT NULL, run_dir TEXT NOT NULL, host TEXT NOT NULL, boot TEXT NOT NULL, pid INTEGER NOT NULL,
    start_ticks INTEGER NOT NULL, UNIQUE (name, number)
);
"""
_COLUMNS = tuple(field.name for field in fields(KeptRecurrence))  # another field makes another version
_IN_JSON = ("spent", "gpus")
_T = TypeVar("_T")
_KILLED = "autocap was killed, or the machine was restarted, while it ran"


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """A recurrence that has begun. id: of its row, which a reset removes for good."""

    id: int
    number: int


class RecurStore:
    """The database in a directory, which need not be there."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._path = place / FILE

    @classmethod
    def default(cls) -> "RecurStore":
        """Beside the run memory. Raises RecurrenceUnavailable for who has no home."""
        memory = default_place(None)
        if memory is None:
            raise RecurrenceUnavailable("a recurring job needs a home to be kept in; set XDG_STATE_HOME")
        return cls(memory.parent / "recur")

    def names(self) -> list[str]:
        """Of all recurring jobs. Raises RecurrenceUnavailable."""
        if not self._path.exists():
            return []
        with self._changing() as base:
            return [name for (name,) in base.execute("SELECT name FROM jobs ORDER BY name")]

    def read(self, name: str) -> tuple[JobSettings, list[KeptRecurrence]]:
        """A job and its recurrences, oldest first. Raises RecurrenceUnavailable where there is none of that name."""
        if self._path.exists():
            with self._changing() as base:
                settings = _settings(base, name)
                if settings is not None:
                    _bury(base, name)
                    return settings, _recurrences(base, name)
        raise RecurrenceUnavailable(
            f"no recurring job '{name}' is kept in {self.place}; `autocap recur status` lists those there are"
        )

    def begin(
        self, name: str, check: Callable[[JobSettings | None], JobSettings], choose: "Chooser"
    ) -> tuple[Registered, KeptRecurrence]:
        """Choose for the next recurrence and keep it as running, both at once for everybody else.

        check: gives the settings to keep, of those known. Raises RecurrenceUnavailable, and what check and choose do.
        """
        with self._changing() as base:
            settings = check(_settings(base, name))
            _bury(base, name)
            chosen = choose(_recurrences(base, name))
            text = printable_json(encode(settings))
            base.execute("INSERT OR REPLACE INTO jobs VALUES (?, ?)", (name, text))
            me = own_identity()
            row = base.execute(
                f"INSERT INTO recurrences (name, {', '.join(_COLUMNS)}, host, boot, pid, start_ticks) "
                f"VALUES ({', '.join('?' * (5 + len(_COLUMNS)))})",
                (name, *_row(chosen), socket.gethostname(), boot_id(), me.pid, me.start_ticks),
            ).lastrowid
            assert row is not None  # after an INSERT it is known
            return Registered(id=row, number=chosen.number), chosen

    def finish(self, registered: Registered, ended: KeptRecurrence, patience_s: float = _PATIENCE_S) -> bool:
        """Keep what a recurrence came to; False where it was reset meanwhile.

        Raises RecurrenceUnavailable, also where others write for longer than patience_s.
        """
        with self._changing(patience_s) as base:
            columns = ", ".join(f"{column} = ?" for column in _COLUMNS)
            done = base.execute(f"UPDATE recurrences SET {columns} WHERE id = ?", (*_row(ended), registered.id))
            return done.rowcount == 1

    def withdraw(self, registered: Registered) -> None:
        """Forget a recurrence whose job never started. Raises RecurrenceUnavailable."""
        with self._changing() as base:
            base.execute("DELETE FROM recurrences WHERE id = ?", (registered.id,))

    def reset(self, name: str) -> int:
        """Forget a job; how many recurrences that were. Raises RecurrenceUnavailable where there is none."""
        self.read(name)
        with self._changing() as base:
            base.execute("DELETE FROM jobs WHERE name = ?", (name,))
            return base.execute("DELETE FROM recurrences WHERE name = ?", (name,)).rowcount

    @contextmanager
    def _changing(self, patience_s: float = _PATIENCE_S) -> Iterator[sqlite3.Connection]:
        """A transaction, which an exception undoes."""
        try:
            self._require_own()
            with closing(sqlite3.connect(self._path, timeout=patience_s, isolation_level=None)) as base:
                base.execute("PRAGMA synchronous = FULL")
                base.execute("BEGIN IMMEDIATE")
                try:
                    _make(base)
                    yield base
                except BaseException:
                    base.execute("ROLLBACK")
                    raise
                base.execute("COMMIT")
        except sqlite3.Error as error:
            raise RecurrenceUnavailable(f"{self._path} cannot be used: {error}; {_advice(error)}") from error
        except OSError as error:
            raise RecurrenceUnavailable(
                f"{self.place} cannot be used: {error.strerror or error}; make room or set its rights"
            ) from error

    def _require_own(self) -> None:
        """Make what is not there. Raises OSError, and RecurrenceUnavailable where somebody else may write to it."""
        make_private(self.place)
        for path, is_kind, kind in ((self.place, stat.S_ISDIR, "directory"), (self._path, stat.S_ISREG, "file")):
            if not os.path.lexists(path):
                continue
            status = os.lstat(path)
            if not is_kind(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
                raise RecurrenceUnavailable(
                    f"{path} is no {kind} of yours alone (user {status.st_uid}, mode "
                    f"{stat.S_IMODE(status.st_mode):04o}), so no recurring job is kept there; make it your own, with "
                    "no rights for others, or remove it"
                )
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))


def _advice(error: sqlite3.Error) -> str:
    """What to do; never to remove what another run is writing to just now."""
    code = getattr(error, "sqlite_errorcode", None)
    if code is not None and code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return "another run of autocap has it just now; try again once that is done, and leave the file where it is"
    if code is not None and code & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return "it is damaged; move it aside, and the next run begins another"
    return "make room or set its rights"


Chooser = Callable[[Sequence[KeptRecurrence]], KeptRecurrence]


def now() -> str:
    """The moment, as it is kept."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def _make(base: sqlite3.Connection) -> None:
    """The tables, where the file is new."""
    (version,) = base.execute("PRAGMA user_version").fetchone()
    if version == _VERSION:
        return
    if version != 0:
        raise RecurrenceUnavailable(f"{FILE} is of version {version}, and this autocap knows {_VERSION}; update it")
    for statement in _SCHEMA.split(";"):
        base.execute(statement)
    base.execute(f"PRAGMA user_version = {_VERSION}")


def _settings(base: sqlite3.Connection, name: str) -> JobSettings | None:
    row = base.execute("SELECT settings FROM jobs WHERE name = ?", (name,)).fetchone()
    return None if row is None else _understood(lambda: decode(JobSettings, parse(row[0].encode(), _MOST_SETTINGS)))


def _recurrences(base: sqlite3.Connection, name: str) -> list[KeptRecurrence]:
    rows = base.execute(f"SELECT {', '.join(_COLUMNS)} FROM recurrences WHERE name = ? ORDER BY number", (name,))
    return [_understood(lambda row=row: _kept(row)) for row in rows]  # type: ignore[misc]  # bound at once


def _understood(read: Callable[[], _T]) -> _T:
    try:
        return read()
    except (AutocapError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise RecurrenceUnavailable(
            f"{FILE} holds what this autocap would not have written ({error}); update it, or remove the file"
        ) from error


def _bury(base: sqlite3.Connection, name: str) -> None:
    """Those whose process is gone are lost; of another machine's nothing can be told. A process in another container
    looks gone: what it comes to is kept all the same."""
    running = base.execute(
        "SELECT id, host, boot, pid, start_ticks FROM recurrences WHERE name = ? AND outcome = ?",
        (name, Outcome.RUNNING),
    ).fetchall()
    for row, host, boot, pid, start_ticks in running:
        restarted = boot != boot_id() and host == socket.gethostname()
        if restarted or (boot == boot_id() and not ProcessId(pid, start_ticks).is_alive()):
            base.execute(
                "UPDATE recurrences SET outcome = ?, reason = ?, ended_at = ? WHERE id = ?",
                (Outcome.LOST, _KILLED, now(), row),
            )


def _row(kept: KeptRecurrence) -> tuple[object, ...]:
    found = encode(kept)
    assert isinstance(found, dict)
    return tuple(
        printable_json(found[name]) if name in _IN_JSON and found[name] is not None else found[name]
        for name in _COLUMNS
    )


def _kept(row: Sequence[object]) -> KeptRecurrence:
    found = dict(zip(_COLUMNS, row, strict=True))
    for name in _IN_JSON:
        found[name] = None if found[name] is None else parse(str(found[name]).encode(), _MOST_SETTINGS)
    return decode(KeptRecurrence, found)  # type: ignore[arg-type]  # SQLite's values are JSON's
