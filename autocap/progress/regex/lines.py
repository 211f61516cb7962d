"""Iterations counted in the text that a job prints, by the lines that match a pattern, or by a number in them; and the
shared file in which the relay process publishes what it has counted.
"""

import fcntl
import os
import re
import struct
import warnings
from collections.abc import Callable
from typing import Self

from autocap.config.values import shown
from autocap.errors import UsageError
from autocap.wire.lines import Lines

_LINE_BYTES = 4096  # as much of a line is looked at
_DIGITS = 18  # a longer number counts nothing
_LAGGING_LINES = 16  # lower numbers in a row after which they are no stragglers

_MOST_PATTERN = 1000  # characters: of tens of thousands Python may think for minutes


def compile_pattern(text: str) -> re.Pattern[str]:
    """The PATTERN of `regex:PATTERN`. Raises UsageError, with the reason, where it is no regular expression."""
    if not text:
        raise UsageError(r"the pattern is empty; give a regular expression, such as regex:'step (\d+)'")
    if len(text) > _MOST_PATTERN:
        raise UsageError(f"the pattern has {len(text)} characters; give at most {_MOST_PATTERN}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about what a later Python may read differently
            return re.compile(text)
    except re.error as error:
        where = "" if error.pos is None else f" at character {error.pos + 1}"
        why = f"{error.msg}{where}"
    except (OverflowError, RecursionError) as error:
        why = str(error)
    raise UsageError(rf"pattern {shown(text)} is no regular expression: {why}; write for example regex:'step (\d+)'")


class Numbers:
    """Makes a count that never falls out of the iteration numbers that a job prints.

    The count is the highest number so far, until the numbers start again: with one that is at most half of the
    highest (a new epoch), or after 16 lower ones in a row (a job that resumed from a checkpoint). From there the count
    goes on: the line that starts again counts as many iterations as the last rise did. Other lower numbers are
    stragglers, as when several ranks print, and count nothing.
    """

    def __init__(self) -> None:
        self._highest: int | None = None
        self._rise = 1
        self._raised = 0
        self._lower = 0

    def update(self, number: int) -> int:
        """The count, given the next number."""
        if self._highest is None:
            self._highest = number
        elif number >= self._highest:
            self._rise = number - self._highest or self._rise
            self._highest, self._lower = number, 0
        else:
            self._lower += 1
            if 2 * number <= self._highest or self._lower >= _LAGGING_LINES:
                self._raised += self._highest + self._rise - number
                self._highest, self._lower = number, 0
        return self._raised + self._highest


class LineReader:
    """Looks at the lines of a stream of bytes that arrives in pieces: at those that a pattern matches.

    A line ends at \\n or \\r and is looked at once it has ended, up to 4 KiB of it, as UTF-8. count: what was found so
    far, `None` before the first match.
    """

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._lines = Lines(_LINE_BYTES - 1, returns=True)
        self.count: int | None = None

    def read(self, data: bytes) -> None:
        """Look at the lines that end in the next piece."""
        for line in self._lines.feed(data):
            self._look(line)

    def end(self) -> None:
        """Look at the line that has begun, as at the end of the stream."""
        self._look(self._lines.end())

    def _look(self, line: bytes) -> None:
        found = self._pattern.search(line.decode(errors="replace")) if line else None
        if found is not None:
            self._take(found)

    def _take(self, found: re.Match[str]) -> None:
        raise NotImplementedError


class LineCounter(LineReader):
    """Counts iterations.

    With a group named `n` the count is the number in that group. So it is with a first group that holds a number in the
    first line that matches; otherwise it is the number of lines that match. See Numbers for numbers that fall.
    """

    def __init__(self, pattern: re.Pattern[str]) -> None:
        super().__init__(pattern)
        self._group: str | int = "n" if "n" in pattern.groupindex else 1
        # Not known before the first match where a group may or may not be meant as the number.
        self._numbered = None if self._group == 1 and pattern.groups else self._group == "n"
        self._numbers = Numbers()

    def _take(self, found: re.Match[str]) -> None:
        number = _number(found[self._group]) if self._numbered is not False else None
        if self._numbered is None:
            self._numbered = number is not None
        if not self._numbered:
            self.count = (self.count or 0) + 1
        elif number is not None:
            self.count = self._numbers.update(number)


class LineValues(LineReader):
    """Hands on the values in the lines: the number in the group named `value`, else in the first. Counts them."""

    def __init__(self, pattern: re.Pattern[str], found: Callable[[float], None]) -> None:
        super().__init__(pattern)
        self._found = found
        self._group: str | int = "value" if "value" in pattern.groupindex else 1

    def _take(self, found: re.Match[str]) -> None:
        try:
            value = float((found[self._group] or "").replace(",", ""))
        except ValueError:
            return
        self.count = (self.count or 0) + 1
        self._found(value)


def _number(text: str | None) -> int | None:
    """A whole number, in which commas may stand between the thousands."""
    digits = (text or "").strip().replace(",", "")
    return int(digits) if digits.isdecimal() and len(digits) <= _DIGITS else None


class Board:
    """The shared file. The relay process publishes in it, and we read.

    The check word is the safety of the reader: what it catches in the middle of a write fails it.
    """

    _SLOT = struct.Struct("@QQQQ")  # count, CLOCK_MONOTONIC when it was reached (ns; 0: never), state, check word
    _SALT = 0x6175746F63617031
    STARTING, COUNTING, GAVE_UP = 0, 1, 2

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._last = (0, 0, self.STARTING)

    @classmethod
    def create(cls) -> Self:
        """Raises OSError."""
        fd = os.memfd_create("autocap-relay", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.pwrite(fd, bytes(cls._SLOT.size), 0)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        return cls(fd)

    def publish(self, count: int | None, t_ns: int) -> None:
        """Say that the counting is at that count, `None` before the first; t_ns: since when, where it is a new one."""
        before, before_ns, _ = self._last
        if count is None or (count == before and before_ns):
            count, t_ns = before, before_ns
        self._write(count, t_ns, self.COUNTING)

    def give_up(self) -> None:
        """Say that nothing is counted any more."""
        self._write(*self._last[:2], self.GAVE_UP)

    def _write(self, count: int, t_ns: int, state: int) -> None:
        if (count, t_ns, state) != self._last:
            os.pwrite(self.fd, self._SLOT.pack(count, t_ns, state, count ^ t_ns ^ state ^ self._SALT), 0)
            self._last = count, t_ns, state

    def read(self) -> tuple[int, int, int]:
        """Count, nanoseconds (0: nothing counted yet) and state, as last read whole."""
        count, t_ns, state, check = self._SLOT.unpack(os.pread(self.fd, self._SLOT.size, 0))
        if check == count ^ t_ns ^ state ^ self._SALT:
            self._last = count, t_ns, state
        return self._last
