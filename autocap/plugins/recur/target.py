"""When a recurrence has reached what it trains for: a value that the job reports, and the bound that it must pass."""

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from autocap.config.values import shown
from autocap.errors import UsageError
from autocap.progress.regex import compile_pattern
from autocap.progress.values import OF_OUTPUT

_COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_FORM = re.compile(r"(.*\S)\s*(>=|<=|>|<)\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*", re.ASCII | re.DOTALL)
_NAME = re.compile(r"[A-Za-z_]\w{0,99}", re.ASCII)
_EXAMPLES = r"such as 'accuracy[:=] *([\d.]+) >= 0.75', or 'accuracy >= 0.75' for autocap.report(accuracy=…)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """text: as it was given. name: of the value, OF_OUTPUT where it is read out of the job's output. pattern: what
    finds it there, "" where the job reports it by itself. comparison, bound: what a value must be to it."""

    text: str
    name: str
    pattern: str
    comparison: str
    bound: float

    def reached(self, value: float) -> bool:
        """Whether a value is enough; one that is not a number never is."""
        return _COMPARISONS[self.comparison](value, self.bound)

    def better(self, one: float, other: float) -> bool:
        """Whether a value is nearer to the target than another."""
        return one > other if self.comparison in (">", ">=") else one < other


def target(text: str) -> Target:
    """What `--target` gives: a regular expression with a group, or the name of a reported value, and its bound.

    Raises UsageError for anything else.
    """
    form = _FORM.fullmatch(text)
    if form is None:
        raise UsageError(f"--target {shown(text)} has no bound; write a value and its bound, {_EXAMPLES}")
    what, comparison, bound = form.groups()
    if _NAME.fullmatch(what):
        return Target(text=text, name=what, pattern="", comparison=comparison, bound=float(bound))
    if not compile_pattern(what).groups:
        raise UsageError(f"--target {shown(text)} has no group that holds the value; write one in (), {_EXAMPLES}")
    return Target(text=text, name=OF_OUTPUT, pattern=what, comparison=comparison, bound=float(bound))
