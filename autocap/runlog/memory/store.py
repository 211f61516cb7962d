"""What is remembered of a job: a record, and a file each, named after its key, in a directory that is the user's alone.

No lock is needed: a file is replaced as a whole, and of two runs that end at once the last one's stays. Whatever is not
the user's own regular file, or holds anything that this version would not have written, counts as not there.
"""

import hashlib
import logging
import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TypeVar

from autocap.errors import MemoryUnavailable
from autocap.events import MetricInfo
from autocap.job.invoking_user import InvokingUser
from autocap.knobs import POWER_LIMIT, Knob, as_read, as_written
from autocap.records import CAP_W, Measurement, SensorInfo
from autocap.runlog.event_log import require_plausible
from autocap.runlog.memory.card import MOST_CARD_BYTES, MOST_CARDS, CardRecord, card_bytes, card_from
from autocap.runlog.memory.job import Job
from autocap.runlog.output_directory import TEMPORARY, put
from autocap.text import printable_json
from autocap.wire.codec import decode, encode
from autocap.wire.json_lines import parse

FORMAT = 1
KEY_DIGITS, SHOWN_DIGITS = 64, 12
MOST_BYTES = 256 << 10  # of one entry
MOST_POINTS, MOST_CURVES = 40, 8
MOST_AGE = timedelta(days=90)
_MOST_WORDS = 64 << 10  # characters of a command that is kept to be shown
_AHEAD = timedelta(days=1)  # by which a clock may have been set back since


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """On what a job runs. kind: of the device. emulated: its power is modelled. gpus: their models, in any order.
    driver: its branch. node: the source of the machine's power, where that counts. knob: what is turned, where that is
    not the power limit."""

    kind: str
    emulated: bool
    gpus: tuple[str, ...]
    driver: str | None
    node: str | None
    knob: Knob | None = None

    @property
    def turned(self) -> Knob:
        return self.knob or POWER_LIMIT


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """What a common setting has shown."""

    setting: float = field(metadata=CAP_W)
    measurement: Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What one search of one run has shown.

    measured_at: when the run began, ISO 8601 with an offset. metric: what it minimised. progress: where its iteration
    count came from. baseline: at the limits found on arrival. points: what was measured to the end, each cap once, as
    at that baseline. kept_w: the cap that was confirmed against the baseline, and held to the end; `None` for none.
    holds: that the workload was not seen to change. cut_short: the job ended before the search did, so that nothing
    kept says nothing. job_iterations: of the whole job; `None` where it was not seen from its beginning to its end.
    """

    measured_at: str
    metric: MetricInfo
    progress: str
    baseline: Measurement
    points: tuple[Point, ...]
    kept_w: float | None = None
    holds: bool = True
    cut_short: bool = False
    job_iterations: float | None = None

    @property
    def when(self) -> datetime:
        """Raises ValueError where that is no moment."""
        found = datetime.fromisoformat(self.measured_at)
        if found.tzinfo is None:
            raise ValueError("a moment needs its offset")
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """All that is remembered of a job. command: as it was typed last. runs: how many have told of it. curves: oldest
    first."""

    format: int
    key: str
    autocap_version: str
    command: tuple[str, ...]
    setup: Setup
    sensor: SensorInfo
    runs: int
    curves: tuple[Curve, ...]

    @property
    def latest(self) -> Curve:
        return self.curves[-1]

    def fresh(self, now: datetime) -> tuple[Curve, ...]:
        """The curves that are not too old."""
        return tuple(curve for curve in self.curves if -_AHEAD <= now - curve.when <= MOST_AGE)


def key_of(job: Job, setup: Setup) -> str:
    """The name of what is remembered of a job on such devices: hexadecimal digits."""
    of = {"format": FORMAT, "setup": _setup(setup), "words": job.words, "environment": job.environment}
    return hashlib.sha256(printable_json(of).encode()).hexdigest()


def work_of(job: Job) -> str:
    """The same of the job alone, whatever it runs on."""
    of = {"format": FORMAT, "words": job.words, "environment": job.environment}
    return hashlib.sha256(printable_json(of).encode()).hexdigest()


def _setup(setup: Setup) -> dict[str, object]:
    found = encode(setup)
    assert isinstance(found, dict)
    return {key: one for key, one in found.items() if (key, one) != ("knob", None)}  # as before there were others


def with_curve(curves: Sequence[Curve], new: Curve) -> tuple[Curve, ...]:
    """The curves with a new one: of each cap only what was measured last, at the same limits and counted alike, and not
    more than is kept."""
    new = replace(new, points=new.points[-MOST_POINTS:])
    out, left = [new], MOST_POINTS - len(new.points)
    seen = {(new.progress, new.baseline.setting): {point.setting for point in new.points}}
    for curve in reversed(curves):
        settings = seen.setdefault((curve.progress, curve.baseline.setting), set())
        points = tuple(point for point in curve.points if point.setting not in settings)
        if points and len(points) <= left and len(out) < MOST_CURVES:
            settings |= {point.setting for point in points}
            left -= len(points)
            out.append(replace(curve, points=points))
    return tuple(reversed(out))


def shortened(command: Sequence[str]) -> tuple[str, ...]:
    """As much of a command as is kept to be shown."""
    kept, left = list[str](), _MOST_WORDS
    for word in command:
        if len(word) > left:
            return (*kept, "…")
        kept.append(word)
        left -= len(word)
    return tuple(kept)


def written(entry: Entry) -> dict[str, object]:
    """An entry as it is kept, and shown to programs."""
    found = as_written(encode(entry), entry.setup.turned)
    assert isinstance(found, dict)
    return {**found, "setup": _setup(entry.setup)}


def to_bytes(entry: Entry) -> bytes:
    """Raises ValueError for what is larger than would be read."""
    text = (printable_json(written(entry)) + "\n").encode()
    if len(text) > MOST_BYTES:
        raise ValueError(f"it takes {len(text)} bytes, and at most {MOST_BYTES} are kept of a job")
    return text


def from_bytes(text: bytes, key: str) -> Entry:
    """The entry of that key. Raises ValueError, TypeError or KeyError for whatever this version would not have
    written."""
    found = parse(text, MOST_BYTES)
    setup = decode(Setup, found["setup"] if isinstance(found, dict) else None)
    entry = decode(Entry, as_read(found, setup.turned))
    require_plausible(entry)
    if entry.format != FORMAT or entry.key != key or entry.runs < 1 or not entry.setup.gpus:
        raise ValueError("it is of another format or job")
    points = [point for curve in entry.curves for point in curve.points]
    if not entry.curves or len(entry.curves) > MOST_CURVES or len(points) > MOST_POINTS:
        raise ValueError("it holds nothing, or too much")
    settings = [point.setting for point in points] + [
        curve.kept_w for curve in entry.curves if curve.kept_w is not None
    ]
    measured = [curve.baseline for curve in entry.curves] + [point.measurement for point in points]
    settings += [setting for one in measured for setting in one.setting]
    if min(settings) <= 0 or any(len(one.setting) != len(entry.setup.gpus) or not one.valid for one in measured):
        raise ValueError("a cap is none, or of another number of devices")
    for curve in entry.curves:
        curve.when  # noqa: B018 - raises for what is no moment
    return entry


log = logging.getLogger(__name__)
MOST_ENTRIES, MOST_BYTES_IN_ALL = 256, 4 << 20
_NAME = re.compile(rf"([0-9a-f]{{{KEY_DIGITS}}})\.json")
_CARD_NAME = re.compile(rf"card-([0-9a-f]{{{KEY_DIGITS}}})\.json")
_OTHERS_WRITE = 0o022
_T = TypeVar("_T")


def default_place(user: InvokingUser | None, environ: Mapping[str, str] = os.environ) -> Path | None:
    """`$XDG_STATE_HOME/autocap/memory`, by default below `~/.local/state`; under sudo below the user's home, whatever
    the variables say, as they may be root's. `None` for who has no home."""
    base = environ.get("XDG_STATE_HOME", "") if user is None else ""
    if not os.path.isabs(base):
        home = os.path.expanduser("~") if user is None else user.home
        if not os.path.isabs(home) or home == "/":
            return None
        base = os.path.join(home, ".local", "state")
    return Path(base) / "autocap" / "memory"


class MemoryStore:
    """The entries in a directory, which need not be there."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def read(self, key: str) -> Entry | None:
        """The entry of that key; `None` where there is none that can be used."""
        try:
            with self._opened() as place:
                return _read(place, f"{key}.json", MOST_BYTES, partial(from_bytes, key=key))
        except (OSError, MemoryUnavailable):
            log.debug("nothing is remembered in %s", self.place, exc_info=True)
            return None

    def cards(self) -> list[CardRecord]:
        """What jobs on each model of card have shown, that written last first; none where there is no directory.

        Raises MemoryUnavailable where that cannot be read.
        """
        try:
            with self._opened() as place:
                return [record for _, record in reversed(_cards(place)) if record is not None]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unavailable(error, "read") from error

    def card(self, key: str) -> CardRecord | None:
        """What jobs on a card have shown; `None` where nothing is known of it that can be used. Raises as `cards`."""
        return next((record for record in self.cards() if record.key == key), None)

    def write_card(self, record: CardRecord) -> None:
        """Keep a record in place of the one of its key; where there are too many, those go that were written longest
        ago, of which nothing was measured here before others. Raises MemoryUnavailable where it cannot be written."""
        try:
            text = card_bytes(record)
            make_private(self.place)
            with self._opened() as place:
                put(place, f"card-{record.key}.json", text, 0o600)
                surplus = len(_files(place, _CARD_NAME)) - MOST_CARDS
                others = [one for one in _cards(place) if one[0] != record.key] if surplus > 0 else []
                others.sort(key=lambda one: one[1] is not None and one[1].is_own)
                for key, _ in others[:surplus]:
                    _unlink(place, f"card-{key}.json")
        except OSError as error:
            raise self._unavailable(error, "written") from error
        except ValueError as error:
            raise MemoryUnavailable(f"what is known of {record.model} is not kept: {error}") from error

    def use(self, key: str) -> None:
        """Note that an entry was used now: those used longest ago go first."""
        with suppress(OSError, MemoryUnavailable), self._opened() as place:
            os.utime(f"{key}.json", dir_fd=place, follow_symlinks=False)

    def entries(self) -> list[Entry]:
        """Every entry that can be used, that used last first; none where there is no directory.

        Raises MemoryUnavailable where that cannot be read.
        """
        try:
            with self._opened() as place:
                keys = [key for _, _, key in reversed(_files(place))]
                found = [_read(place, f"{key}.json", MOST_BYTES, partial(from_bytes, key=key)) for key in keys]
                return [entry for entry in found if entry is not None]
        except FileNotFoundError:
            return []
        except OSError as error:
            raise self._unavailable(error, "read") from error

    def write(self, entry: Entry) -> None:
        """Keep an entry in place of the one of its key, and let those go for which there is no room any more.

        Raises MemoryUnavailable where it cannot be written.
        """
        try:
            text = to_bytes(entry)
            make_private(self.place)
            with self._opened() as place:
                put(place, f"{entry.key}.json", text, 0o600)
                _prune(place, entry.key)
        except OSError as error:
            raise self._unavailable(error, "written") from error
        except ValueError as error:
            raise MemoryUnavailable(f"what this run has shown is not remembered: {error}") from error

    def forget(self, key: str) -> None:
        """Remove an entry, and what its job has told of cards. Raises MemoryUnavailable where that fails."""
        try:
            for record in self.cards():
                left = record.without(key)
                if left.curves and left != record:
                    self.write_card(left)
            with self._opened() as place:
                for record in self.cards():
                    if not record.without(key).curves:
                        _unlink(place, f"card-{record.key}.json")
                _unlink(place, f"{key}.json")
        except FileNotFoundError:
            return
        except OSError as error:
            raise self._unavailable(error, "written") from error

    def forget_all(self) -> tuple[int, int]:
        """Remove every file of ours, also what cannot be used; how many jobs and cards that were. Raises
        MemoryUnavailable."""
        try:
            with self._opened() as place:
                keys = [key for _, _, key in _files(place)]
                temporaries = [name for name in os.listdir(place) if TEMPORARY.fullmatch(name)]
                cards = [f"card-{key}.json" for _, _, key in _files(place, _CARD_NAME)]
                for name in [*(f"{key}.json" for key in keys), *cards, *temporaries]:
                    _unlink(place, name)
        except FileNotFoundError:
            return 0, 0
        except OSError as error:
            raise self._unavailable(error, "written") from error
        return len(keys), len(cards)

    @contextmanager
    def _opened(self) -> Iterator[int]:
        """A descriptor of the directory. Raises OSError, and MemoryUnavailable where somebody else may write to it."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        place = os.open(self.place, flags)
        try:
            status = os.fstat(place)
            if status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
                whose = f"belongs to user {status.st_uid}"
                if status.st_uid == os.geteuid():
                    whose = f"can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"
                raise MemoryUnavailable(
                    f"{self.place} {whose}, so nothing is remembered there; make it your own, with mode 0700, or run "
                    "with --no-memory"
                )
            yield place
        finally:
            os.close(place)

    def _unavailable(self, error: OSError, what: str) -> MemoryUnavailable:
        return MemoryUnavailable(
            f"{self.place} cannot be {what}: {error.strerror}; make it a directory of your own with room in it, or run "
            "with --no-memory"
        )


def make_private(path: Path) -> None:
    """The directory and its missing parents, each with mode 0700. Raises OSError."""
    missing = []
    while not os.path.lexists(path):
        missing.append(path)
        path = path.parent
    for folder in reversed(missing):
        with suppress(FileExistsError):  # another autocap was faster
            folder.mkdir(mode=0o700)


def _read(place: int, name: str, most_bytes: int, read: Callable[[bytes], _T]) -> _T | None:
    """What the file holds that is the user's own; `None` where nothing of it can be used."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
    except FileNotFoundError:
        return None
    except OSError:
        log.debug("what is remembered as %s cannot be opened", name, exc_info=True)
        return None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & _OTHERS_WRITE:
            raise ValueError("it is no file of the user's alone")
        with open(fd, "rb", closefd=False) as file:
            return read(file.read(most_bytes + 1))
    except (OSError, ValueError, TypeError, KeyError):
        log.debug("what is remembered as %s cannot be used", name, exc_info=True)
        return None
    finally:
        os.close(fd)


def _unlink(place: int, name: str) -> None:
    """Remove a file, which another autocap may have removed. Raises OSError."""
    with suppress(FileNotFoundError):
        os.unlink(name, dir_fd=place)


def _cards(place: int) -> list[tuple[str, CardRecord | None]]:
    """The key and what is known of each card, `None` where that cannot be used, that written longest ago first."""
    keys = [key for _, _, key in _files(place, _CARD_NAME)]
    return [(key, _read(place, f"card-{key}.json", MOST_CARD_BYTES, partial(card_from, key=key))) for key in keys]


def _files(place: int, names: re.Pattern[str] = _NAME) -> list[tuple[int, int, str]]:
    """When each entry was used last, in nanoseconds, its bytes and its key, that used longest ago first. names: of the
    files."""
    found = []
    for name in os.listdir(place):
        named = names.fullmatch(name)
        if named is not None:
            with suppress(OSError):
                status = os.stat(name, dir_fd=place, follow_symlinks=False)
                found.append((status.st_mtime_ns, status.st_size, named[1]))
    return sorted(found)


def _prune(place: int, kept: str) -> None:
    """Remove those used longest ago, until there is room. kept: the one that was just written."""
    files = [one for one in _files(place) if one[2] != kept]
    count, in_all = len(files) + 1, sum(size for _, size, _ in files) + MOST_BYTES
    for _, size, key in files:
        if count <= MOST_ENTRIES and in_all <= MOST_BYTES_IN_ALL:
            break
        _unlink(place, f"{key}.json")
        count, in_all = count - 1, in_all - size
