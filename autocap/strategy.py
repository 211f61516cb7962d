"""How a search talks to the controller: `ask` for a cap, `tell` a trial, `recommend` what to keep.

A strategy knows no device and no time. It is built with

    grid      the caps it may ask for (CapGrid)
    metric    what is minimised (Metric), with the slowdown limit that a kept cap must respect
    baseline  the Measurement at the limit found on arrival
    rng       numpy.random.Generator; the same seed gives the same asks
    history   earlier trials, oldest first (a warm start); empty otherwise
    options   the value of every option in its OPTIONS table, by name

A cap that is asked for again is a re-measurement: the controller measures it to half the target error.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from typing import ClassVar, Protocol

import numpy as np

from autocap.errors import StrategyError, UsageError
from autocap.metrics import Metric
from autocap.records import Measurement, Trial

OptionScalar = str | int | float | bool | None
DEFAULT_STEP_W = 5.0


@dataclass(frozen=True, slots=True)
class CapGrid(Sequence[float]):
    """The caps that may be tried, watts, ascending and distinct. Behaves as a sequence of plain floats."""

    caps_w: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.caps_w or list(self.caps_w) != sorted(set(self.caps_w)):
            raise ValueError(f"a cap grid is ascending, distinct and not empty, got {self.caps_w} W")

    @classmethod
    def stepped(cls, min_w: float, max_w: float, step_w: float) -> "CapGrid":
        """Every step_w from max_w downwards, and min_w itself: the ends are worth trying even off the step."""
        count = int((max_w - min_w) / step_w + 1e-9)
        caps = {round(max_w - i * step_w, 6) for i in range(count + 1)} | {float(min_w)}
        return cls(tuple(sorted(caps)))

    def nearest(self, cap_w: float) -> float:
        """The grid's cap closest to cap_w, the lower of two equally close."""
        return min(self.caps_w, key=lambda candidate: (abs(candidate - cap_w), candidate))

    def __len__(self) -> int:
        return len(self.caps_w)

    def __getitem__(self, index):  # type: ignore[no-untyped-def]  # int gives float, slice a tuple, as tuple does
        return self.caps_w[index]

    def __iter__(self) -> Iterator[float]:
        return iter(self.caps_w)


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One strategy option: what it means and how its text is read.

    kind: int, float, str or bool. default: also used when it is not given. minimum, maximum: bounds, inclusive.
    choices: for str, what is allowed.
    """

    name: str
    kind: type[int] | type[float] | type[str] | type[bool]
    default: OptionScalar
    meaning: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    def parse(self, text: str) -> OptionScalar:
        """The value that `text` means. Raises UsageError with what is allowed."""
        if self.kind is bool:
            if text.lower() not in _BOOLEANS:
                raise UsageError(f"strategy option {self.name} is '{text}'; it takes true or false")
            return _BOOLEANS[text.lower()]
        if self.kind is str:
            if self.choices and text not in self.choices:
                raise UsageError(f"strategy option {self.name} is '{text}'; it takes {', '.join(self.choices)}")
            return text
        try:
            value = self.kind(text)
        except ValueError:
            noun = "a whole number" if self.kind is int else "a number"
            raise UsageError(f"strategy option {self.name} is '{text}'; it takes {noun}") from None
        low, high = self.minimum, self.maximum
        assert not isinstance(value, str | bool)
        if not np.isfinite(value) or (low is not None and value < low) or (high is not None and value > high):
            bounds = " ".join(
                ([f"at least {low:g}"] if low is not None else []) + ([f"at most {high:g}"] if high is not None else [])
            )
            raise UsageError(f"strategy option {self.name} is {text}; it takes a finite number {bounds}".rstrip())
        return value


_BOOLEANS = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


class StrategyLike(Protocol):
    """What the controller needs of a strategy; a plug-in need not inherit from Strategy."""

    def ask(self) -> float | None:
        """The next cap to try, watts, on the grid; `None` when the search is over."""

    def tell(self, trial: Trial) -> None:
        """The fate of the cap that was asked for last."""

    def recommend(self) -> float | None:
        """The cap to keep, one that was measured; `None` when no trial succeeded."""


class Strategy(ABC):
    """Base of the built-in strategies: keeps the trials, pools repeats, and re-measures before it recommends.

    A subclass says where to look with `_next`. When that is done, every cap whose pooled cost lies within two sigma
    of the best and that was measured only once is asked for again, best first: picking the luckiest of thirty is the
    commonest way to be wrong.
    """

    OPTIONS: ClassVar[tuple[Option, ...]] = ()

    def __init__(
        self,
        grid: CapGrid,
        metric: Metric,
        baseline: Measurement,
        rng: np.random.Generator,
        history: Sequence[Trial],
        options: Mapping[str, OptionScalar],
    ) -> None:
        self.grid, self.metric, self.baseline, self.rng = grid, metric, baseline, rng
        self.history = tuple(history)
        self.options = options

    @abstractmethod
    def _next(self) -> float | None:
        """The next cap of the search proper, `None` when it is over."""


# Built in, so that a bare clone works; other packages add theirs through the entry points `autocap.strategies`.
BUILTIN = {
    "fixed": "autocap.strategies.fixed:Fixed",
    "golden": "autocap.strategies.golden:Golden",
    "linear": "autocap.strategies.linear:Linear",
}
PLANNED = ("model", "bayesian", "bandit")


class StrategyFactory(Protocol):
    """What stands behind a strategy's name: a class, or anything called like one."""

    def __call__(
        self,
        *,
        grid: CapGrid,
        metric: Metric,
        baseline: Measurement,
        rng: np.random.Generator,
        history: Sequence[Trial],
        options: Mapping[str, OptionScalar],
    ) -> StrategyLike: ...


def find(name: str) -> StrategyFactory:
    """The strategy of that name: built in, registered by a package, or `package.module:Class`.

    Raises UsageError for a name nobody registered, StrategyError when its module cannot be imported.
    """
    if name in BUILTIN:
        return _imported(BUILTIN[name])
    if name in PLANNED:
        raise UsageError(f"strategy {name} is not available yet; choose one of {', '.join(BUILTIN)}")
    if ":" in name:
        return _imported(name)
    registered = {entry.name: entry for entry in entry_points(group="autocap.strategies")}
    if name not in registered:
        known = ", ".join([*BUILTIN, *sorted(registered)])
        raise UsageError(f"unknown strategy '{name}'; choose one of {known}, or package.module:Class")
    return _imported(registered[name].value)


def _imported(reference: str) -> StrategyFactory:
    module, _, attribute = reference.partition(":")
    try:
        factory = getattr(import_module(module), attribute)
    except Exception as error:  # a plug-in's module may raise anything while it is imported
        raise StrategyError(f"strategy {reference} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(factory):
        raise StrategyError(f"strategy {reference} is not a class; name one, as package.module:Class")
    return factory  # type: ignore[no-any-return]  # its signature shows only when it is called


def option_values(factory: StrategyFactory, given: Sequence[tuple[str, str]]) -> dict[str, OptionScalar]:
    """Every option of a strategy with its value. Raises UsageError for one it does not have, with those it has."""
    table: tuple[Option, ...] = getattr(factory, "OPTIONS", ())
    options = {option.name: option for option in table}
    values = {option.name: option.default for option in table}
    for name, text in given:
        if name not in options:
            known = ", ".join(options) or "none"
            raise UsageError(f"unknown strategy option '{name}'; this strategy's options: {known}")
        values[name] = options[name].parse(text)
    return values
