"""Budgets that change with time: rows of time and watts, from a file or a command's output.

    time,watts
    2026-01-31T17:00:00+01:00,6000
    2026-01-31T19:00:00+01:00,8000

A time is ISO 8601 with a zone, or seconds from the beginning of the budget; all of one kind, ascending. A row holds
until the next one.
"""

import csv
import io
import math
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from autocap.config.values import shown
from autocap.errors import AutocapError
from autocap.runlog.input_file import MIB, InputRefused, read_input

COMMAND = "command:"
COLUMNS = ("time", "watts")
LEAST_W, MOST_W = 1.0, 1e9
_MOST_ROWS, _MOST_BYTES = 100_000, 8 * MIB
_COMMAND_S = 10.0


class ScheduleRefused(AutocapError):
    """A schedule cannot be read; the message says which line of it, and what it should hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """From that time on, seconds since 1970, there are so many watts."""

    wall_s: float
    watts: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """source: where it was read, for messages. steps: by time."""

    source: str
    steps: tuple[Step, ...]

    def at(self, wall_s: float) -> Step | None:
        """The row that holds at a time, seconds since 1970; `None` before the first."""
        past = [step for step in self.steps if step.wall_s <= wall_s]
        return past[-1] if past else None


def read_schedule(source: str, began_wall_s: float) -> Schedule:
    """What a source says now: a file, or `command:CMD`, whose output is read. began_wall_s: when the budget began,
    seconds since 1970. Raises ScheduleRefused."""
    if source.startswith(COMMAND):
        return parse(_output(source.removeprefix(COMMAND)), f"the output of {shown(source)}", began_wall_s)
    try:
        return parse(read_input(Path(source), _MOST_BYTES), source, began_wall_s)
    except OSError as error:
        raise ScheduleRefused(f"{source} cannot be read: {error.strerror}; {_WANTED}") from error
    except InputRefused as error:
        raise ScheduleRefused(str(error)) from error


def parse(data: bytes, source: str, began_wall_s: float) -> Schedule:
    """The schedule in a text. Raises ScheduleRefused."""
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), restval="")
        missing = [column for column in COLUMNS if column not in (reader.fieldnames or ())]
        if missing:
            raise ScheduleRefused(f"{source} lacks the column {missing[0]}; {_WANTED}")
        rows = [(reader.line_num, row) for row in reader]
    except (UnicodeDecodeError, csv.Error) as error:
        raise ScheduleRefused(f"{source} cannot be read: {error}; {_WANTED}") from error
    if not 0 < len(rows) <= _MOST_ROWS:
        raise ScheduleRefused(f"{source} holds {len(rows)} rows; give 1 to {_MOST_ROWS}")
    steps: list[Step] = []
    absolute: bool | None = None
    for line, row in rows:
        where = f"{source}, line {line}"
        seconds = _number(row, "time")
        if absolute is None:
            absolute = seconds is None
        if absolute is not (seconds is None):
            raise ScheduleRefused(f"{where}: a date among seconds, or seconds among dates; use one of them throughout")
        wall_s = _date(where, row["time"]) if seconds is None else began_wall_s + _from_start(where, seconds)
        if steps and wall_s <= steps[-1].wall_s:
            raise ScheduleRefused(f"{where}: time {shown(row['time'])} is not after the one before; put rows in order")
        steps.append(Step(wall_s=wall_s, watts=_watts(where, row)))
    return Schedule(source=source, steps=tuple(steps))


def _number(row: Mapping[str, str], column: str) -> float | None:
    try:
        value = float(row[column])
    except ValueError:
        return None
    return value if row[column].strip().isascii() else None


def _from_start(where: str, seconds: float) -> float:
    if not 0 <= seconds <= MOST_W:
        raise ScheduleRefused(f"{where}: time is {seconds:g} s; give seconds from 0 on, or a date with a zone")
    return seconds


def _date(where: str, text: str) -> float:
    try:
        found = datetime.fromisoformat(text.strip())
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise ScheduleRefused(
            f"{where}: time is {shown(text)}; give a date with a zone, such as 2026-01-31T17:00:00+01:00, or seconds "
            "from the beginning"
        )
    return found.timestamp()


def _watts(where: str, row: Mapping[str, str]) -> float:
    watts = _number(row, "watts")
    if watts is None or not math.isfinite(watts) or not LEAST_W <= watts <= MOST_W:
        raise ScheduleRefused(f"{where}: watts is {shown(row['watts'])}; give a number from {LEAST_W:g} to {MOST_W:g}")
    return watts


def _output(command: str) -> bytes:
    try:
        done = subprocess.run(
            ["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, timeout=_COMMAND_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise ScheduleRefused(f"{shown(command)} has not ended within {_COMMAND_S:g} s; {_WANTED}") from None
    except OSError as error:
        raise ScheduleRefused(f"{shown(command)} cannot be run: {error.strerror}; {_WANTED}") from error
    if done.returncode != 0:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        why = f": {shown(said[-1])}" if said else ""
        raise ScheduleRefused(f"{shown(command)} ended with status {done.returncode}{why}; {_WANTED}")
    return done.stdout[:_MOST_BYTES]


_WANTED = "give rows of time,watts under that heading"
