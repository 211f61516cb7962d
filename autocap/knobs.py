"""What is turned: a knob of a device, such as its power limit, and what it is set to.

A *value* is what the device takes: watts, megahertz, a level, the number of a mode. A *setting* is what a search and
everything that is said of it reckon with. Of the power limit the two are the same. Of any other knob a setting is the
place of a value in the knob's list, from 1 on, the slowest first, so that a search needs no unit, and higher is faster
wherever the values have an order. A value between two of an ordered list lies between their places.
"""

import math
import re
from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import cast

UP, DOWN = "up", "down"
# Not in the names of options and pages.
_SAID_OF_LIMITS = re.compile(r"\blimit(?= found\b)|(?<![-\w])cap(?=s?\b(?!-))")
_LONGEST = 32  # characters of a word
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

# What is written of a setting, by the key that it has where the knob is the power limit.
_KEYS = {
    "cap_w": "setting",
    "caps_w": "settings",
    "original_w": "original_setting",
    "final_w": "final_setting",
    "kept_w": "kept_setting",
}
_OF_POWER = {key: of_power for of_power, key in _KEYS.items()}
_IN_RESULT = {"cap_original_w": "original_setting", "cap_final_w": "final_setting"}  # which nobody reads back


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One knob, the same for all devices of a job.

    name: as --knob has it. unit: of its values, "" for none. values: that may be asked for, ascending; none of the
    power limit, of which each device has a range of its own. labels: what they are called instead of numbers, one each.
    faster: which way a job goes faster, "up" or "down" the values; `None` where they have no order. settle_s: how long
    after a set it acts. readable: whether the device says what it is set to. bounds_power: a setting bounds what the
    device draws, in watts. Raises ValueError for what is no knob.
    """

    name: str
    unit: str = ""
    values: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()
    faster: str | None = UP
    settle_s: float = 0.0
    readable: bool = True
    bounds_power: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", tuple(map(float, self.values)))
        if not re.fullmatch("[a-z][a-z0-9-]{,31}", self.name):
            raise ValueError(f"a knob is named by small letters, digits and hyphens, at most 32, got {self.name!r}")
        words = (self.unit, *self.labels)
        if not all(word.isprintable() and len(word) <= _LONGEST for word in words) or not all(self.labels):
            raise ValueError(f"knob {self.name}: its unit and labels are plain words of at most {_LONGEST} characters")
        if self.faster not in (UP, DOWN, None):
            raise ValueError(f"knob {self.name}: faster is {self.faster!r}; it is 'up', 'down' or None")
        if not math.isfinite(self.settle_s) or self.settle_s < 0:
            raise ValueError(f"knob {self.name}: settle_s is {self.settle_s} s; it is 0 or more")
        if self.labels and (len(self.labels) != len(self.values) or len(set(self.labels)) != len(self.labels)):
            raise ValueError(f"knob {self.name}: {len(self.values)} values need as many labels, each another one")
        if self.name != _POWER_LIMIT and len(self.values) < 2:
            raise ValueError(f"knob {self.name}: it needs two values at least, got {self.values}")
        if not all(map(math.isfinite, self.values)) or list(self.values) != sorted(set(self.values)):
            raise ValueError(f"knob {self.name}: its values are finite, distinct and ascending, got {self.values}")

    @classmethod
    def stepped(cls, name: str, low: float, high: float, step: float, **more: object) -> "Knob":
        """A knob with a range: every step from low up to high, and high itself. more: the other fields."""
        if not (0 < step < math.inf and low < high):
            raise ValueError(f"knob {name}: a range needs low < high and a positive step, got {low}, {high}, {step}")
        steps = [round(low + place * step, 9) for place in range(int((high - low) / step + 1e-9) + 1)]
        return cls(name=name, values=tuple(sorted({*steps, float(high)})), **more)  # type: ignore[arg-type]

    @property
    def is_power_limit(self) -> bool:
        return self.name == _POWER_LIMIT

    def said(self, sentence: str) -> str:
        """What is said of caps and of the limit found on arrival, as it is said of this knob."""
        if self.is_power_limit:
            return sentence
        return _SAID_OF_LIMITS.sub("setting", sentence)

    @property
    def label(self) -> str:
        """What sentences call it, on a device."""
        return "limit" if self.is_power_limit else self.name

    @property
    def short(self) -> str:
        """Before a setting."""
        return "cap" if self.is_power_limit else self.name

    @property
    def of_device(self) -> str:
        """Before a device's name, where it is said what is tuned there."""
        return "" if self.is_power_limit else f"the {self.name} of "

    @property
    def ordered(self) -> bool:
        """Whether one setting is faster than the next, so that what lies between two is like them."""
        return self.faster is not None

    @property
    def settings(self) -> tuple[float, ...]:
        """All of them; none of the power limit."""
        return tuple(float(place) for place in range(1, len(self.values) + 1))

    @property
    def tolerance(self) -> float:
        """Closer than this, two values are the same; in its unit."""
        if self.is_power_limit:
            return TOLERANCE_W
        return min(later - earlier for earlier, later in pairwise(self.values)) / 20

    def including(self, found: Sequence[float]) -> "Knob":
        """The same with these values on its list. Raises ValueError for one that is outside of it or, without an order,
        not on it."""
        known, labels = list(self.values), list(self.labels)
        for value in () if self.is_power_limit else found:
            if not (self.setting(value) in self.settings or value in known):
                place = bisect_left(known, value)
                known.insert(place, value)
                if labels:
                    labels.insert(place, f"{value:g} {self.unit}".rstrip())
        return replace(self, values=tuple(known), labels=tuple(labels))

    def setting(self, value: float) -> float:
        """The setting of a value. Raises ValueError for one that is outside of the list or, without an order, not on
        it."""
        if self.is_power_limit:
            return value
        tolerance = self.tolerance
        at = next((place for place, one in enumerate(self.values) if abs(one - value) <= tolerance), None)
        place = float(at) if at is not None else self._between(value)
        return len(self.values) - place if self.faster == DOWN else place + 1

    def setting_or_none(self, value: float | None) -> float | None:
        """The same; `None` of one that has none, or is not known."""
        with suppress(ValueError):
            return None if value is None else self.setting(value)
        return None

    def value(self, setting: float) -> float:
        """What the device is asked for. Raises ValueError as `setting`."""
        if self.is_power_limit:
            return setting
        place = len(self.values) - setting if self.faster == DOWN else setting - 1
        if not 0 <= place <= len(self.values) - 1 or (not self.ordered and place != int(place)):
            raise ValueError(f"{setting:g} is no setting of the knob {self.name}, which has {len(self.values)}")
        below, share = int(place), place - int(place)
        return self.values[below] + (share and share * (self.values[below + 1] - self.values[below]))

    @property
    def title(self) -> str:
        """Of a column of settings that are shown without their unit."""
        return "cap W" if self.is_power_limit else f"{self.name} {self.unit_shown}".rstrip()

    @property
    def unit_shown(self) -> str:
        """Behind numbers; labels have none."""
        return "" if self.labels else self.unit

    def beside(self, word: str) -> str:
        """A word for an axis or a row of settings, and their unit."""
        return f"{word}, {self.unit_shown}" if self.unit_shown else word

    def text(self, setting: float) -> str:
        """As it is shown: a label, or the value with its unit."""
        return self.value_text(self.value(setting))

    def value_text(self, value: float) -> str:
        """The same of a value, which need not be one of the list."""
        label = self._label(value)
        return f"{value:g} {self.unit}".rstrip() if label is None else label

    def bare(self, setting: float) -> str:
        """The same without a unit."""
        shown = self.shown(setting)
        return shown if isinstance(shown, str) else f"{shown:g}"

    def shown(self, setting: float) -> float | str:
        """A label, or the value."""
        value = self.value(setting)
        return self._label(value) or value

    def _label(self, value: float) -> str | None:
        return self.labels[self.values.index(value)] if self.labels and value in self.values else None

    def named(self, word: str) -> float:
        """The setting that somebody names by its label or value. Raises ValueError for one that is not on the list."""
        if word in self.labels:
            return self.labelled(word)
        known = ", ".join(self.labels or [f"{value:g}" for value in self.values])
        try:
            setting = self.setting(float(word))
        except ValueError:
            setting = math.nan
        if setting not in self.settings:
            raise ValueError(f"'{word}' is no setting of the knob {self.name}; choose of {known}")
        return setting

    def labelled(self, label: str) -> float:
        """The setting that is called so. Raises ValueError where none is."""
        return self.setting(self.values[self.labels.index(label)])

    def _between(self, value: float) -> float:
        """The place of a value that is not on the list."""
        above = bisect_left(self.values, value)
        if not self.ordered or not 0 < above < len(self.values):
            raise ValueError(f"{value:g} {self.unit}".rstrip() + f" is no value of the knob {self.name}")
        low, high = self.values[above - 1], self.values[above]
        return above - 1 + (value - low) / (high - low)


_POWER_LIMIT = "power-limit"
TOLERANCE_W = 0.5  # drivers store whole milliwatts, some devices steps of 1/8 W, and half a watt is too small to matter
POWER_LIMIT = Knob(name=_POWER_LIMIT, unit="W", bounds_power=True)


def known(name: str) -> Knob | None:
    """The power limit by its name; of another knob only the device knows more."""
    return POWER_LIMIT if name == POWER_LIMIT.name else None


def as_written(of: Json, knob: Knob) -> Json:
    """What is written of settings of a knob, given what would be if it was the power limit: keys without watts, labels
    or values instead of places. One that is none, as somebody else's, is null."""
    return of if knob.is_power_limit else _walked(of, _KEYS | _IN_RESULT, lambda one: _shown(one, knob))


def as_read(of: Json, knob: Knob) -> Json:
    """The way back. Raises ValueError for what is no setting of the knob, and for power limits in its place."""
    if knob.is_power_limit:
        return of
    if has_settings(of):
        raise ValueError(f"power limits are no settings of the knob {knob.name}")
    try:
        return _walked(of, _OF_POWER, lambda one: _place(one, knob))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def has_settings(of: Json) -> bool:
    """Whether settings are in it as they are written of the power limit."""
    left = [of]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if not _KEYS.keys().isdisjoint(one):
                return True
            left += one.values()
        elif isinstance(one, list):
            left += one
    return False


def _walked(of: Json, keys: dict[str, str], each: Callable[[Json], Json]) -> Json:
    if isinstance(of, list):
        return [_walked(one, keys, each) for one in of]
    if not isinstance(of, dict):
        return of
    return {
        keys.get(key, key): _each(one, each) if key in keys else _walked(one, keys, each) for key, one in of.items()
    }


def _each(of: Json, each: Callable[[Json], Json]) -> Json:
    return [each(one) for one in of] if isinstance(of, list) else each(of)


def _shown(setting: Json, knob: Knob) -> Json:
    if setting is None:
        return None
    return knob.shown(cast(float, setting))


def _place(shown: Json, knob: Knob) -> Json:
    if shown is None:
        return None
    if isinstance(shown, str):
        return knob.labelled(shown)
    if type(shown) not in (int, float):
        raise ValueError(f"a setting of the knob {knob.name} is a label or a number")
    return knob.setting(cast(float, shown))
