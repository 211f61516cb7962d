"""The run directory: one writer, one reader.

    events.jsonl     one JSON object a line, {"event": "trial_ended", …}, written through at once
    samples.csv.gz   what the devices and the step counter said, written through every few seconds of the run
    result.json      the Summary, written in one piece at the end
    sweep.csv        of a sweep: its caps, a row each
    report.html      the same to look at, likewise
    *.svg            its pictures, where they were asked for

`events.jsonl` is the source of every report: `result.json` can be rebuilt from it after a kill.
"""

import os
import zlib
from collections.abc import Callable
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from io import FileIO
from itertools import count
from operator import attrgetter
from pathlib import Path

from autocap.errors import RunDirectoryError
from autocap.events import DeviceFound, Event
from autocap.knobs import POWER_LIMIT, Knob
from autocap.records import Sample
from autocap.runlog.event_log import EVENTS, line_of, locked
from autocap.runlog.output_directory import OutputDirectory, write
from autocap.text import printable_json
from autocap.wire.json_lines import Json

RUNS = Path("autocap-runs")  # where a run is written that was given no directory
SAMPLES = "samples.csv.gz"
RESULT = "result.json"
SWEEP = "sweep.csv"
REPORT = "report.html"
FAULTS = "internal-fault.txt"
PICTURES = ("timeline", "search", "tradeoff", "caps", "other-metrics")
_PLOTS = tuple(f"{name}.svg" for name in PICTURES)
_OF_A_RUN = (EVENTS, RESULT, SAMPLES, SWEEP)  # a directory with one of these holds a run
_REMOVED_BY_FORCE = (*_OF_A_RUN, REPORT, FAULTS, *_PLOTS)
_BLOCK = 1 << 16
_FLUSH_S = 5.0
_READING = ("energy_j", "beside_j", "requested_w", "enforced_w", "sm_clock_hz", "cap_binding", "throttled",
            "utilisation", "temperature_c")  # fmt: skip
# A column of a device each, in order, and what of its reading stands in it; `autocap period` reads t_s and power_w.
_COLUMNS = {"power_w": "power_w", "read_t_s": "t_s", **{name: name for name in _READING}}
_OF_DEVICE = attrgetter(*_COLUMNS.values())
_OF_NODE = attrgetter("power_w", "t_s", "energy_j", "whole")
_GZIP_WINDOW = 16 + zlib.MAX_WBITS  # zlib's way to say: with gzip's header and trailer


class RunDirectory:
    """Writes one run.

    events, samples: their files, open for writing; a sweep records no samples. A write that fails (a full disk, a
    directory that is gone) raises RunDirectoryError once and sets `failed`; from then on every write does nothing, so
    that the caller can warn and let the job go on.
    """

    def __init__(self, place: OutputDirectory, events: FileIO, samples: FileIO | None = None) -> None:
        self.path = place.path
        self.failed = False
        self._place = place
        self._events = events
        self._samples = samples
        self._gzip = zlib.compressobj(wbits=_GZIP_WINDOW)
        self._flushed_s: float | None = None
        self._knob = POWER_LIMIT
        self._waiting: list[Sample] = []  # since then: a hundred rows made at once cost less than one at a time

    @classmethod
    def create(cls, path: Path | None, force: bool, started: datetime, *, samples: bool = True) -> "RunDirectory":
        """Make the directory, `autocap-runs/<start>-<pid>` unless a path is given, and open its files.

        started: with a time zone; the name holds it in UTC. force: remove the files of a run that is there, and only
        those. samples: whether they are recorded. Raises RunDirectoryError for a run without force, and where no
        directory can be made or written.
        """
        path = path or default_directory(started)
        with ExitStack() as opened:
            try:
                place = opened.enter_context(OutputDirectory(path))
                _clear(place, force)
                # Unbuffered: what could not be written must not be tried again, and fail again, on closing.
                events = opened.enter_context(locked(place.create(EVENTS), path))
                run = cls(place, events, place.create(SAMPLES) if samples else None)
            except OSError as error:
                raise _unwritable(path, error) from error
            opened.pop_all()
            return run

    @classmethod
    def reopen(cls, path: Path) -> "RunDirectory":
        """Go on with a run that ended early: events are added to its own. A line that a kill cut short is removed.

        Raises RunDirectoryError where it cannot be written, or is being written by another autocap.
        """
        with ExitStack() as opened:
            try:
                place = opened.enter_context(OutputDirectory(path, make=False))
                events = opened.enter_context(locked(place.open(EVENTS), path))
                _drop_half_line(events)
            except OSError as error:
                raise _unwritable(path, error) from error
            opened.pop_all()
            return cls(place, events)

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def append(self, event: Event) -> None:
        """Add one event. Raises RunDirectoryError, once."""
        if isinstance(event, DeviceFound):
            self._knob = event.knob
        self._attempt(EVENTS, lambda: write(self._events, line_of(event, self._knob)))

    def sample(self, sample: Sample) -> None:
        """Add one sample; it is on disk within 5 s of the run. Raises RunDirectoryError, once."""
        self._attempt(SAMPLES, lambda: self._write_row(sample))

    def put_result(self, result: Json) -> None:
        """Put `result.json` there, as `put` does."""
        self.put(RESULT, printable_json(result, indent=2) + "\n")

    def put(self, name: str, text: str) -> None:
        """Put a file there, whole or not at all, instead of one of that name. Raises RunDirectoryError, once."""
        self._attempt(name, lambda: self._place.put(name, text.encode(errors="surrogateescape")))

    def discard(self) -> None:
        """Remove what this run wrote and the directories it made: the command could not be started."""
        self.failed = True  # there is nothing left to write
        self.finish()
        with suppress(OSError):  # what cannot be removed does no harm
            for name in (*_OF_A_RUN, FAULTS):
                self._place.remove(name)
            self._place.remove_temporaries()
            self._place.remove_made()
        self.close()

    def finish(self) -> None:
        """Finish the samples and close the log; other files may still be put there. Raises RunDirectoryError, once."""
        try:
            if self._samples is not None and not self._samples.closed:
                self._attempt(SAMPLES, lambda: self._write_rows(zlib.Z_FINISH))
        finally:
            if self._samples is not None:
                self._samples.close()
            self._events.close()

    def close(self) -> None:
        """The same, and let go of the directory."""
        try:
            self.finish()
        finally:
            self._place.close()

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
        self._waiting.append(sample)
        if self._flushed_s is None or sample.t_s - self._flushed_s >= _FLUSH_S:
            head = header(sample, self._knob) if self._flushed_s is None else ""
            self._flushed_s = sample.t_s
            self._write_rows(zlib.Z_SYNC_FLUSH, head)

    def _write_rows(self, flush: int, head: str = "") -> None:
        waiting, self._waiting = self._waiting, []
        text = head + "".join(row(sample, self._knob) for sample in waiting)
        assert self._samples is not None  # samples are passed on only where they are to be recorded
        write(self._samples, self._gzip.compress(text.encode()) + self._gzip.flush(flush))


def _unwritable(path: Path, error: OSError) -> RunDirectoryError:
    if isinstance(error, FileExistsError) and not path.is_dir():
        return RunDirectoryError(f"run directory {path} is a file; choose a directory with --out")
    return RunDirectoryError(f"run directory {path} cannot be written: {error.strerror}; choose another with --out")


def default_directory(started: datetime) -> Path:
    """Where a run of this process is written that was given no directory; a process may have several in a second."""
    name = f"{started.astimezone(UTC):%Y%m%dT%H%M%SZ}-{os.getpid()}"
    names = (RUNS / (f"{name}-{number}" if number > 1 else name) for number in count(1))
    return next(path for path in names if not path.exists())


def _clear(place: OutputDirectory, force: bool) -> None:
    held = [name for name in _OF_A_RUN if place.holds(name)]
    if held and not force:
        raise RunDirectoryError(
            f"run directory {place.path} holds a run already ({held[0]}); choose another with --out, or replace it "
            "with --force"
        )
    if held:
        for name in _REMOVED_BY_FORCE:
            place.remove(name)
        place.remove_temporaries()


def _drop_half_line(log: FileIO) -> None:
    """Remove what stands behind the last line end, and go there."""
    end = log.seek(0, os.SEEK_END)
    while end > 0:
        start = max(0, end - _BLOCK)
        found = os.pread(log.fileno(), end - start, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    log.truncate(end)
    log.seek(end)


def header(sample: Sample, knob: Knob = POWER_LIMIT) -> str:
    """Column names of samples. Several devices have a total, power_w, and each its own: power_w_0, energy_j_0, …; the
    last is what another knob than the power limit is set to."""
    devices = len(sample.readings)
    each = [*_COLUMNS, *([] if knob.is_power_limit else ["setting"])]
    if devices == 1:
        of_devices = each
    else:
        of_devices = ["power_w"] + [f"{name}_{index}" for index in range(devices) for name in each]
    of_node = [] if sample.node is None else ["node_power_w", "node_read_t_s", "node_energy_j", "node_whole"]
    return ",".join(["t_s", *of_devices, "steps", "step_t_s", *of_node]) + "\n"


def row(sample: Sample, knob: Knob = POWER_LIMIT) -> str:
    """One sample as a line of the file; nothing stands where something is unknown."""
    values: list[float | bool | None] = [sample.t_s]
    if len(sample.readings) != 1:
        powers = [reading.power_w for reading in sample.readings if reading.power_w is not None]
        values.append(sum(powers) if powers and len(powers) == len(sample.readings) else None)
    for reading in sample.readings:
        values += _OF_DEVICE(reading)
        if not knob.is_power_limit:
            values.append(reading.knob_value)
    values += [sample.steps.count, sample.steps.t_s] if sample.steps else [None, None]
    if sample.node is not None:
        values += _OF_NODE(sample.node)
    return ",".join(map(_cell, values)) + "\n"


def _cell(value: float | bool | None) -> str:
    """A number to a millionth, in the fewest digits; nothing where it is unknown."""
    return "" if value is None else f"{value:.6f}".rstrip("0").rstrip(".")
