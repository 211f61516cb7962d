"""The columns of `samples.csv.gz` that pictures need, as arrays; a file that breaks off gives what it has."""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocap.unzip import Unzipped

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
    wanted = [_places(names, field) for field in Samples.__dataclass_fields__]
    columns = [array("d") for _ in wanted]
    for line in lines:
        cells = line.split(",")
        if len(cells) == len(names):
            for column, places in zip(columns, wanted, strict=True):
                column.append(_total(cells, places))
    arrays = [np.array(column) for column in columns]
    ascending = np.isfinite(arrays[0]) & (arrays[0] >= np.fmax.accumulate(arrays[0])) if len(arrays[0]) else slice(0)
    t_s, power_w, requested_w, enforced_w, steps, step_t_s = (values[ascending] for values in arrays)
    return Samples(
        t_s=t_s, power_w=power_w, requested_w=requested_w, enforced_w=enforced_w, steps=steps, step_t_s=step_t_s
    )


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


def _total(cells: Sequence[str], places: Sequence[int]) -> float:
    """The sum over devices; unknown where one of them is, or is no number."""
    try:
        return sum([float(cells[place] or _NAN) for place in places]) if places else _NAN
    except ValueError:
        return _NAN
