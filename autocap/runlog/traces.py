"""Reading a recorded power trace: CSV, plain or gzipped, from a logger of the user's or from a run directory.

Columns `t_s` and `power_w` are needed. Those of our own `samples.csv.gz` are used where they are there: `read_t_s` is
the reading's own stamp, `energy_j` and `utilisation` are second views of the job. Several devices have `power_w` for
their sum and the others numbered (`read_t_s_0`, …). All other columns are ignored.
"""

import re
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autocap.errors import AutocapError
from autocap.runlog.columns import BREAKS_OFF, MOST_FILE, Columns, Floats, columns_of
from autocap.runlog.input_file import pieces_of

Witness = tuple[Floats, Floats]

_FEWEST_READINGS = 5
_FEW_LEVELS = 0.2  # distinct values per change; under it values recur, so their changes say nothing of the sensor
_MOST_WINDOWS = 10_000  # a week of minutes
_MOST_UPDATES = 1e7  # a span beyond that many updates is a stray stamp, not a trace
_LEAST_W = 1e-3  # less is no draw of anything
_LEAST_APART_S = 1e-6  # readings; no sensor is as fast
_WANTED = re.compile(r"t_s|power_w|(read_t_s|energy_j|utilisation)(_\d+)?")


class TraceError(AutocapError):
    """A trace cannot be read, or holds too little to look at; the message says which column or row is at fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The fresh readings of a trace, or of a part of it.

    start_s, end_s: the stretch it covers. t_s, power_w: each reading once, stamps ascending, shape (n,). update_s: how
    often the sensor gave a fresh one. counted: mean power between two moves of the energy counter, as (stamps,
    values). witnesses: other signals of the same job, likewise.
    notes: what was left out, and why.
    """

    start_s: float
    end_s: float
    t_s: Floats
    power_w: Floats
    update_s: float
    counted: Witness | None = None
    witnesses: tuple[Witness, ...] = ()
    notes: tuple[str, ...] = ()

    def split(self, window_s: float) -> list["Trace"]:
        """Consecutive parts of window_s seconds; the last may be shorter, and swallows a rest of a few readings.

        Raises TraceError for windows shorter than the time between readings, and for too many of them.
        """
        if window_s < self.update_s:
            raise TraceError(
                f"a window of {window_s:g} s is shorter than the {self.update_s:.3g} s between readings; "
                f"pass --window {50 * self.update_s:.3g} or more"
            )
        span_s = self.end_s - self.start_s
        count = max(1, int(np.ceil((span_s - _FEWEST_READINGS * self.update_s) / window_s)))
        if count > _MOST_WINDOWS:
            raise TraceError(
                f"windows of {window_s:g} s cut the trace's {span_s:.0f} s into {count} parts; at most {_MOST_WINDOWS} "
                f"are looked at, pass --window {1.01 * span_s / _MOST_WINDOWS:.3g} or more"
            )
        bounds_s = [self.start_s + window_s * number for number in range(count)] + [self.end_s]
        return [self._between(start_s, end_s) for start_s, end_s in pairwise(bounds_s)]

    def _between(self, start_s: float, end_s: float) -> "Trace":
        before_s = np.nextafter(end_s, np.inf) if end_s == self.end_s else end_s  # the last reading is in the last part

        def part(t_s: Floats, values: Floats) -> Witness:
            inside = (t_s >= start_s) & (t_s < before_s)
            return t_s[inside], values[inside]

        t_s, power_w = part(self.t_s, self.power_w)
        counted = None if self.counted is None else part(*self.counted)
        witnesses = tuple(part(*witness) for witness in self.witnesses)
        return replace(
            self, start_s=start_s, end_s=end_s, t_s=t_s, power_w=power_w, counted=counted, witnesses=witnesses
        )


def read(path: Path) -> Trace:
    """The trace in a file. Rows without a number above 0 W are gaps; a gzip file may end early, as a killed run's does.

    Raises TraceError where there is no such file, no CSV, no column t_s or power_w, or hardly a reading.
    """
    columns = _columns(path)
    rows, t_s, power_w = columns.rows, columns.values["t_s"], columns.values["power_w"]
    own = columns.joined("read_t_s", np.maximum)
    stamps_s = t_s if own is None else own
    usable = np.isfinite(stamps_s) & np.isfinite(power_w) & (power_w >= _LEAST_W)
    stamps_s, watts = stamps_s[usable], power_w[usable]
    late = stamps_s > np.concatenate(([-np.inf], np.maximum.accumulate(stamps_s)[:-1]))
    repeats = np.zeros(len(late), dtype=np.bool_)
    if own is not None:  # polled faster than the sensor updates: the same reading again, under the same stamp
        repeats[1:] = stamps_s[1:] == stamps_s[:-1]
    backward = int(np.sum(~late & ~repeats))
    if backward > len(late) / 2:
        raise TraceError(f"{path}: {backward} of {rows} stamps do not increase; sort the rows by t_s, in seconds")
    stamps_s, watts = stamps_s[late], watts[late]
    if len(stamps_s) < _FEWEST_READINGS:
        raise TraceError(
            f"{path} holds {len(stamps_s)} readings above 0 W in {rows} rows; at least {_FEWEST_READINGS} are needed, "
            "and some dozens to find a period"
        )
    update_s, fresh = updates(stamps_s, watts) if own is None else (_middle(np.diff(stamps_s)), slice(None))
    stamps_s, watts = stamps_s[fresh], watts[fresh]
    if update_s < _LEAST_APART_S:
        raise TraceError(f"{path}: stamps are {update_s:.3g} s apart; t_s must be in seconds")
    span_s = float(stamps_s[-1] - stamps_s[0])
    if span_s > _MOST_UPDATES * update_s:
        raise TraceError(
            f"{path}: stamps run over {span_s:.3g} s with a reading every {update_s:.3g} s; cut the trace at its gaps"
        )
    return Trace(
        start_s=float(stamps_s[0]),
        end_s=float(stamps_s[-1]),
        t_s=stamps_s,
        power_w=watts,
        update_s=update_s,
        counted=None if (polled := _polled(columns, "energy_j")) is None else counted(*polled),
        witnesses=() if (utilisation := _polled(columns, "utilisation")) is None else (utilisation,),
        notes=_notes(rows, int(np.sum(~usable)), backward, columns),
    )


def _columns(path: Path) -> Columns:
    """The columns that a trace is made of."""
    try:
        columns = columns_of(pieces_of(path, MOST_FILE), _WANTED)
    except FileNotFoundError:
        raise TraceError(f"there is no file {path}; pass a CSV file with columns t_s,power_w") from None
    except IsADirectoryError:
        raise TraceError(f"{path} is a directory; pass a file, such as {path / 'samples.csv.gz'}") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}; check the path and its permissions") from error
    except ValueError as error:
        raise TraceError(f"{path} is not CSV: {error}; pass a CSV file, which may be gzipped") from error
    if not columns.header:
        if columns.cut_short:
            raise TraceError(f"{path} is a damaged gzip file: not one line can be read from it")
        raise TraceError(f"{path} is empty; pass a CSV file with columns t_s,power_w")
    missing = [name for name in ("t_s", "power_w") if name not in columns.values]
    if missing:
        raise TraceError(
            f"{path} has no column {' and no column '.join(missing)}; rename those that hold the time in seconds and "
            "the power in watts to t_s and power_w"
        )
    return columns


def updates(t_s: Floats, watts: Floats) -> tuple[float, NDArray[np.intp] | slice]:
    """How often readings without a stamp of their own are fresh, and which rows are: those that changed, and those
    that came an update later without a change.
    """
    rows_s = float(np.median(np.diff(t_s)))
    changed = np.flatnonzero(np.diff(watts)) + 1
    if len(changed) < _FEWEST_READINGS or len(np.unique(watts)) < _FEW_LEVELS * len(changed):
        return rows_s, slice(None)
    update_s = _middle(np.diff(t_s[changed]))
    # Between two changes that are several updates apart the readings in the middle showed the same again. A change that
    # is only somewhat late leaves no room for one: rows before it are stale, under stamps of their own.
    firsts = np.concatenate(([0], changed))
    spans_s = np.diff(np.append(t_s[firsts], t_s[-1] + update_s))
    span = np.searchsorted(firsts, np.arange(len(t_s)), side="right") - 1
    number = np.floor((t_s - t_s[firsts][span] + 0.5 * rows_s) / update_s)
    first = np.concatenate(([True], (np.diff(span) > 0) | (np.diff(number) > 0)))
    return update_s, np.flatnonzero(first & (number <= np.maximum(np.round(spans_s / update_s) - 1, 0)[span]))


def _middle(values: Floats) -> float:
    """The mean of the middle half: unlike a median, it does not fall onto one of two polling intervals."""
    quarter = len(values) // 4
    return float(np.mean(np.sort(values)[quarter : len(values) - quarter]))


def _polled(columns: Columns, name: str) -> Witness | None:
    """A column's known values, each at the time it was polled."""
    t_s, values = columns.values["t_s"], columns.joined(name)
    if values is None:
        return None
    known = np.isfinite(t_s) & np.isfinite(values)
    return t_s[known], values[known]


def counted(t_s: Floats, energy_j: Floats) -> Witness:
    """Mean power between two moves of an energy counter, at the time of the later one.

    t_s, energy_j: the counter as it was polled, shape (n,).
    """
    moved = np.flatnonzero(np.diff(energy_j) > 0) + 1
    steps_s, steps_j = np.diff(t_s[moved]), np.diff(energy_j[moved])
    forward = (steps_s > 0) & (steps_j > 0)
    return t_s[moved][1:][forward], steps_j[forward] / steps_s[forward]


def _notes(rows: int, gaps: int, backward: int, columns: Columns) -> tuple[str, ...]:
    notes = []
    if gaps:
        notes.append(f"{gaps} of {rows} rows hold no reading above 0 W: they are gaps")
    if backward:
        notes.append(f"{backward} of {rows} rows are left out: their stamps do not increase")
    if columns.cut_short:
        notes.append(BREAKS_OFF)
    return (*notes, *columns.notes)
