"""Budgets that change with time: rows of time and watts, from a file or a command's output.

    time,watts
    2026-01-31T17:00:00+01:00,6000
    2026-01-31T19:00:00+01:00,8000

A time is ISO 8601 with a zone, or seconds from the beginning of the budget; all of one kind, ascending. A row holds
until the next one.
"""

import math
from dataclasses import dataclass
from pathlib import Path

from autocap.config.values import shown
from autocap.errors import AutocapError
from autocap.job.supervised import CommandFailed, output_of
from autocap.runlog.input_file import MIB, InputRefused, InputRow, moment, number, read_input, read_rows

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
    try:
        if source.startswith(COMMAND):
            said = output_of(source.removeprefix(COMMAND), within_s=_COMMAND_S, most_bytes=_MOST_BYTES)
            return parse(said, f"the output of {shown(source)}", began_wall_s)
        return parse(read_input(Path(source), _MOST_BYTES), source, began_wall_s)
    except CommandFailed as error:
        raise ScheduleRefused(f"{error}; {_WANTED}") from error
    except OSError as error:
        raise ScheduleRefused(f"{source} cannot be read: {error.strerror}; {_WANTED}") from error
    except InputRefused as error:
        raise ScheduleRefused(str(error)) from error


def parse(data: bytes, source: str, began_wall_s: float) -> Schedule:
    """The schedule in a text. Raises ScheduleRefused."""
    try:
        _, rows = read_rows(data, source, COLUMNS, _MOST_ROWS, _WANTED)
    except InputRefused as error:
        raise ScheduleRefused(str(error)) from error
    steps: list[Step] = []
    absolute: bool | None = None
    for row in rows:
        seconds = number(row.cells["time"])
        if absolute is None:
            absolute = seconds is None
        if absolute is not (seconds is None):
            raise ScheduleRefused(
                f"{row.where}: a date among seconds, or seconds among dates; use one of them throughout"
            )
        wall_s = _date(row) if seconds is None else began_wall_s + _from_start(row, seconds)
        if steps and wall_s <= steps[-1].wall_s:
            raise ScheduleRefused(
                f"{row.where}: time {shown(row.cells['time'])} is not after the one before; put rows in order"
            )
        steps.append(Step(wall_s=wall_s, watts=_watts(row)))
    return Schedule(source=source, steps=tuple(steps))


def _from_start(row: InputRow, seconds: float) -> float:
    if not 0 <= seconds <= MOST_W:
        raise ScheduleRefused(f"{row.where}: time is {seconds:g} s; give seconds from 0 on, or a date with a zone")
    return seconds


def _date(row: InputRow) -> float:
    found_s = moment(row.cells["time"])
    if found_s is None:
        raise ScheduleRefused(
            f"{row.where}: time is {shown(row.cells['time'])}; give a date with a zone, such as "
            "2026-01-31T17:00:00+01:00, or seconds from the beginning"
        )
    return found_s


def _watts(row: InputRow) -> float:
    watts = number(row.cells["watts"])
    if watts is None or not math.isfinite(watts) or not LEAST_W <= watts <= MOST_W:
        raise ScheduleRefused(
            f"{row.where}: watts is {shown(row.cells['watts'])}; give a number from {LEAST_W:g} to {MOST_W:g}"
        )
    return watts


_WANTED = "give rows of time,watts under that heading"
