"""Whether a class is a strategy as far as can be seen without building one: what a plug-in of a wrong shape lacks."""

import inspect
from collections.abc import Callable, Iterator

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
