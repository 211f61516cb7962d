"""A strategy at arm's length: what a class lacks to be one, as far as can be seen without building it, and, whoever
wrote it, all of `Strategy`'s interface, and nothing that the job would feel."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from autocap.errors import AutocapError, StrategyError
from autocap.records import Prediction, Trial, TrialLength, TrialState
from autocap.strategies.base import StrategyLike
from autocap.strategies.grid import CapGrid
from autocap.strategies.options import Needs, Option, options_of

_ARGUMENTS = ("grid", "metric", "baseline", "rng", "history", "options")
_METHODS = {"ask": (), "tell": ("trial",), "recommend": ()}  # and what each is called with
SHAPE = (
    f"it is built with the keywords {', '.join(_ARGUMENTS)} and has ask(), tell(trial) and recommend(), "
    "as `autocap help strategies` shows"
)


def complaints(factory: Callable[..., object]) -> list[str]:
    """What a strategy's class, or whatever is called like one, lacks; each as a clause."""
    found = [
        *_of_call(factory),
        *_of_options(options_of(factory)),
        *_of_needs(getattr(factory, "NEEDS", Needs.ORDERED)),
    ]
    if inspect.isclass(factory):
        found += _of_methods(factory)
    return found


def _of_call(factory: Callable[..., object]) -> Iterator[str]:
    """What is wrong with how it is built."""
    signature = _signature(factory)
    if signature is None:
        return
    kinds = {parameter.kind for parameter in signature.parameters.values()}
    by_name = {
        name: parameter
        for name, parameter in signature.parameters.items()
        if parameter.kind in (parameter.KEYWORD_ONLY, parameter.POSITIONAL_OR_KEYWORD)
    }
    refused = [name for name in _ARGUMENTS if name not in by_name and inspect.Parameter.VAR_KEYWORD not in kinds]
    if refused:
        yield f"it takes no keyword {', '.join(refused)}"
    more = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        and (name not in _ARGUMENTS or name not in by_name)
    ]
    if more:
        yield f"it cannot be built without {', '.join(more)}"


def _of_methods(kind: type) -> Iterator[str]:
    abstract = sorted(getattr(kind, "__abstractmethods__", ()))
    missing = [f"{name}()" for name in [*_METHODS, *abstract] if name in abstract or not _may_have(kind, name)]
    if missing:
        yield f"it has no {', '.join(dict.fromkeys(missing))}"
    for name, words in _METHODS.items():
        if name in abstract or not hasattr(kind, name):
            continue
        if not callable(getattr(kind, name)):
            yield f"its {name} is no method"
            continue
        given = inspect.getattr_static(kind, name, None)
        signature = _signature(getattr(kind, name))
        if signature is None or not (inspect.isfunction(given) or isinstance(given, staticmethod | classmethod)):
            continue
        own = () if isinstance(given, staticmethod | classmethod) else ("self",)
        try:
            signature.bind(*own, *words)
        except TypeError:
            yield f"its {name} cannot be called as {name}({', '.join(words)})"


def _may_have(kind: type, name: str) -> bool:
    """Whether its objects have an attribute as far as can be told: some get it only when they are built."""
    later = hasattr(kind, "__getattr__") or any(name in vars(base).get("__annotations__", {}) for base in kind.__mro__)
    return later or hasattr(kind, name)


def _of_options(table: object) -> Iterator[str]:
    if not isinstance(table, tuple | list) or not all(isinstance(option, Option) for option in table):
        yield "its OPTIONS is no tuple of autocap.strategies.Option"


def _of_needs(needs: object) -> Iterator[str]:
    if needs not in tuple(Needs):
        yield "its NEEDS is none of autocap.strategies.Needs"


def _signature(called: Callable[..., object]) -> inspect.Signature | None:
    """`None` where Python cannot tell, as of what was compiled."""
    try:
        return inspect.signature(called)
    except (TypeError, ValueError):
        return None


@contextmanager
def _arms_length() -> Iterator[None]:
    try:
        yield
    except AutocapError as error:
        raise StrategyError(f"the strategy failed: {error}") from error
    except Exception as error:  # a plug-in may raise anything
        raise StrategyError(f"the strategy failed: {type(error).__name__}: {error}") from error


class CheckedStrategy:
    """What a strategy lacks is as `Strategy` has it by default; where it raises anything, or answers what it may not,
    there is a StrategyError. build: makes it. grid: the caps that it may ask for."""

    @_arms_length()
    def __init__(self, build: Callable[[], StrategyLike], grid: CapGrid) -> None:
        self._strategy, self._grid, self._measured_w = build(), grid, set[float]()
        self.trial_length: TrialLength | None = getattr(self._strategy, "trial_length", None)

    @_arms_length()
    def ask(self) -> float | None:
        setting = self._strategy.ask()
        if setting is not None and setting not in self._grid:
            raise StrategyError(f"it asked for {self._said(setting)}, which is not on its grid")
        return None if setting is None else float(setting)

    @_arms_length()
    def tell(self, trial: Trial) -> None:
        if trial.state is TrialState.COMPLETE:
            self._measured_w.add(trial.setting)
        self._strategy.tell(trial)

    @_arms_length()
    def recommend(self) -> float | None:
        setting = self._strategy.recommend()
        if setting is not None and setting not in self._measured_w:
            raise StrategyError(f"it recommended {self._said(setting)}, which was never measured to the end")
        return None if setting is None else float(setting)

    @_arms_length()
    def explain(self) -> str | None:
        explain: Callable[[], object] = getattr(self._strategy, "explain", lambda: None)
        text = explain()
        return None if text is None else str(text)

    @_arms_length()
    def predict(self) -> tuple[Prediction, ...]:
        return self._checked(getattr(self._strategy, "predict", tuple))

    @_arms_length()
    def expect(self) -> tuple[Prediction, ...]:
        return self._checked(getattr(self._strategy, "expect", getattr(self._strategy, "predict", tuple)))

    def _checked(self, predict: Callable[[], Iterable[Prediction]]) -> tuple[Prediction, ...]:
        found = tuple(predict())
        for one in found:
            if not isinstance(one, Prediction) or one.setting not in self._grid:
                raise StrategyError(f"it predicted {one!r}, which is no Prediction of a cap on its grid")
        return found

    def _said(self, setting: object) -> str:
        """What it took for a setting."""
        if self._grid.knob.is_power_limit:
            return f"{setting!r} W"
        return self._grid.text(setting) if isinstance(setting, float) else repr(setting)

    @_arms_length()
    def expected_loss(self) -> tuple[float, float] | None:
        expected: Callable[[], tuple[float, float] | None] = getattr(self._strategy, "expected_loss", lambda: None)
        return expected()

    @property
    @_arms_length()
    def expected_trials(self) -> int | None:
        expected = getattr(self._strategy, "expected_trials", None)
        return None if expected is None else int(expected)
