"""Jobs and curves of a plan, as files: CSV with a row a job, and CSV with a row a point of a curve.

name,arrive_s,work_s,devices,curve,weight        weight may be left out
curve,cap_w,power_w,time_s                       as `autocap sweep` and the benchmarks write them
"""

import csv
import io
import math
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import numpy as np

from autocap.config.values import shown
from autocap.devices.model import profile_names, profiles
from autocap.errors import UsageError
from autocap.plugins.fleet.budget.plan import PlannedCurve, PlannedJob
from autocap.plugins.fleet.budget.shares import JobCurve
from autocap.runlog.input_file import MIB, InputRefused, read_input
from autocap.text import did_you_mean, printable

JOB_COLUMNS = ("name", "arrive_s", "work_s", "devices", "curve")
CURVE_COLUMNS = ("curve", "cap_w", "power_w", "time_s")
MOST_JOBS = 1_000_000
_MOST_BYTES = 64 * MIB
_MOST_NUMBER = 1e9
_POINTS = 100  # of a published curve


def read_jobs(path: Path, curves: Mapping[str, PlannedCurve]) -> list[PlannedJob]:
    """The jobs of a file. curves: those that they may name. Raises UsageError, with the line, for what is no job."""
    jobs = []
    for line, row in _rows(path, JOB_COLUMNS):
        if row["curve"] not in curves:
            meant = did_you_mean(row["curve"], curves)
            raise UsageError(
                f"{path}, line {line}: there is no curve {shown(row['curve'])}{meant}; give one of "
                f"{', '.join(curves)}, or more of them with --curves"
            )
        devices = _number(path, line, row, "devices", 1)
        if devices != int(devices):
            raise UsageError(f"{path}, line {line}: devices is {devices:g}; give a whole number")
        jobs.append(
            PlannedJob(
                name=printable(row["name"]),
                arrive_s=_number(path, line, row, "arrive_s", 0),
                work_s=_number(path, line, row, "work_s", 1e-3),
                devices=int(devices),
                curve=row["curve"],
                weight=_number(path, line, row, "weight", 1e-6) if row.get("weight") else 1.0,
            )
        )
        if len(jobs) > MOST_JOBS:
            raise UsageError(f"{path} holds more than {MOST_JOBS} jobs, the most that are planned with")
    if not jobs:
        raise UsageError(f"{path} holds no job; give a row a job below the line {','.join(JOB_COLUMNS)}")
    return jobs


def read_curves(path: Path) -> dict[str, PlannedCurve]:
    """The curves of a file, by name. What counts as a job's baseline is its highest cap. Raises UsageError."""
    points: dict[str, list[tuple[float, float, float]]] = {}
    for line, row in _rows(path, CURVE_COLUMNS):
        values = (_number(path, line, row, column, 1e-6) for column in CURVE_COLUMNS[1:])
        points.setdefault(printable(row["curve"]), []).append(tuple(values))  # type: ignore[arg-type]  # three of them
    made = {}
    for name, rows in points.items():
        caps_w, powers_w, times_s = (np.array(column) for column in zip(*sorted(rows), strict=True))
        if len(caps_w) < 2 or np.any(np.diff(caps_w) == 0):
            raise UsageError(f"{path}: curve {shown(name)} needs two different caps or more, each once")
        made[name] = _planned(caps_w, powers_w, times_s)
    return made


def published() -> dict[str, PlannedCurve]:
    """The published curves that come with autocap, by the names of their profiles; the baseline is the default cap."""
    made = {}
    for name in profile_names():
        profile = profiles.load(name)
        caps_w = np.linspace(profile.cap_range.min_w, profile.cap_range.default_w, _POINTS)
        made[name] = _planned(caps_w, profile.power_w(caps_w), profile.time_s(caps_w))
    return made


def _planned(
    caps_w: "np.ndarray[tuple[int], np.dtype[np.float64]]",
    powers_w: "np.ndarray[tuple[int], np.dtype[np.float64]]",
    times_s: "np.ndarray[tuple[int], np.dtype[np.float64]]",
) -> PlannedCurve:
    energy = powers_w * times_s
    curve = JobCurve(caps_w=caps_w, slowdown=times_s / times_s[-1] - 1, energy=energy / energy[-1])
    return PlannedCurve(curve=curve, draw_w=float(powers_w[-1]))


def _rows(path: Path, columns: Iterable[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """The rows of a file with the numbers of their lines. Raises UsageError where a column is missing."""
    try:
        text = read_input(path, _MOST_BYTES).decode("utf-8-sig")
        reader = csv.DictReader(io.StringIO(text, newline=""), restval="")
        missing = [column for column in columns if column not in (reader.fieldnames or ())]
        if missing:
            raise UsageError(f"{path} lacks the column {missing[0]}; it needs {', '.join(columns)}")
        for row in reader:
            yield reader.line_num, {key: value for key, value in row.items() if isinstance(key, str)}
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise UsageError(f"{path} cannot be read: {reason}; pass a CSV of {', '.join(columns)}") from error
    except InputRefused as error:
        raise UsageError(str(error)) from error


def _number(path: Path, line: int, row: Mapping[str, str], column: str, least: float) -> float:
    try:
        value = float(row[column])
    except ValueError:
        value = math.nan
    if not least <= value <= _MOST_NUMBER:
        raise UsageError(
            f"{path}, line {line}: {column} is {shown(row[column])}; give a number from {least:g} to {_MOST_NUMBER:g}"
        )
    return value
