"""`events.jsonl`: events as lines, read as a whole or followed while another process adds to them.

The process that writes the log holds a lock on it, which distinguishes a run that goes on from one that was killed: the
kernel releases the lock when its holder dies, also on another machine of a shared file system.
"""

import fcntl
import functools
import logging
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from io import FileIO
from itertools import pairwise
from pathlib import Path

from autocap.errors import RunDirectoryError
from autocap.events import (
    KINDS,
    CapSet,
    DeviceFound,
    Event,
    PerGpuDecided,
    PerGpuTried,
    PluginEvent,
    RunEnded,
    SettingsTaken,
)
from autocap.events.sweep import FinishedRun, GpuSet, SweepPlan, Used
from autocap.job import registry
from autocap.knobs import POWER_LIMIT, Knob, as_read, as_written, has_settings
from autocap.records import GpuEnergy, Measurement, Prediction
from autocap.runlog.input_file import MIB, InputRefused, open_input, pieces_of
from autocap.text import printable, printable_json
from autocap.wire.codec import decode, encode
from autocap.wire.json_lines import parse
from autocap.wire.lines import Lines

_LARGEST = {"_s": 1e10, "_w": 1e9, "_j": 1e18}  # by unit: three centuries, a power station, and its year
_LARGEST_OTHER = 1e15
_LEAST = 1e-9  # of what is divided by: seconds, joules, watts, ratios, prices
_LONGEST = 10_000  # items: caps of a grid, devices
_MOST_RUNS = 20_000  # of a sweep


def require_plausible(record: object) -> None:
    """Raises ValueError for a record with a number that no run can have come to, or parts that do not go together: a
    damaged line to whoever reads a log. So reports may reckon with every number."""
    kind: type = type(record)
    for name, key in _fields_of(kind):
        _require(key, getattr(record, name))
    check = _CHECKS.get(type(record))
    if check is not None and not check(record):
        raise ValueError(f"{type(record).__name__} has parts that do not go together")


@cache
def _fields_of(kind: type) -> tuple[tuple[str, str], ...]:
    """Of each field its name, and what it is written under, which says its unit."""
    return tuple((field.name, field.metadata.get("key") or field.name) for field in fields(kind))


def _require(name: str, value: object) -> None:
    if isinstance(value, float):
        uncertain = "stderr" in name
        within = abs(value) <= _LARGEST.get(name[-2:], _LARGEST_OTHER) or (uncertain and value == math.inf)
        if not within or (uncertain and value < 0):
            raise ValueError(f"{name} is beyond all measure")
    elif isinstance(value, tuple):
        if len(value) > _LONGEST and not isinstance(value[0], str):
            raise ValueError(f"{name} has more than {_LONGEST} items")
        for item in value:
            _require(name, item)
    elif is_dataclass(value):
        require_plausible(value)


def _all_positive(*values: float) -> bool:
    return min(values) >= _LEAST


def _plan(plan: SweepPlan) -> bool:
    labels = {one.label for one in plan.sets}
    runs = plan.repeats * sum(len(one.caps_w) for one in plan.sets)
    return len(labels) == len(plan.sets) > 0 and plan.repeats > 0 and runs <= _MOST_RUNS and plan.seed >= 0


_CHECKS: dict[type, Callable[..., bool]] = {
    DeviceFound: lambda found: len(found.gpus) == len(found.original) > 0,
    CapSet: lambda event: bool(event.setting),
    PerGpuTried: lambda event: bool(event.setting),
    PerGpuDecided: lambda event: bool(event.setting),
    Measurement: lambda one: bool(one.setting) and _all_positive(one.period_s, one.energy_per_iteration_j, one.power_w),
    GpuEnergy: lambda part: part.energy_per_iteration_j >= _LEAST and abs(part.time_energy_corr) <= 1 + 1e-9,
    Prediction: lambda one: _all_positive(one.energy, one.time),
    GpuSet: lambda one: bool(one.gpus),
    SweepPlan: _plan,
    Used: lambda used: bool(used.energy_j) and used.time_s >= _LEAST,
    FinishedRun: lambda one: one.used is not None or one.trouble is not None,
}


EVENTS = "events.jsonl"
_MOST_LOG = 512 * MIB  # two months of tallies
_MOST_LINE = 4 * MIB  # twice what the kernel takes as the arguments of a command
_MOST_PARSED = 100_000  # lines, besides tallies: of a search every ten minutes for weeks
_FIRST = 1 << 16  # bytes, in which the first line has room as a rule
_TALLY = b'{"event": "tally"'
_MOST_AT_ONCE = 64 * MIB  # of what was added to a log that is followed
_LONGEST_NAME, _MOST_NAMES = 40, 5  # of events that nobody here knows
_FREE_WITHIN_S, _LOOK_S = 1.0, 0.02  # of a lock that is held for a moment
_LOOKS_AT_AN_ORPHAN = 2  # its writer takes the lock only after it has made the file

logger = logging.getLogger(__name__)


def line_of(event: Event, knob: Knob = POWER_LIMIT) -> bytes:
    """An event as one line, in a run that turns that knob."""
    knob = event.knob if isinstance(event, DeviceFound) else knob
    fields = as_written(encode(event), knob) if _tells_settings(type(event)) else encode(event)
    assert isinstance(fields, dict)
    return (printable_json({"event": event.logged_as, **fields}) + "\n").encode()


class EventLines:
    """The events that a log's lines hold, taken in piece by piece: without those that only a later version knows, and
    without damaged ones.

    A tally that the next line supersedes is passed over. What was turned is known once the devices were found. path:
    the log, for messages. say: is told what was left out.
    """

    def __init__(self, path: Path, say: Callable[[str], None]) -> None:
        self._path, self._say = path, say
        self._splitter = Lines(_MOST_LINE)  # a longer one is damaged
        self._lines = self._parsed = 0
        self._damaged = self._first_damaged = 0
        self._unknown: dict[str, int] = {}  # names of events, with how many there were
        self._knob: Knob | None = None  # until a device was found, or power limits were said before

    def take(self, piece: bytes) -> list[Event]:
        """The events of the lines that are whole by now. Raises InputRefused where there are too many in all."""
        return self._read(self._splitter.feed(piece))

    def rest(self) -> list[Event]:
        """That of the last line, where it lacks nothing but its end; what a kill has cut short is not damage."""
        damage = self._damaged, self._first_damaged
        found = self._read([self._splitter.end()])
        self._damaged, self._first_damaged = damage
        return found

    def warn(self) -> None:
        """Say what was left out, once."""
        if self._damaged:
            which = f"line {self._first_damaged} is damaged and left out"
            if self._damaged > 1:
                which = f"{self._damaged} lines are damaged and left out, the first is line {self._first_damaged}"
            self._say(f"{self._path}: {which}")
            self._damaged = self._first_damaged = 0
        if self._unknown:
            names = ", ".join(sorted(printable(name)[:_LONGEST_NAME] for name in self._unknown)[:_MOST_NAMES])
            count = sum(self._unknown.values())
            which = "1 event" if count == 1 else f"{count} events"
            which += f" that this autocap does not know {'is' if count == 1 else 'are'} left out ({names})"
            self._say(f"{self._path}: {which}: of a plug-in that is not here, or a later version")
            self._unknown = {}

    def _read(self, lines: Sequence[bytes]) -> list[Event]:
        found = []
        for number, (line, following) in enumerate(pairwise([*lines, b""]), self._lines + 1):
            if not line or (line.startswith(_TALLY) and following.startswith(_TALLY)):
                continue
            self._parsed += not line.startswith(_TALLY)
            if self._parsed > _MOST_PARSED:
                raise InputRefused(
                    f"{self._path} holds more than {_MOST_PARSED} events, the most that is read of a run"
                )
            try:
                event, self._knob = _event(line, self._knob)
            except (ValueError, TypeError, KeyError):
                self._damage(number)
                continue
            if isinstance(event, str):
                self._unknown[event] = self._unknown.get(event, 0) + 1
            else:
                found.append(event)
        self._lines += len(lines)
        return found

    def _damage(self, number: int) -> None:
        self._damaged += 1
        self._first_damaged = self._first_damaged or number


@functools.cache  # once
def load_plugin_events() -> None:
    """Have the events of all plug-ins known. Those of one that cannot be imported are as those of none."""
    for name in registry.ours("events") | registry.plugged_in("events"):
        try:
            registry.load("events", name)
        except Exception:  # another package's module may raise anything
            logger.debug("the events of %s cannot be loaded", name, exc_info=True)


def _event(line: bytes, knob: Knob | None = None) -> tuple[Event | str, Knob | None]:
    """The event of a line, its name alone where nobody here knows it; and the knob of what comes after it. knob: that
    is turned in the run, `None` while nothing has said which. Raises as `decode`."""
    entry = parse(line, _MOST_LINE)
    if not isinstance(entry, dict):
        raise ValueError("an event is written as an object")
    name = str(entry["event"])
    if name not in KINDS:
        load_plugin_events()
    if name not in KINDS:
        return name, knob
    kind, tells = KINDS[name], _tells_settings(KINDS[name])
    if kind is DeviceFound:
        knob = _only(decode(Knob, entry["knob"]) if "knob" in entry else POWER_LIMIT, knob)
    elif knob is None and tells and has_settings(entry):
        knob = POWER_LIMIT
    event: Event = decode(kind, as_read(entry, knob or POWER_LIMIT) if tells else entry)
    require_plausible(event)
    return event, knob


def _tells_settings(kind: type[Event]) -> bool:
    """Whether what it calls so are those of the knob: plug-ins speak of watts, and a command line has others."""
    return not issubclass(kind, PluginEvent | SettingsTaken)


def _only(found: Knob, said: Knob | None) -> Knob:
    """The knob of a run, which has one. Raises ValueError for a second one, whose settings would be read as others."""
    if said is not None and found != said and not (found.is_power_limit and said.is_power_limit):
        raise ValueError(f"a run that turns the knob {said.name} does not turn {found.name}")
    return found


def read_events(run_dir: Path, say: Callable[[str], None] = logger.warning, most_bytes: int = _MOST_LOG) -> list[Event]:
    """The events of a run, oldest first, as far as they were written; a line cut short by a kill is left out.

    Events and fields that only a later version knows are skipped, as are superseded tallies, and damaged lines, of
    which `say` is told. Raises RunDirectoryError where there is no run, InputRefused where its log is no file or beyond
    all measure.
    """
    path = run_dir / EVENTS
    lines, found = EventLines(path, say), list[Event]()
    try:
        for piece in pieces_of(path, most_bytes):
            found += lines.take(piece)
    except (FileNotFoundError, NotADirectoryError):
        raise RunDirectoryError(
            f"{run_dir} holds no run: there is no {EVENTS} in it; pass a directory that autocap wrote"
        ) from None
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be read: {error.strerror}; check its permissions") from error
    found += lines.rest()
    lines.warn()
    return found


def first_event(run_dir: Path) -> Event | None:
    """The first event of a run, however long its log is; `None` where that is not on record.

    Raises InputRefused where its log is no file, OSError where it cannot be read.
    """
    with FileIO(open_input(run_dir / EVENTS)) as log:
        line = b""
        while b"\n" not in line and len(line) <= _MOST_LINE and (piece := log.read(_FIRST)):
            line += piece
    try:
        event, _ = _event(line.partition(b"\n")[0])
    except (ValueError, TypeError, KeyError):
        return None
    return None if isinstance(event, str) else event


def is_being_written(run_dir: Path) -> bool | None:
    """Whether a process writes the log of a run; `None` where that cannot be told. Raises as `first_event`."""
    with FileIO(open_input(run_dir / EVENTS)) as log:
        if os.fstat(log.fileno()).st_size == 0:  # its writer may be about to lock it, and must find it free
            return None
        try:
            fcntl.flock(log, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:  # a file system without locks
            return None
    return False


def locked(log: FileIO, run_dir: Path) -> FileIO:
    """The log, locked for as long as it is open, so that nobody else writes to it.

    Raises RunDirectoryError, and closes it, where another autocap has locked it. Who only looks has it for a moment,
    and so has a child of one that was killed, until it becomes another program: that is waited for.
    """
    until_s = time.monotonic() + _FREE_WITHIN_S
    while True:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until_s:
                log.close()
                raise RunDirectoryError(
                    f"{run_dir} is being written by another autocap; wait for it, or choose another with --out"
                ) from None
            time.sleep(_LOOK_S)
            continue
        except OSError:  # a file system without locks: whether it is written is not known there
            logger.debug("%s is not locked", run_dir, exc_info=True)
        return log


def has_ended(events: Sequence[Event]) -> bool:
    """Whether the end of a run is among its events."""
    return any(isinstance(event, RunEnded) for event in events)


class EventTail:
    """The events of a run, as they are written by whoever runs it; a context manager.

    last_s: when the last event happened, seconds on the run's clock. say: is told of damaged lines. Raises
    RunDirectoryError where there is no such directory; its log may come later.
    """

    def __init__(self, run_dir: Path, say: Callable[[str], None] = logger.warning) -> None:
        if not run_dir.is_dir():
            raise RunDirectoryError(f"there is no run directory {run_dir}; pass a directory that autocap writes")
        self._path = run_dir / EVENTS
        self._log: FileIO | None = None
        self._lines = EventLines(self._path, say)
        self.last_s = 0.0

    def __enter__(self) -> "EventTail":
        return self

    def __exit__(self, *error: object) -> None:
        if self._log is not None:
            self._log.close()

    def read(self) -> list[Event]:
        """The events that were added since the last call; none while there is no log.

        Raises RunDirectoryError and InputRefused.
        """
        found: list[Event] = []
        try:
            if self._log is None:
                self._log = FileIO(open_input(self._path))
            for _ in range(_MOST_AT_ONCE // MIB):
                piece = self._log.read(MIB)
                if not piece:
                    break
                found += self._lines.take(piece)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise RunDirectoryError(f"{self._path} cannot be read: {error.strerror}; check its permissions") from error
        self._lines.warn()
        self.last_s = found[-1].t_s if found else self.last_s
        return found

    def looks(self, wait: Callable[[], bool]) -> Iterator[list[Event]]:
        """What was added, look by look, until the run has ended, nobody writes its log any more, or `wait` says so.

        wait: called between two looks; whether to look again after the next one. Raises as `read`.
        """
        orphaned, goes_on = 0, True
        while True:
            abandoned = self.is_orphaned  # before the last look at what was written
            new = self.read()
            yield new
            orphaned = orphaned + 1 if abandoned and not new else 0
            if has_ended(new) or orphaned == _LOOKS_AT_AN_ORPHAN or not goes_on:
                return
            goes_on = wait()

    @property
    def now_s(self) -> float:
        """Now, on the run's clock, by the log's time stamp."""
        if self._log is None:
            return 0.0
        return self.last_s + max(0.0, time.time() - os.fstat(self._log.fileno()).st_mtime)

    @property
    def is_orphaned(self) -> bool:
        """Whether there is a log that nobody writes any more."""
        if self._log is None:
            return False
        try:
            fcntl.flock(self._log, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:  # locked by the writer, or a file system without locks
            return False
        fcntl.flock(self._log, fcntl.LOCK_UN)
        return True
