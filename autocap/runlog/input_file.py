"""The one way to read what somebody else may have written: a file, and not more of it than was said.

What stands behind a path is looked at before it is opened, as to open a device or a named pipe may already do harm or
wait for ever. A stream that was passed as an open descriptor (`< trace.csv`, `<(zcat …)`) may also be a pipe, a socket
or a terminal: that is what was asked for, and it is read to its end. `read_rows` reads rows of a time and a number, as
people and programs write them: CSV with a heading.
"""

import csv
import errno
import io
import itertools
import os
import re
import select
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from autocap.errors import AutocapError

KIB, MIB = 1 << 10, 1 << 20
_CHUNK = MIB
_STREAM = re.compile(r"/dev/stdin|(?:/dev/fd|/proc/(?:self|thread-self)/fd)/(\d{1,9})")
_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class InputRefused(AutocapError):
    """What was passed is no file, or holds more than is read; the message names it."""


def open_input(path: Path, flags: int = os.O_RDONLY) -> int:
    """A descriptor of the file, or, of a path that names one of our open streams, a duplicate of that.

    flags: as `os.open` takes them, without O_CREAT. Raises InputRefused for what is neither, OSError where it cannot be
    opened, a directory among that.
    """
    stream = _STREAM.fullmatch(str(path))
    if stream is not None:
        fd = os.dup(int(stream[1] or 0))
        allowed = (stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK)
        return _checked(fd, path, allowed if not os.isatty(fd) else (*allowed, stat.S_IFCHR))
    place = _checked(os.open(path, os.O_PATH | os.O_CLOEXEC), path, (stat.S_IFREG,))
    try:  # the very file that was looked at, whatever stands there by now
        return os.open(f"/proc/self/fd/{place}", flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    finally:
        os.close(place)


def _checked(fd: int, path: Path, allowed: tuple[int, ...]) -> int:
    kind = stat.S_IFMT(os.fstat(fd).st_mode)
    if kind in allowed:
        return fd
    os.close(fd)
    if kind == stat.S_IFDIR:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    raise InputRefused(f"{path} is {_KINDS.get(kind, 'no file')}; pass a file")


def pieces_of(path: Path, most_bytes: int, check: Callable[[int], None] | None = None) -> Iterator[bytes]:
    """What the file holds, piece by piece; it is opened when the first is asked for.

    check: is given the descriptor before anything is read, and may raise. Raises, then or later, what `open_input`
    does, and InputRefused where there are more bytes.
    """
    fd = open_input(path)
    try:
        if check is not None:
            check(fd)
        left = most_bytes
        while piece := _read(fd, path):
            left -= len(piece)
            if left < 0:
                most = f"{most_bytes // MIB} MiB" if most_bytes >= MIB else f"{most_bytes // KIB} KiB"
                raise InputRefused(f"{path} holds more than {most}, the most that is read of a file")
            yield piece
    finally:
        os.close(fd)


def read_input(path: Path, most_bytes: int, check: Callable[[int], None] | None = None) -> bytes:
    """All that the file holds. Raises as `pieces_of`."""
    return b"".join(pieces_of(path, most_bytes, check))


def _read(fd: int, path: Path) -> bytes:
    while True:
        try:
            return os.read(fd, _CHUNK)
        except BlockingIOError:
            if stat.S_ISREG(os.fstat(fd).st_mode):  # one of the kernel's, such as /proc/kmsg, that waits for news
                raise InputRefused(f"{path} has nothing to read now and never ends; pass a file") from None
            news = select.poll()  # a stream whose other end made it so; ours is not to change it
            news.register(fd, select.POLLIN)
            news.poll()


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRow:
    """where: its source and line, for messages. cells: by the name of their column; one that is not there is empty."""

    where: str
    cells: Mapping[str, str]


def read_rows(
    data: bytes, source: str, columns: Sequence[str], most: int, wanted: str
) -> tuple[tuple[str, ...], list[InputRow]]:
    """The names of all columns, and the rows under them. columns: those that must be there. most: rows. wanted: what to
    give instead, for messages. Raises InputRefused for what is no such text."""
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), restval="")
        names = tuple(reader.fieldnames or ())
        missing = [column for column in columns if column not in names]
        if missing:
            raise InputRefused(f"{source} lacks the column {missing[0]}; {wanted}")
        rows = [
            InputRow(where=f"{source}, line {reader.line_num}", cells=row) for row in itertools.islice(reader, most + 1)
        ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputRefused(f"{source} cannot be read: {error}; {wanted}") from error
    if not 0 < len(rows) <= most:
        raise InputRefused(f"{source} holds {f'more than {most}' if rows else '0'} rows; give 1 to {most}")
    return names, rows


def number(text: str) -> float | None:
    """The number in a cell, which may be infinite or no number by name; `None` for any other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if text.strip().isascii() else None


def moment(text: str) -> float | None:
    """Seconds since 1970 of an ISO 8601 date with a zone; `None` for any other text."""
    try:
        found = datetime.fromisoformat(text.strip())
        return None if found.tzinfo is None else found.timestamp()
    except (ValueError, OverflowError):
        return None
