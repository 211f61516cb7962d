"""Values that a job reports of itself, such as its accuracy: by `autocap.report` in its script, or read out of its
output by a relay process. Both write lines to one small file in shared memory, which is read from here.

A line is `TIME NAME VALUE`, with the time on CLOCK_MONOTONIC in nanoseconds, and is written at once, at the file's end,
so that lines of several ranks never mix.
"""

import math
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from autocap.job.shared_files import SharedFile, new_file, remove_dead
from autocap.progress.steps.hook import sitecustomize as step_hook
from autocap.progress.steps.map import hooked
from autocap.wire.lines import Lines

VALUES_VARIABLE = step_hook.VALUES_VARIABLE
OF_OUTPUT = "-"  # the name of what was read out of the output
OUT_OF_MEMORY = step_hook.OUT_OF_MEMORY  # the name under which the hook in the job says why it ends
_MAGIC = step_hook.VALUES_MAGIC
_HEADER_BYTES = 64
_MOST_LINE = 200  # bytes
_MOST_AT_ONCE, _MOST_BYTES = 1 << 16, 64 << 20  # that are read in a round, and of a job
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportedValue:
    """name: as reported, OF_OUTPUT where the output was read. t_s: on the clock of the run."""

    t_s: float
    name: str
    value: float


class ValueFile:
    """The file. Whoever made it removes it by closing it; the job may write anything to it."""

    def __init__(self, file: SharedFile) -> None:
        self._file = file
        self._at, self._lines = _HEADER_BYTES, Lines(_MOST_LINE)

    @classmethod
    def create(cls) -> Self:
        """Raises AutocapError where it cannot be made."""
        remove_dead()
        return cls(new_file(_HEADER_BYTES, "the job's values", _MAGIC))

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The environment in which the job's `autocap.report` finds it, and the hook in its Python."""
        return {**hooked(base), VALUES_VARIABLE: str(self._file.path)}

    @property
    def path(self) -> str:
        return str(self._file.path)

    def read(self, origin_s: float) -> list[ReportedValue]:
        """What was reported since the last call, oldest first, on the clock that was zero at `origin_s` of the
        system's monotonic one; never more than a part at once. What is no such line is passed over."""
        piece = b""
        if self._at < _MOST_BYTES:
            with suppress(OSError):
                piece = os.pread(self._file.fd, _MOST_AT_ONCE, self._at)
        self._at += len(piece)
        now_ns = time.monotonic_ns()
        found = [_value(line, origin_s, now_ns) for line in self._lines.feed(piece)]
        return [one for one in found if one is not None]

    def close(self) -> None:
        """Remove it."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def report(values: Mapping[str, float]) -> None:
    """Report values of this process's job; nothing happens where nobody reads them, and nothing is raised for what
    cannot be written. Raises TypeError or ValueError for a value that is no number, or a name that is too long."""
    lines = [line_of(name, float(value), time.monotonic_ns()) for name, value in values.items()]
    path = os.environ.get(VALUES_VARIABLE)
    if path:
        with suppress(OSError):
            append(path, b"".join(lines))


def append(path: str, lines: bytes) -> None:
    """Add lines at the end of the file of that name, where it is one. Raises OSError."""
    fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.pread(fd, len(_MAGIC), 0) == _MAGIC:
            os.write(fd, lines)
    finally:
        os.close(fd)


def line_of(name: str, value: float, t_ns: int) -> bytes:
    """A value as a line. Raises ValueError for a name that is too long or no word."""
    if not 0 < len(name) <= _LONGEST_NAME or not name.isascii() or any(one.isspace() for one in name):
        raise ValueError(f"{name[:_LONGEST_NAME]!r} is no name of a value; give one of at most {_LONGEST_NAME} letters")
    return f"{t_ns} {name} {value!r}\n".encode()


def _value(line: bytes, origin_s: float, now_ns: int) -> ReportedValue | None:
    try:
        t_ns, name, value = line[:_MOST_LINE].decode("ascii").split(" ")
        found = ReportedValue(t_s=min(int(t_ns), now_ns) / 1e9 - origin_s, name=name, value=float(value))
    except (ValueError, OverflowError):
        return None
    return found if math.isfinite(found.t_s) else None
