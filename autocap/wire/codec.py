"""Frozen records to plain JSON values and back, by their type hints.

There are two ways. Records that we keep for ourselves may be of another version: a number that JSON has no word for
(infinite, not a number) is written as null, and read back, null in a field that must be a number is infinite: the
fields that can be are standard errors. `strict` is for what other users say: numbers are finite and below 2^53, texts
are printable and of at most 1024 characters.

A field is written under its own name, or under the one that its metadata has as "key"; not at all where that is None.
"""

import functools
import math
import operator
import re
import types
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from autocap.text import printable
from autocap.wire.json_lines import MOST_WHOLE, BadMessage, Json

_T = TypeVar("_T")
_MOST_TEXT = 1024  # characters
# Half a character, which no stream takes; but for those that stand for a byte of an argument that was not UTF-8.
_LONE = re.compile("[\ud800-\udc7f\udd00-\udfff]")
_Read = Callable[[Any], Any]  # a value of JSON as the type of a field has it


def encode(value: object, *, strict: bool = False, flat: bool = False) -> Json:
    """A record, or a part of one, as JSON values; of strict ones each text on one line, and cut where it is too long.
    flat: a record is a list of its values, without their names. Raises TypeError for what no record holds."""
    return _plain(value, strict, flat)


def _plain(value: object, strict: bool, flat: bool) -> Json:
    if value is None or isinstance(value, float):  # what there is most of
        is_number = value is not None and (strict or math.isfinite(value))
        return float(value) if value is not None and is_number else None  # float(): a subclass may print itself else
    kind: Any = type(value)
    names = _names(kind)
    if names is not None:
        of = [  # most are plain numbers, and a call for each would take longer than all the rest
            one
            if one is None or type(one) is bool or (type(one) is float and one - one == 0)
            else _plain(one, strict, flat)
            for one in _values(kind)(value)
        ]
        return of if flat else dict(zip(_keys(kind), of, strict=True))
    if isinstance(value, tuple | list):
        return [_plain(item, strict, flat) for item in value]
    if isinstance(value, Enum):
        return _plain(value.value, strict, flat)
    if isinstance(value, str):
        return printable(value)[:_MOST_TEXT] if strict else value
    if isinstance(value, int):
        return value
    raise TypeError(f"a record holds no {kind.__name__}: {value!r}")


def decode(kind: type[_T], value: Json, *, strict: bool = False, flat: bool = False) -> _T:
    """The record of that type. Fields it does not know are ignored, absent ones take their defaults.

    Half a surrogate pair in a string becomes an escape. Raises BadMessage where the value is not such a record, and
    what the record itself raises.
    """
    of: Any = kind
    return cast(_T, _reader(of, strict, flat)(value))  # which the type checker cannot follow


@functools.cache
def _names(kind: Any) -> tuple[str, ...] | None:
    """The fields of a record; `None` of what is none."""
    return tuple(_written(kind)) if is_dataclass(kind) else None


@functools.cache
def _keys(kind: Any) -> tuple[str, ...]:
    """What the fields of a record are written under, in the order of `_names`."""
    return tuple(_written(kind).values())


def _written(kind: Any) -> dict[str, str]:
    """By the name of each field that is written the key that it has."""
    keys = ((field.name, field.metadata.get("key", field.name)) for field in fields(kind))
    return {name: key for name, key in keys if key is not None}


@functools.cache
def _values(kind: Any) -> Callable[[Any], tuple[object, ...]]:
    """The values of a record's fields, in the order of `_names`."""
    names = _names(kind) or ()
    found = operator.attrgetter(*names) if len(names) > 1 else None
    return found or (lambda record: tuple(getattr(record, name) for name in names))


@functools.cache
def _reader(kind: Any, strict: bool, flat: bool) -> _Read:
    """How values of that type are read: looking at the type each time takes longer than all the rest."""
    origin, args = get_origin(kind), get_args(kind)
    if origin in (types.UnionType, Union):
        return _union([(one, _reader(one, strict, flat)) for one in args if one is not type(None)])
    if origin is tuple:
        items = [_reader(one, strict, flat) for one in args if one is not Ellipsis]
        return functools.partial(_tuple, items[0] if args[-1] is Ellipsis else items)
    if origin is Literal:
        return lambda value: value if isinstance(value, str) and value in args else _refused()
    if kind is float:
        return _finite if strict else _float
    if kind is str:
        return _text if strict else _escaped
    if is_dataclass(kind):
        return functools.partial(_record, kind, strict, flat)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return functools.partial(_word, kind)
    if kind in (int, bool) and strict:
        return lambda value: value if type(value) is kind and abs(value) < MOST_WHOLE else _refused()
    return lambda value: value if type(value) is kind else _refused()


def _refused() -> Any:
    raise BadMessage("it is not of the type that is expected there")  # what it is instead is not ours to show


def _float(value: Any) -> Any:
    if type(value) is float:
        return value
    if value is None:
        return math.inf
    try:
        return float(value) if type(value) is int else _refused()
    except OverflowError:
        return _refused()


def _optional_float(value: Any) -> Any:
    return None if value is None else _float(value)


def _finite(value: Any) -> Any:
    if type(value) not in (int, float):
        return _refused()
    if not abs(value) < MOST_WHOLE:
        raise BadMessage("a number is not finite, or beyond 2^53")
    return float(value)


def _escaped(value: Any) -> str:
    if type(value) is not str:
        _refused()
    return value if value.isascii() else _LONE.sub(lambda found: f"\\u{ord(found[0]):x}", value)


def _text(value: Any) -> str:
    if type(value) is not str:
        _refused()
    if len(value) > _MOST_TEXT or not value.isprintable():
        raise BadMessage("a text is too long, or holds what cannot be printed")
    return cast(str, value)


def _word(kind: type[Enum], value: Any) -> Enum:
    try:
        return kind(value)
    except ValueError:
        raise BadMessage("a word is none of those that are known") from None


def _tuple(items: _Read | list[_Read], value: Any) -> tuple[Any, ...]:
    if type(value) is not list or (isinstance(items, list) and len(items) != len(value)):
        _refused()
    if isinstance(items, list):
        return tuple(read(one) for read, one in zip(items, value, strict=True))
    return tuple(map(items, value))


def _union(members: list[tuple[Any, _Read]]) -> _Read:
    """The member of a union, one of which is `None`, that a value is: exactly of its type if one is, else the first
    that takes it."""
    exact = dict(members)
    if len(exact) == 1:
        ((_, only),) = members
        return _optional_float if only is _float else lambda value: None if value is None else only(value)

    def read(value: Any) -> Any:
        if value is None:
            return None
        if type(value) in exact:
            return exact[type(value)](value)
        for _, one in members:
            try:
                return one(value)
            except ValueError:
                continue
        return _refused()

    return read


@functools.cache
def _fields(kind: Any, strict: bool, flat: bool) -> tuple[tuple[str, str, _Read, bool], ...]:
    """Of each field its key, its name, how it is read, and whether every float is read as it is."""
    hints = get_type_hints(kind)
    readers = ((name, _reader(hints[name], strict, flat)) for name in _names(kind) or ())
    found = ((name, read, read in (_float, _optional_float)) for name, read in readers)
    return tuple((key, *one) for key, one in zip(_keys(kind), found, strict=True))


def _record(kind: Any, strict: bool, flat: bool, value: Any) -> Any:
    of = _fields(kind, strict, flat)
    if type(value) is not (list if flat else dict) or (flat and len(value) > len(of)):
        _refused()
    held = zip(of, value, strict=False) if flat else ((field, value[field[0]]) for field in of if field[0] in value)
    made, name = {}, ""
    try:
        for (_, name, read, as_it_is), one in held:
            made[name] = one if as_it_is and type(one) is float else read(one)
    except BadMessage as error:
        raise BadMessage(f"{name}: {error}") from None
    try:
        return kind(**made)
    except TypeError:
        raise BadMessage(f"a key of {kind.__name__} is missing") from None
