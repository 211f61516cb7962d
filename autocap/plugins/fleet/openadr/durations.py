"""Durations as ISO 8601 writes them: P1D, PT30M, PT4H. What ends after the year 9999, as P9999Y does, never ends."""

import calendar
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime

_NUMBER = r"(\d{1,9})"
_DURATION = re.compile(
    rf"P(?=[\dT])(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=\d)(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:(\d{{1,9}}(?:[.,]\d{{1,9}})?)S)?)?",
    re.ASCII,
)
_NONE = "P0S"  # as the User Guide writes the default of randomizeStart
_LAST_YEAR = 9999


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
