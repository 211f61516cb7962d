"""The one reader of samples: CSV, plain or gzipped, as columns of numbers; a file that breaks off gives what it has."""

import codecs
import csv
import functools
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autocap.errors import RunDirectoryError
from autocap.runlog.directory import SAMPLES
from autocap.runlog.input_file import MIB, pieces_of

Floats = NDArray[np.float64]

_MAGIC = b"\x1f\x8b"
_WBITS = 16 + zlib.MAX_WBITS  # zlib's way to say: with gzip's header and trailer
_CHUNK = 1 << 12  # bytes taken at once: damage costs what was unpacked together with it
_LINE_END = re.compile(r"\r\n|\r|\n")
_OF_PICTURES = re.compile(r"(t_s|power_w|steps|step_t_s)|(requested_w|enforced_w)(_\d+)?")
MOST_FILE = 512 * MIB
_MOST_TEXT, _MOST_RATIO = 16 * MIB, 16  # of what a file may unpack to, and how many times its size beyond that
_MOST_LINE = 1 << 18  # characters
_MOST_NAMES = 4096
_MOST_ROWS, _MOST_ROWS_THINNED = 750_000, 6_000_000  # 20 hours and a week, ten times a second
_MOST_NUMBERS, _MOST_NUMBERS_THINNED = 8_000_000, 1_500_000
_LATEST_S = 1e13  # of stamps: in milliseconds since 1970 they are ten times less
_MOST_OF = {"_w": 1e9, "_j": 1e18}  # by unit: a power station, and what it gives in thirty years
_MOST_OTHER, _LEAST = 1e15, 1e-9
BREAKS_OFF = "the gzip file breaks off: what comes before that is used"


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """header: all names. rows: how many there are. values: by name, shape (rows,), NaN for what is no number and in a
    row that is too short. cut_short: whether a gzip stream breaks off; its last line is left out then. notes: what else
    is left out, sentences."""

    header: tuple[str, ...]
    rows: int
    values: dict[str, Floats]
    cut_short: bool
    notes: tuple[str, ...] = ()

    def joined(self, name: str, join: np.ufunc = np.add) -> Floats | None:
        """A column, or else those of several devices (`energy_j_0`, …) joined; `None` where no number is in it."""
        several = [values for key, values in self.values.items() if key.rpartition("_")[0] == name]
        found = self.values.get(name, functools.reduce(join, several) if several else None)
        return found if found is not None and np.isfinite(found).any() else None


def columns_of(pieces: Iterable[bytes], wanted: re.Pattern[str], *, thinned: bool = False) -> Columns:
    """The columns whose whole name matches, the first of each name. pieces: what the file holds.

    Of what is too large the beginning is kept, or, thinned, every other row of it, every fourth, and so on.
    Raises ValueError, saying why without a word of the file's own, where the data cannot be CSV; what is empty has no
    columns.
    """
    file = Unzipped(pieces)
    lines = _Lines(file, _MOST_ROWS_THINNED if thinned else _MOST_ROWS)
    table = _Table(wanted, thinned=thinned)
    try:
        for row in csv.reader(lines):
            lines.row_ended = True
            if row and (table.header or "".join(row).strip()):
                table.take(row)
                lines.every = table.every
                if table.full:
                    break
    except csv.Error:
        raise ValueError("its cells cannot be told apart") from None
    notes = []
    if table.every > 1:
        notes.append(f"the file is large: about one of {table.every} rows is used")
    if file.too_large or lines.too_many or table.full:
        notes.append(f"the file is too large: what comes after its first {lines.taken} lines is left out")
    return Columns(
        header=table.header, rows=table.rows, values=table.columns(), cut_short=file.cut_short, notes=tuple(notes)
    )


class _Table:
    """Rows become numbers here, as many as are kept: of more the first, or, thinned, one of so many (`every`).

    full: whether there is no more room."""

    def __init__(self, wanted: re.Pattern[str], *, thinned: bool) -> None:
        self.header: tuple[str, ...] = ()
        self.rows = 0
        self.every = 1
        self.full = False
        self._wanted, self._thinned = wanted, thinned
        self._most = _MOST_NUMBERS_THINNED if thinned else _MOST_NUMBERS
        self._places: dict[str, int] = {}
        self._numbers = array("d")

    def take(self, row: list[str]) -> None:
        """Add a row. Raises ValueError for a header that is none."""
        if not self.header:
            self._name(row)
            return
        if len(self._numbers) + len(self._places) > self._most:
            if not self._thinned:
                self.full = True
                return
            self._numbers = array("d", self._array()[::2].tobytes())
            self.rows, self.every = -(-self.rows // 2), 2 * self.every
        whole = len(row) >= len(self.header)
        self._numbers.extend(_numbers([row[place] if whole else "" for place in self._places.values()]))
        self.rows += 1

    def columns(self) -> dict[str, Floats]:
        table = self._array()
        return {name: _measured(name, table[:, column]) for column, name in enumerate(self._places)}

    def _array(self) -> Floats:
        return np.frombuffer(self._numbers, dtype=np.float64).reshape(self.rows, len(self._places))

    def _name(self, row: list[str]) -> None:
        if any("\0" in name for name in row):
            raise ValueError("it is not text")
        if len(row) > _MOST_NAMES:
            raise ValueError(f"it has more than {_MOST_NAMES} columns")
        self.header = tuple(name.strip() for name in row)
        for place, name in enumerate(self.header):
            if self._wanted.fullmatch(name):
                self._places.setdefault(name, place)


class Unzipped:
    """What a file holds, piece by piece: as it is, or, of gzip members, up to where they break off.

    cut_short: once all pieces were taken, whether they do. too_large: whether more than is likely of a file of that
    size was in it, and is left out.
    """

    def __init__(self, pieces: Iterable[bytes]) -> None:
        self._pieces = iter(pieces)
        self.cut_short = False
        self.too_large = False

    def __iter__(self) -> Iterator[bytes]:
        first = next(self._pieces, b"")
        while len(first) < 2 and (more := next(self._pieces, b"")):
            first += more
        pieces = chain([first], self._pieces)
        if not first or not _MAGIC.startswith(first[:2]):
            yield from pieces
            return
        left = _MOST_TEXT
        member = zlib.decompressobj(wbits=_WBITS)
        chunks = (piece[start : start + _CHUNK] for piece in pieces for start in range(0, len(piece), _CHUNK))
        rest = b""
        try:
            while rest or (rest := next(chunks, b"")):
                if member.eof:
                    rest = rest if len(rest) > 1 else rest + next(chunks, b"")
                    if rest[:2] != _MAGIC:
                        break  # padding behind the last member
                    member = zlib.decompressobj(wbits=_WBITS)
                text = member.decompress(rest)
                left += _MOST_RATIO * (len(rest) - len(member.unused_data)) - len(text)
                rest = member.unused_data
                if left < 0:
                    self.too_large = True
                    return
                yield text
        except zlib.error:
            self.cut_short = True
        else:
            self.cut_short = not member.eof


class _Lines:
    """The lines of a file as text, without their ends: all, or one of so many (`every`).

    row_ended: to be set after each row, which quotes may stretch over lines. taken: lines so far. too_many: whether
    there are more than may be taken.
    """

    def __init__(self, file: Unzipped, most: int) -> None:
        self._file, self._most = file, most
        self.every = 1
        self.row_ended = True
        self.taken = 0
        self.too_many = False

    def __iter__(self) -> Iterator[str]:
        decode, rest = codecs.getincrementaldecoder("utf-8-sig")("replace").decode, ""
        for piece in self._file:
            *whole, rest = _LINE_END.split(rest + decode(piece))
            if max(map(len, whole), default=0) > _MOST_LINE or len(rest) > _MOST_LINE or not self.row_ended:
                raise ValueError("a row of it has no end")
            left = self._most - self.taken
            self.too_many = len(whole) > left
            if whole:
                self.row_ended = False
                self.taken += min(len(whole), left)
                yield from whole[: left : self.every]
            if self.too_many:
                return
        if not (self._file.cut_short or self._file.too_large):
            yield rest


def _numbers(cells: list[str]) -> list[float]:
    try:
        return [float(cell or "nan") for cell in cells]
    except ValueError:
        return [_number(cell) for cell in cells]


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return np.nan


def _measured(name: str, values: Floats) -> Floats:
    """A column without what no device can have said: NaN is there instead, and 0 for what is as good as none."""
    stem = name.rstrip("0123456789").rstrip("_")
    low, high = (-_LATEST_S, _LATEST_S) if stem.endswith("t_s") else (0.0, _MOST_OF.get(stem[-2:], _MOST_OTHER))
    with np.errstate(invalid="ignore"):
        possible = np.where((values >= low) & (values <= high), values, np.nan)
    return np.where(np.abs(possible) < _LEAST, 0.0, possible)


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What pictures need of the samples, one by one; every array has shape (n,), NaN where nothing was read.

    t_s: seconds on the run's own clock, ascending. power_w, requested_w, enforced_w: draw and limits, watts, summed
    over devices. steps, step_t_s: iterations counted so far and when the last of them ended. notes: what of a file that
    is too large is not among them, sentences.
    """

    t_s: Floats
    power_w: Floats
    requested_w: Floats
    enforced_w: Floats
    steps: Floats
    step_t_s: Floats
    notes: tuple[str, ...] = ()


_FIELDS = tuple(name for name in Samples.__dataclass_fields__ if name != "notes")


def read_samples(run_dir: Path) -> Samples:
    """The samples of a run, as far as they were written; none where there is no such file.

    Raises RunDirectoryError where it cannot be read, InputRefused where it is no file or beyond all measure.
    """
    path = run_dir / SAMPLES
    try:
        return parse(pieces_of(path, MOST_FILE))
    except FileNotFoundError:
        return parse([])
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be read: {error.strerror}; check its permissions") from error


def parse(pieces: Iterable[bytes]) -> Samples:
    """The samples that a file holds, given piece by piece; none in one that is no CSV."""
    try:
        columns = columns_of(pieces, _OF_PICTURES, thinned=True)
    except ValueError:
        columns = columns_of([], _OF_PICTURES)
    unknown = np.full(columns.rows, np.nan)
    found = {field: columns.joined(field) for field in _FIELDS}
    known = {field: unknown if values is None else values for field, values in found.items()}
    t_s = known["t_s"]
    ascending = np.isfinite(t_s) & (t_s >= np.fmax.accumulate(t_s)) if len(t_s) else np.empty(0, dtype=np.bool_)
    return Samples(**{field: values[ascending] for field, values in known.items()}, notes=columns.notes)
