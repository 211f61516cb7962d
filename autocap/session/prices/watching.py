"""When a source is read again, and what there is to say of it then."""

import math
import os
from collections.abc import Callable
from dataclasses import dataclass

from autocap.session.prices.reading import FILE, read_source
from autocap.session.prices.series import Series, SourceRefused

LOOK_S = 1.0  # between two looks
_ASK_S, _RETRY_S = 300.0, 60.0  # between two questions to a program or service; after one that failed
_AGAIN_S = 3600.0  # a file that has not changed: what is passed on of it ends some day
Stamp = tuple[int, int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a source says, as it goes from one process to the other: a series, step by step, or what is wrong with it.

    at_s, values: as `Series.steps` has them. trouble: a sentence, "" for none.
    """

    kind: str
    trouble: str = ""
    currency: str | None = None
    at_s: tuple[float, ...] = ()
    values: tuple[float | None, ...] = ()
    until_s: float = 0.0

    @property
    def series(self) -> Series:
        """The series. Raises ValueError where there is none."""
        steps = tuple(zip(self.at_s, self.values, strict=True))
        if not steps:
            raise ValueError("nothing is said")
        return Series(kind=self.kind, currency=self.currency, steps=steps, until_s=self.until_s)


class Watched:
    """One source. read: says what it says at a time, or raises SourceRefused. stamp: of a file, another one once it has
    changed, `None` where it cannot be told."""

    def __init__(
        self,
        kind: str,
        source: str,
        read: Callable[[str, str, float], Series] = read_source,
        stamp: Callable[[str], Stamp | None] | None = None,
    ) -> None:
        self.kind, self._source, self._read = kind, source, read
        self._stamp = stamp or _stamp
        self._is_file = source.startswith(FILE)
        self._due_s = -math.inf
        self._seen: Stamp | None = None  # of what was read last
        self._last: Stamp | None = None  # at the last look
        self._said: Said | None = None

    def look(self, wall_s: float) -> Said | None:
        """What is new at a time, seconds since 1970; `None` for nothing. It may take as long as reading does."""
        if not (self._has_changed() or wall_s >= self._due_s):
            return None
        try:
            said, after_s = _saying(self._read(self._source, self.kind, wall_s).from_now(wall_s)), _ASK_S
        except SourceRefused as error:
            said, after_s = Said(kind=self.kind, trouble=str(error)), _RETRY_S
        except Exception as error:  # noqa: BLE001 - said in a sentence, and tried again
            said, after_s = Said(kind=self.kind, trouble=f"{self._source}: {type(error).__name__}: {error}"), _RETRY_S
        self._due_s = wall_s + (_AGAIN_S if self._is_file and not said.trouble else after_s)
        if said == self._said:
            return None
        self._said = said
        return said

    def _has_changed(self) -> bool:
        """Whether a file is another one, and has been so for a look: it may be being written."""
        if not self._is_file:
            return False
        now, before = self._stamp(self._source.removeprefix(FILE)), self._last
        self._last = now
        if now == self._seen or now != before:
            return False
        self._seen = now
        return True


def _saying(series: Series) -> Said:
    return Said(
        kind=series.kind,
        currency=series.currency,
        at_s=tuple(at_s for at_s, _ in series.steps),
        values=tuple(value for _, value in series.steps),
        until_s=series.until_s,
    )


def _stamp(path: str) -> Stamp | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
