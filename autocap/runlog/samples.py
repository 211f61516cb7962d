"""The columns of `samples.csv.gz` that pictures need, as arrays; a file that breaks off gives what it has."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocap.runlog.unzip import Unzipped

Floats = NDArray[np.float64]
_NAN = float("nan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """What was read, sample by sample; every array has shape (n,), NaN where nothing was read.

    t_s: seconds on the run's own clock, ascending. power_w, requested_w, enforced_w: draw and limits, watts, summed
    over devices. steps, step_t_s: iterations counted so far and when the last of them ended.
    """

    t_s: Floats
    power_w: Floats
    requested_w: Floats
    enforced_w: Floats
    steps: Floats
    step_t_s: Floats


def parse(data: bytes) -> Samples:
    """The samples in a run's gzipped CSV file, as far as it was written; none in an empty one."""
    lines = _lines(data)
    names = next(lines, "").split(",")
    wanted = {field: _places(names, field) for field in Samples.__dataclass_fields__}
    places = [place for some in wanted.values() for place in some]
    numbers = array("d")
    for line in lines:
        cells = line.split(",")
        if len(cells) == len(names):
            numbers.extend(_numbers([cells[place] for place in places]))
    table = np.array(numbers).reshape(-1, max(len(places), 1))
    columns = iter(np.split(table, np.cumsum([len(some) for some in wanted.values()])[:-1], axis=1))
    found = {field: _total(next(columns)) for field in wanted}
    t_s = found["t_s"]
    ascending = np.isfinite(t_s) & (t_s >= np.fmax.accumulate(t_s)) if len(t_s) else np.empty(0, dtype=np.bool_)
    return Samples(**{field: values[ascending] for field, values in found.items()})


def _lines(data: bytes) -> Iterator[str]:
    """Whole lines: one that a kill cut short is left out."""
    rest = b""
    for piece in Unzipped(data):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            yield line.decode("ascii", "replace")


def _places(names: Sequence[str], field: str) -> list[int]:
    """Where a field stands: once, or once for each device with its number behind it."""
    if field in names:
        return [names.index(field)]
    return [place for place, name in enumerate(names) if name.rpartition("_")[0] == field and name[-1].isdigit()]


def _numbers(cells: Sequence[str]) -> list[float]:
    """NaN for an empty cell, and for one that is no number."""
    try:
        return [float(cell) if cell else _NAN for cell in cells]
    except ValueError:
        return [_number(cell) for cell in cells]


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return _NAN


def _total(columns: Floats) -> Floats:
    """The sum over devices, shape (n,); unknown where one of them is, or there is none."""
    total: Floats = columns.sum(axis=1) if columns.shape[1] else np.full(len(columns), _NAN)
    return total
