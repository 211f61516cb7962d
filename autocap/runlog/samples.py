"""The columns of `samples.csv.gz` that pictures need, as arrays."""

import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from autocap.errors import RunDirectoryError
from autocap.runlog.columns import Floats, columns_of
from autocap.runlog.directory import SAMPLES

_WANTED = re.compile(r"(t_s|power_w|steps|step_t_s)|(requested_w|enforced_w)(_\d+)?")


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
        columns = columns_of(data, _WANTED)
    except ValueError:
        columns = columns_of(b"", _WANTED)
    unknown = np.full(columns.rows, np.nan)
    found = {field: columns.joined(field) for field in Samples.__dataclass_fields__}
    known = {field: unknown if values is None else values for field, values in found.items()}
    t_s = known["t_s"]
    ascending = np.isfinite(t_s) & (t_s >= np.fmax.accumulate(t_s)) if len(t_s) else np.empty(0, dtype=np.bool_)
    return Samples(**{field: values[ascending] for field, values in known.items()})
