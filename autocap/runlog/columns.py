"""The one reader of samples: CSV, plain or gzipped, as columns of numbers; a file that breaks off gives what it has."""

import codecs
import csv
import re
import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autocap.errors import RunDirectoryError
from autocap.runlog.directory import SAMPLES

Floats = NDArray[np.float64]

_MAGIC = b"\x1f\x8b"
_WBITS = 16 + zlib.MAX_WBITS  # zlib's way to say: with gzip's header and trailer
_CHUNK = 1 << 12  # bytes taken at once: damage costs what was unpacked together with it
_LINE_END = re.compile(r"\r\n|\r|\n")
_OF_PICTURES = re.compile(r"(t_s|power_w|steps|step_t_s)|(requested_w|enforced_w)(_\d+)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """header: all names. rows: how many there are. values: by name, shape (rows,), NaN for what is no number and in a
    row that is too short. cut_short: whether a gzip stream breaks off; its last line is left out then."""

    header: tuple[str, ...]
    rows: int
    values: dict[str, Floats]
    cut_short: bool

    def joined(self, name: str, join: np.ufunc = np.add) -> Floats | None:
        """A column, or else those of several devices (`energy_j_0`, …) joined; `None` where no number is in it."""
        several = [values for key, values in self.values.items() if key.rpartition("_")[0] == name]
        found = self.values.get(name, join.reduce(np.stack(several)) if several else None)
        return found if found is not None and np.isfinite(found).any() else None


def columns_of(data: bytes, wanted: re.Pattern[str]) -> Columns:
    """The columns whose whole name matches, the first of each name.

    Raises ValueError, saying why, where the data cannot be CSV; what is empty has no columns.
    """
    file = Unzipped(data)
    header: tuple[str, ...] = ()
    places: dict[str, int] = {}
    numbers, count = array("d"), 0
    try:
        for row in csv.reader(_lines(file)):
            if not row or not (header or "".join(row).strip()):
                continue
            if not header:
                if any("\0" in name for name in row):
                    raise ValueError("it is not text")
                header = tuple(name.strip() for name in row)
                places = {name: header.index(name) for name in header if wanted.fullmatch(name)}
                continue
            count += 1
            whole = len(row) >= len(header)
            numbers.extend(_numbers([row[place] for place in places.values()] if whole else [""] * len(places)))
    except csv.Error as error:
        raise ValueError(str(error)) from error
    table = np.array(numbers).reshape(count, len(places))
    values = {name: table[:, column] for column, name in enumerate(places)}
    return Columns(header=header, rows=count, values=values, cut_short=file.cut_short)


class Unzipped:
    """What a file holds, piece by piece: as it is, or, of gzip members, up to where they break off.

    cut_short: once all pieces were taken, whether they do.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.cut_short = False

    def __iter__(self) -> Iterator[bytes]:
        if not self._data or not _MAGIC.startswith(self._data[:2]):
            yield self._data
            return
        rest, member = memoryview(self._data), zlib.decompressobj(wbits=_WBITS)
        try:
            while rest:
                yield member.decompress(rest[:_CHUNK])
                rest = rest[min(_CHUNK, len(rest)) - len(member.unused_data) :]
                if member.eof and rest:
                    if bytes(rest[:2]) != _MAGIC:
                        break  # padding behind the last member
                    member = zlib.decompressobj(wbits=_WBITS)
        except zlib.error:
            self.cut_short = True
        else:
            self.cut_short = not member.eof


def _lines(file: Unzipped) -> Iterator[str]:
    decode, rest = codecs.getincrementaldecoder("utf-8-sig")("replace").decode, ""
    for piece in file:
        *whole, rest = _LINE_END.split(rest + decode(piece))
        yield from whole
    if not file.cut_short:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What pictures need of the samples, one by one; every array has shape (n,), NaN where nothing was read.

    t_s: seconds on the run's own clock, ascending. power_w, requested_w, enforced_w: draw and limits, watts, summed
    over devices. steps, step_t_s: iterations counted so far and when the last of them ended.
    """

    t_s: Floats
    power_w: Floats
    requested_w: Floats
    enforced_w: Floats
    steps: Floats
    step_t_s: Floats


def read_samples(run_dir: Path) -> Samples:
    """The samples of a run, as far as they were written; none where there is no such file.

    Raises RunDirectoryError where it cannot be read.
    """
    path = run_dir / SAMPLES
    try:
        return parse(path.read_bytes())
    except FileNotFoundError:
        return parse(b"")
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be read: {error.strerror}; check its permissions") from error


def parse(data: bytes) -> Samples:
    """The samples that a file holds; none in one that is no CSV."""
    try:
        columns = columns_of(data, _OF_PICTURES)
    except ValueError:
        columns = columns_of(b"", _OF_PICTURES)
    unknown = np.full(columns.rows, np.nan)
    found = {field: columns.joined(field) for field in Samples.__dataclass_fields__}
    known = {field: unknown if values is None else values for field, values in found.items()}
    t_s = known["t_s"]
    ascending = np.isfinite(t_s) & (t_s >= np.fmax.accumulate(t_s)) if len(t_s) else np.empty(0, dtype=np.bool_)
    return Samples(**{field: values[ascending] for field, values in known.items()})
