"""Which strategies there are, and how their options are read."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Protocol

import numpy as np

from autocap.errors import StrategyError, UsageError
from autocap.job import registry
from autocap.knobs import POWER_LIMIT, Knob
from autocap.metrics import Metric
from autocap.records import Measurement, RelativeCurve, Trial
from autocap.strategies.base import StrategyLike
from autocap.strategies.checked import SHAPE, complaints
from autocap.strategies.grid import CapGrid
from autocap.strategies.options import Needs, OptionScalar, needs_of, options_of
from autocap.text import did_you_mean

_COMPARED = ("depo-linear", "depo-golden", "gpoeo", "zeus-scan")  # how other tools search: no choice of a user's
_BEYOND = {  # why a knob is not what a strategy needs, by what that is
    Needs.POWER_LIMIT: "strategy {name} reckons in watts, and the knob {knob} is no power limit",
    Needs.ORDERED: "strategy {name} goes by the order of settings, and those of the knob {knob} have none",
}


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

    Of the last the module may lie in the current directory. Raises UsageError for a name nobody registered, or that may
    not be imported under sudo; StrategyError when its module cannot be imported and when what stands there has not the
    shape of a strategy.
    """
    if ":" in name:
        with _current_directory():
            return _imported(name)
    try:
        where = registry.where("strategies", name)
    except KeyError:
        known = [*registry.ours("strategies"), *sorted(registry.plugged_in("strategies"))]
        wrong = f"unknown strategy '{name}'{did_you_mean(name, known)}"
        if name in _COMPARED:
            wrong = f"strategy '{name}' is there to compare with, in `python -m bench strategies` of a checkout"
        raise UsageError(f"{wrong}; choose one of {', '.join(known)}, or package.module:Class") from None
    return _imported(where)


@contextmanager
def _current_directory() -> Iterator[None]:
    """Import from the current directory first, as `python -m` does, and afterwards where nothing else has the module:
    what was imported may import more when it is called."""
    try:
        here = os.getcwd()
    except FileNotFoundError:  # it was removed meanwhile
        yield
        return
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
        if here not in sys.path:
            sys.path.append(here)


def _imported(reference: str) -> StrategyFactory:
    module, _, attribute = reference.partition(":")
    try:
        factory = getattr(import_module(module), attribute)
    except Exception as error:  # a plug-in's module may raise anything while it is imported
        raise StrategyError(f"strategy {reference} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(factory):
        raise StrategyError(f"strategy {reference} is not a class; name one, as package.module:Class")
    lacking = complaints(factory)
    if lacking:
        raise StrategyError(f"strategy {reference} cannot be used: {', and '.join(lacking)}; {SHAPE}")
    return factory  # type: ignore[no-any-return]  # it has the shape of one


def require_knob(name: str, factory: StrategyFactory, knob: Knob) -> None:
    """Raises UsageError for a strategy of that name that cannot search a knob's settings, with those that can."""
    needs = needs_of(factory)
    if not needs.are_met_by(knob):
        *most, last = [one for one in registry.ours("strategies") if _can_search(one, knob)]
        raise UsageError(
            f"{_BEYOND[needs].format(name=name, knob=knob.name)}; pass --strategy {', '.join(most)} or {last}"
        )


def _can_search(name: str, knob: Knob) -> bool:
    """Whether a strategy of ours can, if what it stands on is installed."""
    try:
        return needs_of(find(name)).are_met_by(knob)
    except StrategyError:
        return False


def option_values(
    factory: StrategyFactory, given: Sequence[tuple[str, str]], knob: Knob | None = POWER_LIMIT
) -> dict[str, OptionScalar]:
    """Every option of a strategy with its value, the last of several for one name. knob: whose settings it is to
    search; `None` while only its name is known, so that nobody can tell whether it has a setting that is named.

    Raises UsageError for an option that it does not have, with those it has, and for a required one that is missing.
    """
    table = options_of(factory)
    options = {option.name: option for option in table}
    values = {option.name: option.default if knob is None else option.default_for(knob) for option in table}
    for name, text in given:
        if name not in options:
            known = ", ".join(options) or "none"
            meant = did_you_mean(name, options)
            raise UsageError(f"unknown strategy option '{name}'{meant}; this strategy's options: {known}")
        if knob is None and options[name].is_cap:
            values[name] = text
        else:
            values[name] = options[name].parse(text, knob or POWER_LIMIT)
    for option in table:
        if option.required and option.name not in dict(given):
            raise UsageError(
                f"this strategy needs the option {option.name} ({option.meaning}); "
                f"pass --strategy-option {option.name}=VALUE"
            )
    return values


def knowing(factory: StrategyFactory, elsewhere: Sequence[RelativeCurve]) -> StrategyFactory:
    """The factory that gives a strategy those curves, if it makes use of them; else as it is."""
    if not elsewhere or not getattr(factory, "ELSEWHERE", False):
        return factory
    return partial(factory, elsewhere=tuple(elsewhere))  # type: ignore[call-arg]  # who says so takes them


def allowed_now(
    factory: StrategyFactory, options: Mapping[str, OptionScalar], grid: CapGrid, caps: CapGrid
) -> dict[str, OptionScalar]:
    """The options for a search to which a ceiling, or the devices' own steps, leave some caps of the grid: where one
    names another, the next below stands for it, or the lowest of them."""
    values = dict(options)
    for option in options_of(factory):
        setting = values[option.name]
        if option.is_cap and isinstance(setting, int | float) and setting in grid and setting not in caps:
            values[option.name] = max((one_w for one_w in caps if one_w < setting), default=caps[0])
    return values


def required_caps(factory: StrategyFactory, options: Mapping[str, OptionScalar]) -> tuple[float, ...]:
    """The settings that options name, of a power limit watts: they must be on the grid, whatever its step."""
    named = (options[option.name] for option in options_of(factory) if option.is_cap)
    return tuple(float(setting) for setting in named if isinstance(setting, int | float))
