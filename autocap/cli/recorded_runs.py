"""The runs that lie in a directory: which there are, and what each came to."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from autocap.errors import AutocapError, RunDirectoryError
from autocap.events import Event, record_kind
from autocap.job import registry
from autocap.reports.run_list import (
    FINISHED,
    KILLED,
    RUNNING,
    SWEEP,
    UNKNOWN,
    PastRun,
    ResultRead,
    moment,
    past_run,
    read_result,
    why_none_kept,
)
from autocap.reports.summary.summarise import UNFINISHED
from autocap.runlog.directory import RESULT
from autocap.runlog.event_log import EVENTS, first_event, is_being_written, read_events
from autocap.runlog.input_file import MIB, InputRefused, read_input
from autocap.wire.json_lines import parse

if TYPE_CHECKING:
    from autocap.reports.rendering import Presentation

_MOST = 20_000  # directories
_MOST_READ = 64 * MIB  # of each: one report may take its time, a list of thousands may not
_LONG_AGO = float("-inf")


def presentation(directory: Path, events: Sequence[Event]) -> "Presentation":
    """The report on a run, a sweep or what a plug-in records. Raises RunDirectoryError."""
    from autocap.reports.rendering import present_run
    from autocap.sweep.document import present_sweep

    kind = record_kind(events)
    if kind in registry.ours("records"):
        present: Callable[[Path, Sequence[Event]], Presentation] = registry.load("records", kind)
        return present(directory, events)
    return present_sweep(events) if kind == "sweep" else present_run(directory, events)


def runs_in(place: Path) -> list[Path]:
    """The directories of runs there, those last by name first; whatever holds no run is left out, and none there is an
    empty list. Raises RunDirectoryError where it cannot be read, holds a run itself, or too much."""
    try:
        names = sorted((name for name in os.listdir(place) if not name.startswith(".")), reverse=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunDirectoryError(
            f"{place} cannot be read: {error.strerror}; pass a directory with runs in it"
        ) from error
    if EVENTS in names:
        raise RunDirectoryError(f"{place} is a run, no directory of runs; show it with `autocap report {place}`")
    found = [place / name for name in names if _may_be_run(place / name)]
    if len(found) > _MOST:
        raise RunDirectoryError(f"{place} holds {len(found)} runs, and at most {_MOST} are listed; move some away")
    return found


def latest(place: Path) -> Path:
    """The run there that began last. Raises RunDirectoryError where there is none whose start is on record."""
    began = [(when, directory) for directory in runs_in(place) if (when := _began_s(directory)) > _LONG_AGO]
    if not began:
        raise RunDirectoryError(
            f"there is no run in {place}; pass a run directory, or make one with `autocap run -- CMD …`"
        )
    return max(began)[1]


def past_runs(place: Path) -> list[PastRun]:
    """What each run there came to, the latest first; those that cannot be read stand last. Raises as `runs_in`."""
    found = [_past_run(directory) for directory in runs_in(place)]
    return sorted(found, key=lambda run: (_seconds(run.started_at), run.directory), reverse=True)


def _past_run(directory: Path) -> PastRun:
    try:
        written = is_being_written(directory)
        result = None if written else _result(directory)
        events: list[Event] | None = None
        if result is None or result.mode == SWEEP:  # a sweep may have gone on since
            events = read_events(directory, _unsaid, _MOST_READ)
            result = read_result(presentation(directory, events).result)
        why = None
        if result.chosen is None and result.mode != SWEEP and result.device is not None:
            why = why_none_kept(events if events is not None else read_events(directory, _unsaid, _MOST_READ))
    except OSError as error:
        return PastRun(directory=str(directory), trouble=error.strerror or str(error))
    except AutocapError as error:
        return PastRun(directory=str(directory), trouble=str(error))
    except Exception as error:  # noqa: BLE001 - whatever one of them holds, the others are shown
        return PastRun(directory=str(directory), trouble=f"internal fault: {type(error).__name__}: {error}")
    ended = UNKNOWN if written is None else KILLED
    state = RUNNING if written else ended if result.ended_because == UNFINISHED else FINISHED
    return past_run(str(directory), result, state, why)


def _result(directory: Path) -> ResultRead | None:
    """What `result.json` says; `None` where it says nothing that can be used: the events do."""
    try:
        return read_result(parse(read_input(directory / RESULT, _MOST_READ), _MOST_READ))
    except (OSError, InputRefused, ValueError):
        return None


def _may_be_run(directory: Path) -> bool:
    """Whether it holds a log, or that cannot be told."""
    try:
        os.lstat(directory / EVENTS)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # which its row will say
        return True
    return True


def _began_s(directory: Path) -> float:
    try:
        return _seconds(getattr(first_event(directory), "started_at", None))
    except (OSError, AutocapError):
        return _LONG_AGO


def _seconds(started_at: str | None) -> float:
    began = moment(started_at)
    return _LONG_AGO if began is None else began.timestamp()


def _unsaid(damage: str) -> None:
    """In a list of many runs the damage of one is no matter; its report says it."""
