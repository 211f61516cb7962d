"""Events of OpenADR 3.0 and 3.1 as spans: for how long which event allows how many watts, and which of several counts.

An event says what its payloads mean: of all payload types of the standard (Definitions, Event Enumerations)
IMPORT_CAPACITY_LIMIT, "the maximum import level for the site", and DISPATCH_SETPOINT, "the absolute amount of
consumption by a resource", name an amount of power that may be drawn. Their units, which are kW where they are power,
stand in a payload descriptor of the event, or else of its program. Times are as the User Guide, section 7.3, has them;
durations as ISO 8601 writes them: P1D, PT30M, PT4H. What ends after the year 9999, as P9999Y does, never ends."""

import calendar
import hashlib
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from autocap.config.values import plain, shown
from autocap.plugins.fleet.budget.schedule import LEAST_W, MOST_W
from autocap.runlog.input_file import moment
from autocap.text import printable
from autocap.wire.json_lines import Json

_NUMBER = r"(\d{1,9})"
_DURATION = re.compile(
    rf"P(?=[\dT])(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=\d)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:(\d{{1,9}}(?:[.,]\d{{1,9}})?)S)?)?",
    re.ASCII,
)
_NONE = "P0S"  # as the User Guide writes the default of randomizeStart
_LAST_YEAR = 9999
LIMITS = ("IMPORT_CAPACITY_LIMIT", "DISPATCH_SETPOINT")
_UNIT, _UNIT_W = "KW", 1e3
# A start that stands for now, or, of a later interval, for the end of the one before.
_NOW = frozenset(f"{day}{time}" for day in ("0001-01-01", "0000-00-00") for time in ("", "T00:00:00", "T00:00:00Z"))
_MOST_INTERVALS, _MOST_SPANS = 10_000, 256
_AHEAD_S = 7 * 86400.0  # for which an event that repeats is known ahead
_LONGEST = 40  # characters of a name
_MOST_PRIORITY = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """An interval of an event. label: of the event, printable. from_s, to_s: seconds since 1970; to_s is infinite where
    it never ends. watts: allowed. priority: the lower goes before the higher, `None` after all."""

    label: str
    from_s: float
    to_s: float = math.inf
    watts: float
    priority: int | None = None


def holding(spans: Iterable[Span], wall_s: float) -> Span | None:
    """The one that counts at a time, seconds since 1970; `None` where none does.

    Of several the one whose priority goes first. OpenADR leaves open which of two with one priority counts: here the
    lower one does.
    """
    there = [span for span in spans if span.from_s <= wall_s < span.to_s]
    return min(there, key=_rank, default=None)


def coming(spans: Iterable[Span], wall_s: float) -> Span | None:
    """The first one that lies ahead; of several that begin at once the one that would count."""
    ahead = [span for span in spans if span.from_s > wall_s]
    return min(ahead, key=lambda span: (span.from_s, *_rank(span)), default=None)


def _rank(span: Span) -> tuple[bool, int, float, str]:
    return span.priority is None, span.priority or 0, span.watts, span.label


@dataclass(frozen=True, slots=True, kw_only=True)
class Duration:
    """months: of the calendar, in UTC. seconds: weeks and days of 24 hours among them."""

    months: int = 0
    seconds: float = 0.0

    def after(self, from_s: float) -> float:
        """When it has passed, from a time on; both seconds since 1970, infinite where it never has."""
        end_s = from_s + self.seconds
        if self.months and end_s < _ENDLESS_S:
            start = datetime.fromtimestamp(from_s, UTC)
            year, month = divmod(12 * start.year + start.month - 1 + self.months, 12)
            if year > _LAST_YEAR:
                return math.inf
            day = min(start.day, calendar.monthrange(year, month + 1)[1])
            end_s = start.replace(year=year, month=month + 1, day=day).timestamp() + self.seconds
        return end_s if end_s < _ENDLESS_S else math.inf


_ENDLESS = Duration(months=12 * _LAST_YEAR)


def duration(text: str) -> Duration | None:
    """The duration that a text means; `None` for any other text."""
    if text == _NONE:
        return Duration()
    found = _DURATION.fullmatch(text)
    if found is None:
        return None
    years, months, weeks, days, hours, minutes = (int(part or 0) for part in found.groups()[:6])
    seconds = float((found[7] or "0").replace(",", "."))
    days += 7 * weeks
    return Duration(months=12 * years + months, seconds=seconds + 60 * (minutes + 60 * (hours + 24 * days)))


_ENDLESS_S = datetime(_LAST_YEAR, 12, 31, tzinfo=UTC).timestamp()


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """spans: those that are not over, by time. refused: a sentence on each event that cannot be followed."""

    spans: tuple[Span, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What events are read with. wall_s: now, seconds since 1970. seed: who draws random starts. targets: events for
    others are left out; all count where there are none. programs: by their IDs."""

    wall_s: float
    seed: str
    targets: frozenset[str] = frozenset()
    programs: Mapping[str, Json] | None = None


class _Bad(Exception):
    """What is wrong with an event, a clause."""


class _Foreign(Exception):
    """An event says something else than a limit; the types of its payloads."""


def read_events(found: Sequence[Json], context: Context) -> Read:
    """What the events of a VTN, as JSON has them, allow from now on. An event that cannot be read does no harm to
    others."""
    spans: list[Span] = []
    refused: dict[str, None] = {}
    for event in found:
        try:
            if not isinstance(event, dict):
                raise _Bad("it is no object")
            if _is_ours(event, context.targets):
                spans += _spans(event, context)
        except _Foreign as kinds:
            refused[f"events of {kinds} are not followed, as {' and '.join(LIMITS)} alone are limits in watts"] = None
        except _Bad as error:
            refused[f"{_label(event)} is not followed: {error}"] = None
    return Read(spans=tuple(sorted(spans, key=lambda span: span.from_s)[:_MOST_SPANS]), refused=tuple(refused))


def lacks_units(found: Sequence[Json]) -> bool:
    """Whether some events that can be read leave the units of their limits to their programs."""
    for event in found:
        with suppress(_Bad):  # it is said once all are read
            if isinstance(event, dict) and not _kinds(event) & set(LIMITS) <= set(_units(event)):
                return True
    return False


def _is_ours(event: dict[str, Json], targets: frozenset[str]) -> bool:
    """Whether an event without targets, or with one of ours. They are names, or, before 3.1, lists of names by type."""
    named: set[str] = set()
    for one in _list(event, "targets"):
        names = _list(one, "values") if isinstance(one, dict) else [one]
        named |= {name for name in names if isinstance(name, str)}
    return not targets or not named or bool(named & targets)


def _spans(event: dict[str, Json], context: Context) -> list[Span]:
    if not isinstance(event.get("id"), str):
        raise _Bad("it has no ID")
    kinds = _kinds(event)
    if not kinds & set(LIMITS):
        if kinds:  # else it asks for reports alone
            raise _Foreign(printable(", ".join(sorted(kinds)))[:_LONGEST])
        return []
    units = _of_program(event, context) | _units(event)
    made = [span for span in _timed(event, units, context.seed) if span.to_s > span.from_s]
    return [span for span in _lived(event, made, context.wall_s) if span.to_s > context.wall_s]


def _timed(event: dict[str, Json], units: Mapping[str, str], seed: str) -> Iterator[Span]:
    """All intervals; one with several values as so many of the same length."""
    whole, label, priority = _object(event, "intervalPeriod"), _label(event), _priority(event)
    shift_s, end_s, count = 0.0, None, 0
    for number, interval in enumerate(_list(event, "intervals")):
        own = _object(interval, "intervalPeriod")
        lasts = _duration(own, "duration") or _duration(whole, "duration") or _ENDLESS
        start_s = _date(own)
        if start_s is None and end_s is not None:
            start_s = end_s
        else:
            start_s = _first(own, whole, event, lasts) if start_s is None else start_s
            randomized = _given(own, "randomizeStart") or (None if number else _given(whole, "randomizeStart"))
            if randomized is not None:
                shift_s = _drawn(randomized.after(start_s) - start_s, f"{seed} {event['id']} {number}")
            start_s = max(0.0, start_s + shift_s)
        end_s = lasts.after(start_s)
        allowed_w = _allowed(interval, units)
        count += len(allowed_w)
        if count > _MOST_INTERVALS:
            raise _Bad(f"it has more than {_MOST_INTERVALS} values")
        if len(allowed_w) > 1 and math.isinf(end_s):
            raise _Bad(f"{len(allowed_w)} values share an interval without an end")
        edges_s = [start_s + (end_s - start_s) * place / len(allowed_w) for place in range(1, len(allowed_w))]
        for watts, from_s, to_s in zip(allowed_w, [start_s, *edges_s], [*edges_s, end_s], strict=False):
            yield Span(label=label, from_s=from_s, to_s=to_s, watts=watts, priority=priority)


def _lived(event: dict[str, Json], spans: Sequence[Span], wall_s: float) -> list[Span]:
    """What the duration of a whole event makes of its spans: it cuts them short, or repeats them."""
    lasts = _given(event, "duration")
    if lasts is None or not spans:
        return list(spans)
    first_s, last_s = min(span.from_s for span in spans), max(span.to_s for span in spans)
    until_s, round_s = lasts.after(first_s), last_s - first_s
    by_s = 0.0
    if until_s > last_s:  # what is over already is left out
        by_s = max(0.0, math.floor((wall_s - first_s) / round_s) * round_s)
    made = list[Span]()
    while first_s + by_s < min(until_s, wall_s + _AHEAD_S) and len(made) <= _MOST_SPANS:
        made += [replace(one, from_s=one.from_s + by_s, to_s=min(one.to_s + by_s, until_s)) for one in spans]
        by_s += round_s
    return [span for span in made if span.to_s > span.from_s]


def _first(own: dict[str, Json], whole: dict[str, Json], event: dict[str, Json], lasts: Duration) -> float:
    """When the first interval starts, seconds since 1970. What begins now and ends some day has begun when the VTN says
    that the event was last changed."""
    found_s = _date(whole)
    if found_s is not None:
        return found_s
    if own.get("start") is None and whole.get("start") is None:
        raise _Bad("its first interval has no start")
    if math.isinf(lasts.after(0.0)):
        return 0.0
    for name in ("modificationDateTime", "createdDateTime"):
        text = event.get(name)
        changed_s = moment(text) if isinstance(text, str) else None
        if changed_s is not None:
            return max(0.0, changed_s)
    raise _Bad("it begins now, and its VTN does not say when it was made")


def _date(period: dict[str, Json]) -> float | None:
    """When a period starts, seconds since 1970; `None` where it does not say, or stands for now."""
    text = period.get("start")
    if text is None or (isinstance(text, str) and text in _NOW):
        return None
    found_s = moment(text) if isinstance(text, str) else None
    if found_s is None:
        raise _Bad(f"its start is {_quoted(str(text))}, which is no date with a zone")
    return max(0.0, found_s)


def _drawn(most_s: float, seed: str) -> float:
    """A number between -most_s and most_s, uniform over seeds, and always the same for one."""
    if not math.isfinite(most_s):
        raise _Bad("its randomizeStart has no end")
    number = int.from_bytes(hashlib.sha256(seed.encode(errors="replace")).digest()[:8]) / 2**64
    return (2 * number - 1) * most_s


def _allowed(interval: Json, units: Mapping[str, str]) -> list[float]:
    """The values of an interval's limit, watts; of two limits, the lower one; none where it has none."""
    found: list[list[float]] = []
    for payload in _list(interval, "payloads"):
        kind = payload.get("type") if isinstance(payload, dict) else None
        if kind not in LIMITS:
            continue
        assert isinstance(kind, str)
        if units.get(kind) != _UNIT:
            said = _quoted(units[kind]) if kind in units else "not said"
            raise _Bad(f"the unit of its {kind} is {said}, and should be {_UNIT}")
        values = [_watts(kind, value) for value in _list(payload, "values")]
        if not values:
            raise _Bad(f"its {kind} has no value")
        found.append(values)
    return min(found, key=min, default=[])


def _watts(kind: str, value: Json) -> float:
    number = value if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
    if not 0 <= number <= MOST_W / _UNIT_W:  # compared before it is a float: a whole number may be too large for one
        raise _Bad(
            f"its {kind} is {_quoted(str(value))}; a number from 0 to {plain(MOST_W / _UNIT_W)} kW can be followed"
        )
    return max(LEAST_W, _UNIT_W * number)


def _priority(event: dict[str, Json]) -> int | None:
    found = event.get("priority")
    if found is None or (type(found) is int and 0 <= found < _MOST_PRIORITY):
        return found
    raise _Bad(f"its priority is {_quoted(str(found))}, which is no whole number from 0 to {_MOST_PRIORITY - 1}")


def _duration(of: dict[str, Json], name: str) -> Duration | None:
    text = of.get(name)
    if text is None:
        return None
    found = duration(text.strip()) if isinstance(text, str) else None
    if found is None:
        raise _Bad(f"its {name} is {_quoted(str(text))}, which is no duration such as PT1H")
    return found


def _given(of: dict[str, Json], name: str) -> Duration | None:
    """A duration where one is given: 0 is what the standard's schema has for none."""
    found = _duration(of, name)
    return None if found == Duration() else found


def _units(of: dict[str, Json]) -> dict[str, str]:
    """The units of payloads, by their types."""
    found: dict[str, str] = {}
    for one in _list(of, "payloadDescriptors"):
        if isinstance(one, dict):
            kind, unit = one.get("payloadType"), one.get("units")
            if isinstance(kind, str) and isinstance(unit, str):
                found[kind] = unit
    return found


def _of_program(event: dict[str, Json], context: Context) -> dict[str, str]:
    """The units of an event's program; those of one that cannot be read are not said."""
    program = (context.programs or {}).get(str(event.get("programID")))
    try:
        return _units(program) if isinstance(program, dict) else {}
    except _Bad:
        return {}


def _kinds(event: dict[str, Json]) -> set[str]:
    """The types of all its payloads."""
    payloads = [payload for interval in _list(event, "intervals") for payload in _list(interval, "payloads")]
    kinds = [payload.get("type") for payload in payloads if isinstance(payload, dict)]
    return {kind for kind in kinds if isinstance(kind, str)}


def _label(event: Json) -> str:
    """What messages call an event: its name, as far as it has one, and its ID."""
    if not isinstance(event, dict):
        return "an event"
    name, id = event.get("eventName"), event.get("id")
    known = f" {_quoted(name)}" if isinstance(name, str) and name else ""
    return f"event{known} ({printable(str(id))[:_LONGEST]})"


def _quoted(text: str) -> str:
    return shown(printable(text), _LONGEST)


def _object(of: Json, name: str) -> dict[str, Json]:
    found = of.get(name) if isinstance(of, dict) else None
    if found is not None and not isinstance(found, dict):
        raise _Bad(f"its {name} is no object")
    return found or {}


def _list(of: Json, name: str) -> Sequence[Json]:
    """A member that is a list; an empty one where it is absent or null. Raises _Bad for what is none, or too long."""
    found = of.get(name) if isinstance(of, dict) else None
    if found is None:
        return []
    if not isinstance(found, list) or len(found) > _MOST_INTERVALS:
        raise _Bad(f"its {name} are no list of at most {_MOST_INTERVALS}")
    return found
