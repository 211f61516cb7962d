"""The run directory: one writer, one reader.

    events.jsonl     one JSON object a line, {"event": "trial_ended", …}, written through at once
    samples.csv.gz   what the devices and the step counter said, written through every few seconds of the run
    result.json      the Summary, written in one piece at the end

`events.jsonl` is the source of every report: `result.json` can be rebuilt from it after a kill.
"""

import json
import logging
import os
import re
import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import get_args

from autocap.codec import Json, decode, encode
from autocap.errors import RunDirectoryError
from autocap.events import Event
from autocap.privileges import InvokingUser, acting_as
from autocap.records import NodeReading, Reading, Sample
from autocap.summary import Summary

EVENTS = "events.jsonl"
SAMPLES = "samples.csv.gz"
RESULT = "result.json"
_HALF_RESULT = "result.json.tmp"
_OF_A_RUN = (EVENTS, RESULT, SAMPLES)  # a directory with one of these holds a run
_REMOVED_BY_FORCE = (*_OF_A_RUN, _HALF_RESULT, "report.html")
_FLUSH_S = 5.0
_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # zlib's way to say: with gzip's header and trailer

logger = logging.getLogger(__name__)


class RunDirectory:
    """Writes one run. Under sudo all is opened and made with the rights of `owner`, and so belongs to them.

    A write that fails (a full disk, a directory that is gone) raises RunDirectoryError once and sets `failed`; from
    then on every write does nothing, so that the caller can warn and let the job go on.
    """

    def __init__(self, path: Path, made: tuple[Path, ...], owner: InvokingUser | None) -> None:
        self.path = path
        self.failed = False
        self._owner = owner
        self._made = made
        # Unbuffered: what could not be written must not be tried again, and fail again, on closing.
        self._events = FileIO(path / EVENTS, "xb")
        try:
            self._samples = FileIO(path / SAMPLES, "xb")
        except OSError:
            self._events.close()
            raise
        self._gzip = zlib.compressobj(wbits=_GZIP_WINDOW)
        self._flushed_s: float | None = None
        self._rows: list[str] = []  # since then

    @classmethod
    def create(cls, path: Path | None, force: bool, owner: InvokingUser | None, started: datetime) -> "RunDirectory":
        """Make the directory, `autocap-runs/<start>-<pid>` unless a path is given, and open its files.

        started: with a time zone; the name holds it in UTC. force: remove the files of a run that is there, and only
        those. Raises RunDirectoryError for a run without force, and where no directory can be made or written.
        """
        path = path or Path("autocap-runs") / f"{started.astimezone(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}"
        try:
            with acting_as(owner):
                made = _make(path)
                _clear(path, force)
                return cls(path, made, owner)
        except OSError as error:
            whom = f" by {owner.name}" if owner else ""
            raise RunDirectoryError(
                f"run directory {path} cannot be written{whom}: {error.strerror}; choose another with --out"
            ) from error

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def append(self, event: Event) -> None:
        """Add one event. Raises RunDirectoryError, once."""
        line = json.dumps({"event": _name(type(event)), **_fields(event)}, allow_nan=False) + "\n"
        self._attempt(EVENTS, lambda: _write(self._events, line.encode()))

    def sample(self, sample: Sample) -> None:
        """Add one sample; it is on disk within 5 s of the run. Raises RunDirectoryError, once."""
        self._attempt(SAMPLES, lambda: self._write_row(sample))

    def write_result(self, summary: Summary) -> None:
        """Put `result.json` there, whole or not at all. Raises RunDirectoryError, once."""
        text = json.dumps(to_json_dict(summary), indent=2, allow_nan=False) + "\n"
        self._attempt(RESULT, lambda: self._replace(RESULT, text.encode()))

    def discard(self) -> None:
        """Remove what this run wrote and the directories it made: the command could not be started."""
        self.failed = True  # there is nothing left to write
        self.close()
        with acting_as(self._owner), suppress(OSError):  # what cannot be removed harms nobody
            for name in (*_OF_A_RUN, _HALF_RESULT):
                (self.path / name).unlink(missing_ok=True)
            for directory in reversed(self._made):
                directory.rmdir()

    def close(self) -> None:
        """Finish the samples and close the files. Raises RunDirectoryError, once."""
        try:
            if not self._samples.closed:
                self._attempt(SAMPLES, lambda: self._write_rows(zlib.Z_FINISH))
        finally:
            self._samples.close()
            self._events.close()

    def _attempt(self, name: str, write: Callable[[], None]) -> None:
        if self.failed:
            return
        try:
            write()
        except OSError as error:
            self.failed = True
            raise RunDirectoryError(
                f"{self.path / name} cannot be written: {error.strerror}; the run is not recorded from here on"
            ) from error

    def _write_row(self, sample: Sample) -> None:
        if self._flushed_s is None:
            self._rows.append(_header(sample))
        self._rows.append(_row(sample))
        if self._flushed_s is None or sample.t_s - self._flushed_s >= _FLUSH_S:
            self._flushed_s = sample.t_s
            self._write_rows(zlib.Z_SYNC_FLUSH)

    def _write_rows(self, flush: int) -> None:
        text, self._rows = "".join(self._rows), []
        _write(self._samples, self._gzip.compress(text.encode()) + self._gzip.flush(flush))

    def _replace(self, name: str, data: bytes) -> None:
        with acting_as(self._owner):
            half = self.path / _HALF_RESULT
            with FileIO(half, "wb") as file:
                _write(file, data)
                os.fsync(file.fileno())
            half.replace(self.path / name)


def _make(path: Path) -> tuple[Path, ...]:
    """Make a directory and its parents; returns those that were not there, outermost first."""
    if path.exists() and not path.is_dir():
        raise RunDirectoryError(f"run directory {path} is a file; choose a directory with --out")
    missing = [directory for directory in reversed((path, *path.parents)) if not directory.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return tuple(missing)


def _clear(path: Path, force: bool) -> None:
    held = [name for name in _OF_A_RUN if os.path.lexists(path / name)]
    if held and not force:
        raise RunDirectoryError(
            f"run directory {path} holds a run already ({held[0]}); choose another with --out, or replace it with "
            "--force"
        )
    if held:
        for name in _REMOVED_BY_FORCE:
            (path / name).unlink(missing_ok=True)


def _write(file: FileIO, data: bytes) -> None:
    rest = memoryview(data)
    while rest:  # a disk that fills up takes a part first and fails at the next try
        rest = rest[file.write(rest) :]


# One device's columns, in order; `autocap period` reads t_s and power_w.
_COLUMNS: dict[str, Callable[[Reading], float | bool | None]] = {
    "power_w": lambda reading: reading.power_w,
    "read_t_s": lambda reading: reading.t_s,
    "energy_j": lambda reading: reading.energy_j,
    "beside_j": lambda reading: reading.beside_j,
    "requested_w": lambda reading: reading.requested_w,
    "enforced_w": lambda reading: reading.enforced_w,
    "sm_clock_hz": lambda reading: reading.sm_clock_hz,
    "cap_binding": lambda reading: reading.cap_binding,
    "throttled": lambda reading: reading.throttled,
    "utilisation": lambda reading: reading.utilisation,
    "temperature_c": lambda reading: reading.temperature_c,
}


_NODE_COLUMNS: dict[str, Callable[[NodeReading], float | bool | None]] = {
    "node_power_w": lambda node: node.power_w,
    "node_read_t_s": lambda node: node.t_s,
    "node_energy_j": lambda node: node.energy_j,
    "node_whole": lambda node: node.whole,
}


def _header(sample: Sample) -> str:
    """Column names. Several devices have a total, power_w, and columns of their own: power_w_0, energy_j_0, …"""
    devices = len(sample.readings)
    if devices == 1:
        of_devices = list(_COLUMNS)
    else:
        of_devices = ["power_w"] + [f"{name}_{index}" for index in range(devices) for name in _COLUMNS]
    of_node = [] if sample.node is None else list(_NODE_COLUMNS)
    return ",".join(["t_s", *of_devices, "steps", "step_t_s", *of_node]) + "\n"


def _row(sample: Sample) -> str:
    values: list[float | bool | None] = [sample.t_s]
    if len(sample.readings) != 1:
        powers = [reading.power_w for reading in sample.readings if reading.power_w is not None]
        values.append(sum(powers) if powers and len(powers) == len(sample.readings) else None)
    values += [column(reading) for reading in sample.readings for column in _COLUMNS.values()]
    values += [sample.steps.count, sample.steps.t_s] if sample.steps else [None, None]
    if sample.node is not None:
        values += [column(sample.node) for column in _NODE_COLUMNS.values()]
    return ",".join(map(_cell, values)) + "\n"


def _cell(value: float | bool | None) -> str:
    """A number to a millionth, in the fewest digits; nothing where it is unknown."""
    return "" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")


def _name(kind: type) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()


_KINDS: dict[str, type[Event]] = {_name(kind): kind for kind in get_args(Event)}


def _fields(record: object) -> dict[str, Json]:
    encoded = encode(record)
    assert isinstance(encoded, dict)
    return encoded


def read_events(run_dir: Path) -> list[Event]:
    """The events of a run, oldest first, as far as they were written; a line cut short by a kill is left out.

    Events and fields that only a later version knows are skipped. Raises RunDirectoryError where there is no run.
    """
    try:
        lines = (run_dir / EVENTS).read_bytes().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        raise RunDirectoryError(
            f"{run_dir} holds no run: there is no {EVENTS} in it; pass a directory that autocap wrote"
        ) from None
    except OSError as error:
        raise RunDirectoryError(
            f"{run_dir / EVENTS} cannot be read: {error.strerror}; check its permissions"
        ) from error
    events = []
    for number, line in enumerate(lines, start=1):
        try:
            entry = json.loads(line)
            kind = _KINDS.get(entry["event"])
            if kind is not None:
                events.append(decode(kind, entry))
        except (ValueError, TypeError, KeyError) as error:
            if number < len(lines):
                logger.warning("%s: line %d is damaged and left out: %s", run_dir / EVENTS, number, error)
    return events


def to_json_dict(summary: Summary) -> dict[str, Json]:
    """What `result.json` holds, schema 1, with keys of its own where the machine's power was counted."""
    result = _fields(summary)
    result["strategy"] = {
        "name": summary.strategy.name,
        "options": {option.name: encode(option.value) for option in summary.strategy.options},
    }
    for key, found in (("best_by_metric", summary.best_by_metric), ("best_by_metric_gpu", summary.best_by_metric_gpu)):
        best = [_fields(one) for one in found]
        result[key] = {str(one.pop("metric")): one for one in best}
    return result if summary.node is not None else _without(_OF_NODE, result)


# Keys that a run of the GPUs alone does not have.
_OF_NODE = frozenset({"node", "best_by_metric_gpu", "gpu", "gpu_energy_pct", "gpu_energy_stderr_pct"})


def _without(keys: frozenset[str], fields: dict[str, Json]) -> dict[str, Json]:
    """JSON objects, one in the other, without those keys."""

    def kept(value: Json) -> Json:
        if isinstance(value, dict):
            return _without(keys, value)
        return [kept(item) for item in value] if isinstance(value, list) else value

    return {key: kept(value) for key, value in fields.items() if key not in keys}
