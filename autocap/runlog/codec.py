"""Frozen records to plain JSON values and back, by their type hints.

A number that JSON has no word for (infinite, not a number) is written as null. Read back, null in a field that must
be a number is infinite: the fields that can be are standard errors.
"""

import dataclasses
import functools
import math
import re
import types
import typing
from collections.abc import Mapping
from enum import Enum

_T = typing.TypeVar("_T")
# Half a character, which no stream takes; but for those that stand for a byte of an argument that was not UTF-8.
_LONE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]

_hints = functools.cache(typing.get_type_hints)  # reading the hints takes longer than all the rest


def encode(value: object) -> Json:
    """A record, or a part of one, as JSON values. Raises TypeError for what no record holds."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: encode(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, Enum):
        return encode(value.value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None  # float(): a subclass may print itself differently
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(f"a record holds no {type(value).__name__}: {value!r}")


def decode(kind: type[_T], value: Json) -> _T:
    """The record of that type. Fields it does not know are ignored, absent ones take their defaults.

    Half a surrogate pair in a string becomes an escape. Raises ValueError, TypeError or OverflowError where the value
    is not such a record.
    """
    return typing.cast(_T, _decoded(kind, value))  # _decoded goes by `kind`, which the type checker cannot follow


def _decoded(kind: object, value: Json) -> object:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        if not isinstance(value, Mapping):
            raise ValueError(f"{kind.__name__} is written as an object")
        hints = _hints(kind)
        names = [field.name for field in dataclasses.fields(kind) if field.name in value]
        return kind(**{name: _decoded(hints[name], value[name]) for name in names})
    if isinstance(kind, types.UnionType) or typing.get_origin(kind) is typing.Union:
        return _one_of(typing.get_args(kind), value)
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, list):
            raise ValueError("a tuple is written as a list")
        return tuple(_decoded(typing.get_args(kind)[0], item) for item in value)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return kind(value)
    if kind is float:
        if value is None:
            return math.inf
        if isinstance(value, int | float) and not isinstance(value, bool):
            return float(value)
    elif isinstance(kind, type) and type(value) is kind:
        return value if not isinstance(value, str) or value.isascii() else _LONE.sub(_escaped, value)
    raise ValueError(f"it is not {kind}")  # what it is instead is not ours to show


def _escaped(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):x}"


def _one_of(kinds: tuple[object, ...], value: Json) -> object:
    """The member of a union that a value is: exactly of its type if one is, else the first that takes it."""
    if type(value) in kinds:
        return _decoded(type(value), value)
    for kind in kinds:
        try:
            return _decoded(kind, value)
        except (ValueError, TypeError, OverflowError):
            continue
    raise ValueError(f"it is none of {kinds}")
