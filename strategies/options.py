"""The options of a strategy: name, meaning, kind and default."""

import re
from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import dataclass

from autocap.config.values import LARGEST, number_or_none, plain, shown, truth
from autocap.errors import UsageError

OptionScalar = str | int | float | bool | None
_WHOLE = re.compile(r"[+-]?\d{1,20}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One strategy option: what it means and how its text is read.

    kind: int, float, str or bool. default: used when it is not given. required: it must be given, there is no default.
    minimum, maximum: bounds, inclusive; no number may be larger than any option's. choices: for str, what is allowed.
    is_cap: the value is a cap in watts, which is then on the grid whatever its step.
    """

    name: str
    kind: type[int] | type[float] | type[str] | type[bool]
    default: OptionScalar
    meaning: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    required: bool = False
    is_cap: bool = False

    def parse(self, text: str) -> OptionScalar:
        """The value that `text` means. Raises UsageError with what is allowed."""
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
