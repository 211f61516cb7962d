"""Values that hold from a time on, and how a text gives them:

    time,EUR/MWh
    2026-01-31T17:00:00+01:00,112.4
    2026-01-31T18:00:00+01:00,98
    2026-01-31T19:00:00+01:00,

A row holds until the next one, the last as long as the one before it did, and a row that stands alone for an hour.
From a row without a value on nothing is known.
"""

import argparse
import math
import re
from bisect import bisect_right
from dataclasses import dataclass

from autocap.config import values
from autocap.config.values import plain, shown
from autocap.errors import AutocapError
from autocap.events.quote import CARBON, PRICE, Quote
from autocap.runlog.input_file import MIB, InputRefused, InputRow, moment, number, read_rows

_UNIT = re.compile(r"(?P<of>[^\s\[\](){},;:/]+(?: CO[2₂][\w-]*)?) ?/ ?(?P<per>[km]?wh)\b", re.IGNORECASE)
_MASS = re.compile(r"(?P<mass>kg|g|t|lbs?) ?(?:CO[2₂](?:e|eq|-eq)?)?", re.IGNORECASE)
_GRAMS = {"g": 1.0, "kg": 1e3, "t": 1e6, "lb": 453.59237, "lbs": 453.59237}
_KWH = {"wh": 1e-3, "kwh": 1.0, "mwh": 1e3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """name: as it was read. kind: "price" or "carbon". per_kwh: money or grams of CO₂ per kWh that one of it is.
    currency: the money's sign or code, `None` of carbon."""

    name: str
    kind: str
    per_kwh: float
    currency: str | None


def unit_in(heading: str) -> Unit | None:
    """The unit that a heading holds, as `EUR/MWh` or `intensity [gCO2eq/kWh]` do; `None` where there is none."""
    found = _UNIT.search(heading)
    if found is None:
        return None
    name, of, kwh = f"{found['of']}/{found['per']}", found["of"], _KWH[found["per"].lower()]
    mass = _MASS.fullmatch(of)
    if mass is not None:
        return Unit(name=name, kind=CARBON, per_kwh=_GRAMS[mass["mass"].lower()] / kwh, currency=None)
    try:
        return Unit(name=name, kind=PRICE, per_kwh=1 / kwh, currency=values.currency(of))
    except argparse.ArgumentTypeError:
        return None


MOST_BYTES = 8 * MIB
_MOST_ROWS = 100_000
_MOST_AHEAD = 2_000  # values that are passed on: three weeks of quarters of an hour
_ALONE_S = 3600.0
_LARGEST = {PRICE: 1e6, CARBON: 1e6}  # money or grams per kWh; whatever is larger is a wrong unit
WANTED = {
    PRICE: "give rows under a heading such as time,EUR/MWh",
    CARBON: "give rows under a heading such as time,gCO2/kWh",
}
_OPTION = {PRICE: "--energy-price", CARBON: "--carbon"}


class SourceRefused(AutocapError):
    """What a source says cannot be used; the message says which line of it, and what it should hold."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Values by time. kind: "price", money per kWh, or "carbon", grams of CO₂ per kWh. currency: of the money.

    steps: (seconds since 1970, value) by time; `None` from where on nothing is known. until_s: the end of the last.
    """

    kind: str
    currency: str | None
    steps: tuple[tuple[float, float | None], ...]
    until_s: float

    def from_now(self, wall_s: float) -> "Series":
        """Without what is over, and without what is too far ahead to matter."""
        first = max(0, bisect_right(self.steps, wall_s, key=lambda step: step[0]) - 1)
        kept = self.steps[first : first + _MOST_AHEAD]
        after = self.steps[first + _MOST_AHEAD : first + _MOST_AHEAD + 1]
        until_s = after[0][0] if after else self.until_s
        return Series(kind=self.kind, currency=self.currency, steps=kept, until_s=until_s)

    def quote(self, wall_s: float, began_wall_s: float) -> Quote | None:
        """What is known at a time, seconds since 1970, and from it on without a gap; `None` where that is nothing.

        began_wall_s: when the run's clock was at 0.
        """
        shown_from = self.from_now(wall_s)
        known: list[tuple[float, float]] = []
        until_s = shown_from.until_s
        for from_s, value in shown_from.steps:
            if value is None:
                until_s = from_s
                break
            known.append((from_s - began_wall_s, value))
        if not known or known[0][0] > wall_s - began_wall_s or until_s <= wall_s:
            return None
        return Quote(kind=self.kind, values=tuple(known), until_s=until_s - began_wall_s)


def parse(data: bytes, source: str, kind: str) -> Series:
    """The values in a text. source: what messages call it. kind: that is wanted. Raises SourceRefused."""
    try:
        names, rows = read_rows(data, source, ("time",), _MOST_ROWS, WANTED[kind])
    except InputRefused as error:
        raise SourceRefused(str(error)) from error
    column, unit = _column(names, source, kind)
    steps: list[tuple[float, float | None]] = []
    for row in rows:
        at_s = _time(row)
        if steps and at_s <= steps[-1][0]:
            raise SourceRefused(
                f"{row.where}: time {shown(row.cells['time'])} is not after the one before; put rows in order"
            )
        steps.append((at_s, _value(row, column, unit)))
    return series(kind, unit.currency, steps)


def series(kind: str, currency: str | None, steps: list[tuple[float, float | None]]) -> Series:
    """Of steps that are in order, one at least."""
    last_s = steps[-1][0] - steps[-2][0] if len(steps) > 1 else _ALONE_S
    return Series(kind=kind, currency=currency, steps=tuple(steps), until_s=steps[-1][0] + last_s)


def _column(names: tuple[str, ...], source: str, kind: str) -> tuple[str, Unit]:
    units = {name: unit for name in names if name != "time" and (unit := unit_in(name)) is not None}
    of_kind = {name: unit for name, unit in units.items() if unit.kind == kind}
    if not units:
        raise SourceRefused(f"{source} lacks a column whose name holds a unit; {WANTED[kind]}")
    if not of_kind:
        found = next(iter(units.values())).name
        raise SourceRefused(f"{source} is in {shown(found)}, which is not what {_OPTION[kind]} needs; {WANTED[kind]}")
    if len(of_kind) > 1:
        both = " and ".join(shown(name) for name in list(of_kind)[:2])
        raise SourceRefused(f"{source} has the columns {both}; leave one of them")
    return next(iter(of_kind.items()))


def _time(row: InputRow) -> float:
    found_s = moment(row.cells["time"])
    if found_s is None:
        raise SourceRefused(
            f"{row.where}: time is {shown(row.cells['time'])}; give a date with a zone, such as "
            "2026-01-31T17:00:00+01:00"
        )
    return found_s


def _value(row: InputRow, column: str, unit: Unit) -> float | None:
    text = row.cells[column]
    if not text.strip():
        return None
    found = number(text)
    value = None if found is None else found * unit.per_kwh
    least, most = (0.0 if unit.kind == CARBON else -_LARGEST[PRICE]), _LARGEST[unit.kind]
    if value is None or not math.isfinite(value) or not least <= value <= most:
        raise SourceRefused(
            f"{row.where}: {shown(column)} is {shown(text)}; give a number from {plain(least / unit.per_kwh)} to "
            f"{plain(most / unit.per_kwh)}, or nothing where nothing is known"
        )
    return value
