"""What is remembered of a job: a record, and its form on disk."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from autocap.events import MetricInfo
from autocap.knobs import POWER_LIMIT, Knob, as_read, as_written
from autocap.records import CAP_W, Measurement, SensorInfo
from autocap.runlog.memory.job import Job
from autocap.runlog.plausible import require_plausible
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
