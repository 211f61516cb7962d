"""What jobs on a model of card have shown, as shares: a record each, which the next job on such a card begins from.

Nothing of it is in watts or seconds, as another job or card has others, but for how the card's sensor was. A record
that is handed on says nothing of commands, paths, users and machines: a job is a digest, and the cards' own identifiers
are left out.
"""

import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from autocap.records import Measurement, RelativeCurve, RelativePoint, same_limit
from autocap.text import printable_json
from autocap.wire.codec import decode, encode
from autocap.wire.json_lines import parse

CARD_FORMAT = 1
MOST_JOBS, MOST_CARD_POINTS = 16, 40
MOST_CARD_BYTES = 256 << 10  # of one record
MOST_CARDS, MOST_HANDED_BYTES = 16, 4 << 20  # of a file for others
MOST_GPUS, _MOST_NAME = 64, 200  # identifiers; characters
_KEY = re.compile(r"[0-9a-f]{64}")
_DRIVER = re.compile(r"[\w.-]{1,32}")
# What a share can be at all: draw and cap over the limit, power and time over the baseline's, a relative error.
_WITHIN = {
    "draw": (0.01, 2.0),
    "cap": (0.02, 4.0),
    "power": (0.01, 10.0),
    "time": (0.01, 100.0),
    "power_rel_stderr": (0.0, 1.0),
    "period_rel_stderr": (0.0, 1.0),
}
_LONGEST_S = 3600.0  # of a sensor


@dataclass(frozen=True, slots=True, kw_only=True)
class CardCurve:
    """What one job has shown. job: its memory key, or a digest of the curve where that came from elsewhere. work: a
    digest of the job's words and environment, whatever it ran on; "" where the curve came from elsewhere. gpus: their
    UUIDs. driver: its branch. measured_at: as of a `Curve`. settle_s, window_s: of the sensor then. Else as of a
    RelativeCurve."""

    job: str
    work: str = ""
    gpus: tuple[str, ...] = ()
    driver: str | None = None
    measured_at: str
    settle_s: float
    window_s: float
    draw: float
    binding: bool | None = None
    points: tuple[RelativePoint, ...] = field(default=())

    def relative(self, *, of_job: bool = False) -> RelativeCurve:
        return RelativeCurve(draw=self.draw, binding=self.binding, points=self.points, of_job=of_job)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRecord:
    """All that is known of a model of card. kind: of the device. emulated: its power is modelled. curves: of a job
    each, oldest first."""

    format: int
    kind: str
    emulated: bool
    model: str
    curves: tuple[CardCurve, ...]

    @property
    def key(self) -> str:
        return card_key(self.kind, self.model, emulated=self.emulated)

    @property
    def is_own(self) -> bool:
        """Whether some of it was measured here."""
        return any(one.work for one in self.curves)

    def without(self, job: str) -> "CardRecord":
        """The record without that of a job."""
        return replace(self, curves=tuple(one for one in self.curves if one.job != job))

    def with_curve(self, new: CardCurve) -> "CardRecord":
        """The record with a job's latest curve in place of that before; the oldest goes where there are too many."""
        return replace(self, curves=(*self.without(new.job).curves, new)[-MOST_JOBS:])


def card_key(kind: str, model: str, *, emulated: bool) -> str:
    """The name of a record: hexadecimal digits."""
    of = {"format": CARD_FORMAT, "kind": kind, "emulated": emulated, "model": model}
    return hashlib.sha256(printable_json(of).encode()).hexdigest()


def relative(baseline: Measurement, points: Mapping[float, Measurement]) -> RelativeCurve | None:
    """A curve as shares of what the devices have shown at the limits found on arrival; `None` where those differ, or
    nothing else was measured. points: by their cap, watts."""
    own = baseline.of_gpus()
    limit_w = max(own.setting)
    found = tuple(_point(cap_w / limit_w, points[cap_w].of_gpus(), own) for cap_w in sorted(points))
    found = tuple(point for point in found if not _wrong(point))
    if not all(same_limit(one_w, limit_w) for one_w in own.setting) or not found:
        return None
    draw = own.power_w / len(own.setting) / limit_w
    return RelativeCurve(draw=draw, binding=own.cap_binding, points=found[-MOST_CARD_POINTS:])


def _point(cap: float, shown: Measurement, baseline: Measurement) -> RelativePoint:
    return RelativePoint(
        cap=cap,
        power=shown.power_w / baseline.power_w,
        time=shown.period_s / baseline.period_s,
        power_rel_stderr=math.hypot(shown.power_rel_stderr, baseline.power_rel_stderr),
        period_rel_stderr=math.hypot(shown.period_rel_stderr, baseline.period_rel_stderr),
    )


def handed_on(record: CardRecord) -> CardRecord:
    """The record as others may have it: nothing of it tells who ran what where. A curve that came from elsewhere is
    handed on as it came."""
    return replace(record, curves=tuple(replace(_anonymous(one), job=digest(one)) for one in record.curves))


def digest(curve: CardCurve) -> str:
    """By which a curve is known that says not of which job it is."""
    of = encode(replace(_anonymous(curve), job=""), strict=True)
    return hashlib.sha256(printable_json(of).encode()).hexdigest()


def _anonymous(curve: CardCurve) -> CardCurve:
    return replace(curve, work="", gpus=())


def taken_in(record: CardRecord | None, handed: CardRecord) -> tuple[CardRecord, int]:
    """A record with what others have handed on, and how many curves are new. Those that are there already, or were
    handed on from here, are not; and none takes the place of one that was measured here."""
    own = () if record is None else record.curves
    known = {digest(one) for one in own}
    new = [one for one in handed.curves if one.job not in known]
    room = MOST_JOBS - len([one for one in own if one.work])
    new = new[len(new) - min(room, len(new)) :]
    here = [one for one in own if one.work]
    before = [one for one in own if not one.work]
    before = before[len(before) - min(MOST_JOBS - len(here) - len(new), len(before)) :]
    return replace(handed, curves=(*before, *new, *here)), len(new)


def card_written(record: CardRecord) -> dict[str, object]:
    """A record as it is kept, and shown to programs."""
    found = encode(record, strict=True)
    assert isinstance(found, dict)
    return dict(found)


def cards_bytes(records: Sequence[CardRecord]) -> bytes:
    """A file for others."""
    handed = [card_written(handed_on(record)) for record in records[:MOST_CARDS]]
    return (json.dumps({"autocap_cards": CARD_FORMAT, "cards": handed}, indent=1, sort_keys=True) + "\n").encode()


def cards_from(text: bytes) -> list[CardRecord]:
    """The records of such a file. Raises ValueError for whatever else it holds."""
    found = parse(text, MOST_HANDED_BYTES)
    if not isinstance(found, dict) or set(found) != {"autocap_cards", "cards"}:
        raise ValueError("it has not the keys autocap_cards and cards alone")
    if found["autocap_cards"] != CARD_FORMAT:
        raise ValueError(f"its format is none that this version reads, which is {CARD_FORMAT}")
    cards = found["cards"]
    if not isinstance(cards, list) or not 0 < len(cards) <= MOST_CARDS:
        raise ValueError(f"it may hold a list of 1 to {MOST_CARDS} cards")
    records = list[CardRecord]()
    for place, each in enumerate(cards, 1):
        try:
            record = decode(CardRecord, each, strict=True)
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"card {place}: {error}") from error
        wrong = complaint(record)
        if wrong is None and card_written(record) != each:
            wrong = "it has keys that it should not have, or numbers that are written otherwise"
        if wrong is None and handed_on(record) != record:
            wrong = "it says on which machine a job ran, or the digest of a curve is not that curve's"
        if wrong is not None:
            raise ValueError(f"card {place}: {wrong}")
        records.append(record)
    if len({record.key for record in records}) < len(records):
        raise ValueError("it has a card twice")
    return records


def card_bytes(record: CardRecord) -> bytes:
    """Raises ValueError for what would not be read."""
    text = (printable_json(card_written(record)) + "\n").encode()
    card_from(text, record.key)
    return text


def card_from(text: bytes, key: str) -> CardRecord:
    """The record of that key. Raises ValueError, TypeError or KeyError for whatever this version would not have
    written."""
    record = decode(CardRecord, parse(text, MOST_CARD_BYTES), strict=True)
    wrong = complaint(record)
    if wrong is not None or record.key != key:
        raise ValueError(wrong or "it is of another card")
    return record


def complaint(record: CardRecord) -> str | None:
    """What is wrong with a record; `None` for nothing."""
    if record.format != CARD_FORMAT:
        return f"its format is {record.format}, and this version reads {CARD_FORMAT}"
    if not 0 < len(record.model) <= _MOST_NAME or not 0 < len(record.kind) <= _MOST_NAME:
        return f"kind and model may have 1 to {_MOST_NAME} characters"
    if not 0 < len(record.curves) <= MOST_JOBS or len({one.job for one in record.curves}) < len(record.curves):
        return f"it has {len(record.curves)} curves, and may have 1 to {MOST_JOBS}, of a job each"
    for place, curve in enumerate(record.curves, 1):
        wrong = _of_curve(curve)
        if wrong is not None:
            return f"curve {place}: {wrong}"
    return None


def _of_curve(curve: CardCurve) -> str | None:
    if _KEY.fullmatch(curve.job) is None or (curve.work and _KEY.fullmatch(curve.work) is None):
        return "job, and work if it is not empty, have to be 64 hexadecimal digits"
    if len(curve.gpus) > MOST_GPUS or any(not 0 < len(one) <= _MOST_NAME for one in curve.gpus):
        return f"gpus may hold at most {MOST_GPUS} identifiers of 1 to {_MOST_NAME} characters"
    if curve.driver is not None and _DRIVER.fullmatch(curve.driver) is None:
        return "driver has to be its branch, at most 32 letters, digits, dots and dashes"
    if not _is_moment(curve.measured_at):
        return "measured_at is no moment in ISO 8601 with an offset"
    if not all(0 <= value <= _LONGEST_S for value in (curve.settle_s, curve.window_s)):
        return f"settle_s is {curve.settle_s:g} and window_s {curve.window_s:g}, and may be 0 to {_LONGEST_S:g} s"
    low, high = _WITHIN["draw"]
    if not low <= curve.draw <= high:
        return f"draw is {curve.draw:g}, and may be {low:g} to {high:g} of the limit"
    caps = {point.cap for point in curve.points}
    if not 0 < len(curve.points) <= MOST_CARD_POINTS or len(caps) < len(curve.points):
        return f"it has {len(curve.points)} points, and may have 1 to {MOST_CARD_POINTS}, of a cap each"
    return next((wrong for point in curve.points if (wrong := _wrong(point)) is not None), None)


def _wrong(point: RelativePoint) -> str | None:
    for name, (low, high) in _WITHIN.items():
        value = getattr(point, name, low)
        if not low <= value <= high:
            return f"{name} of a point is {value:g}, and may be {low:g} to {high:g}"
    return None


def _is_moment(text: str) -> bool:
    try:
        return datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def median_range(values: Sequence[float]) -> tuple[float, float, float]:
    """Median, least and largest; of one value or more."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    median = ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
    return median, ordered[0], ordered[-1]


_BINDS_BELOW = 0.98  # of the baseline's power
_NO_SLOWER = 1.03  # as the knee of a curve is taken


def binds_at(curve: CardCurve) -> float | None:
    """The share of the limit below which caps bind, as the draw falls: between the lowest cap that takes no power and
    the next; `None` where none does."""
    binding = [point.cap for point in curve.points if point.power < _BINDS_BELOW]
    return None if not binding else min(1.0, max(binding) if curve.draw >= 1 else max(*binding, min(curve.draw, 1.0)))


def least_energy_at(curve: CardCurve) -> float:
    """The cap, over the limit, that took the least energy an iteration."""
    rows = [(1.0, 1.0), *((point.power * point.time, point.cap) for point in curve.points)]
    return min(rows)[1]


def waits_for_memory(curve: CardCurve) -> bool:
    """Whether a cap that takes a tenth of the power or more leaves the job as fast, within the 3 % of a knee."""
    return any(point.power <= 0.9 and point.time <= _NO_SLOWER for point in curve.points)
