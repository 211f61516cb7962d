"""The options of a strategy: name, meaning, kind and default."""

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from autocap.config.values import LARGEST, number_or_none, plain, shown, truth
from autocap.errors import UsageError
from autocap.knobs import POWER_LIMIT, Knob

OptionScalar = str | int | float | bool | None
_WHOLE = re.compile(r"[+-]?\d{1,20}", re.ASCII)


class Needs(StrEnum):
    """What a strategy needs of the knob whose settings it tries."""

    POWER_LIMIT = "power-limit"  # it reckons in watts
    ORDERED = "ordered"  # it takes settings beside each other for alike, and the lower one for slower
    ANY = "any"

    def are_met_by(self, knob: Knob) -> bool:
        return self is Needs.ANY or (knob.ordered if self is Needs.ORDERED else knob.is_power_limit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One strategy option: what it means and how its text is read.

    kind: int, float, str or bool. default: used when it is not given; elsewhere: the same where the knob is no power
    limit, `None` where that changes nothing. required: it must be given, there is no default.
    minimum, maximum: bounds, inclusive; no number may be larger than any option's. choices: for str, what is allowed.
    is_cap: the value is a cap in watts, which is then on the grid whatever its step, and of another knob a setting that
    is given by its label or value.
    """

    name: str
    kind: type[int] | type[float] | type[str] | type[bool]
    default: OptionScalar
    meaning: str
    elsewhere: OptionScalar = None
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    required: bool = False
    is_cap: bool = False

    def default_for(self, knob: Knob) -> OptionScalar:
        """What is used when it is not given."""
        return self.default if knob.is_power_limit or self.elsewhere is None else self.elsewhere

    def parse(self, text: str, knob: Knob = POWER_LIMIT) -> OptionScalar:
        """The value that `text` means. Raises UsageError with what is allowed."""
        if self.is_cap and not knob.is_power_limit:
            try:
                return knob.named(text)
            except ValueError as error:
                raise UsageError(f"strategy option {self.name}: {error}") from None
        if self.kind is bool:
            try:
                return truth(text)
            except ArgumentTypeError:
                raise UsageError(f"strategy option {self.name} is '{text}'; it takes true or false") from None
        if self.kind is str:
            if self.choices and text not in self.choices:
                raise UsageError(f"strategy option {self.name} is '{text}'; it takes {', '.join(self.choices)}")
            return text
        value = number_or_none(text)
        if value is None or (self.kind is int and not _WHOLE.fullmatch(text)):
            noun = "a whole number" if self.kind is int else "a number"
            raise UsageError(f"strategy option {self.name} is {shown(text)}; it takes {noun}")
        low, high = self.minimum, self.maximum
        if not abs(value) <= LARGEST or (low is not None and value < low) or (high is not None and value > high):
            bounds = " ".join(
                ([f"at least {low:g}"] if low is not None else [])
                + [f"at most {plain(LARGEST) if high is None else f'{high:g}'}"]
            )
            raise UsageError(
                f"strategy option {self.name} is {shown(text)}; it takes a finite number {bounds}".rstrip()
            )
        return self.kind(text)


def options_of(factory: Callable[..., object]) -> tuple[Option, ...]:
    """Those of a strategy's class, or whatever is called like one."""
    return getattr(factory, "OPTIONS", ())


def needs_of(factory: Callable[..., object]) -> Needs:
    """Those of a strategy that does not say are of most that were written for caps."""
    return Needs(getattr(factory, "NEEDS", Needs.ORDERED))
