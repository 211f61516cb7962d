"""Lines of JSON in both directions, and frozen records in them: strict about what arrives, safe in what leaves."""

import json
import math
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Literal, get_args, get_origin, get_type_hints

from autocap.text import printable

MOST_WHOLE = 2**53  # what every reader of JSON takes exactly
_MOST_TEXT = 1024  # characters


class BadMessage(ValueError):
    """A line that is no message of the protocol; the text says what is wrong. id: of the request, where it shows."""

    def __init__(self, text: str, id: int | None = None) -> None:
        super().__init__(text)
        self.id = id


class NotALine(BadMessage):
    """It is not even a line of JSON: what follows cannot be told from it, so the connection is closed."""


class Lines:
    """Cuts what arrives into lines. most_bytes: of one, with its newline."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes, self._held = most_bytes, bytearray()

    def feed(self, data: bytes) -> None:
        self._held += data

    def take(self) -> bytes | None:
        """The next whole line, with its newline; `None` while there is none. Raises BadMessage for one that is too
        long, even before its end has come."""
        end = self._held.find(b"\n", 0, self._most_bytes)
        if end < 0:
            if len(self._held) >= self._most_bytes:
                raise NotALine(f"a line is longer than {self._most_bytes} bytes")
            return None
        line = bytes(self._held[: end + 1])
        del self._held[: end + 1]
        return line

    @property
    def held(self) -> int:
        """Bytes that wait."""
        return len(self._held)


# Any, here and below: what JSON holds, and the types that fields are declared with.
def line_of(body: dict[str, Any], most_bytes: int) -> bytes:
    """An object as a line. Raises BadMessage where it would be too long."""
    line = _ENCODER.encode(body).encode() + b"\n"
    if len(line) > most_bytes:
        raise BadMessage(f"a message of {len(line)} bytes is longer than the {most_bytes} that are taken")
    return line


def object_in(line: bytes, most_bytes: int) -> dict[str, Any]:
    """The object in a line. Raises BadMessage for whatever else it holds."""
    if len(line) > most_bytes:
        raise NotALine(f"a line is longer than {most_bytes} bytes")
    try:
        body = _DECODER.decode(line.decode())
    except (ValueError, RecursionError):
        raise NotALine("the line is no JSON in UTF-8, has a key twice, or a number that JSON does not have") from None
    if not isinstance(body, dict):
        raise NotALine("the line is no JSON object")
    return body


def plain(value: Any) -> Any:
    """A record as JSON has it, its texts on one line each and not too long."""
    if value is None or isinstance(value, int | float):
        return value
    if isinstance(value, str):
        return printable(value)[:_MOST_TEXT]
    if isinstance(value, tuple):
        return [plain(one) for one in value]
    record: type = type(value)
    return {name: plain(getattr(value, name)) for name in hints_of(record)}


def read(hint: Any, value: Any) -> Any:
    """A value of JSON as the type of a field, or a record, has it; keys that a record lacks are left out. Raises
    BadMessage."""
    if get_origin(hint) is not Literal and type(None) in get_args(hint):
        (inner,) = (one for one in get_args(hint) if one is not type(None))
        return None if value is None else read(inner, value)
    if get_origin(hint) is tuple and type(value) is list:
        return tuple(read(get_args(hint)[0], one) for one in value)
    if get_origin(hint) is Literal and isinstance(value, str) and value in get_args(hint):
        return value
    if is_dataclass(hint) and type(value) is dict:
        return _record(hint, value)
    if hint is float and type(value) in (int, float) and abs(value) < MOST_WHOLE and math.isfinite(value):
        return float(value)
    if hint in (int, bool) and type(value) is hint and abs(value) < MOST_WHOLE:
        return value
    if isinstance(hint, type) and issubclass(hint, str) and isinstance(value, str):
        return _text(hint, value)
    raise BadMessage("it is not of the type that is expected there")


def _text(hint: type[str], value: str) -> str:
    if len(value) > _MOST_TEXT or not value.isprintable():
        raise BadMessage("a text is too long, or holds what cannot be printed")
    try:
        return hint(value)
    except ValueError:
        raise BadMessage("a word is none of those that are known") from None


def _record(cls: Any, body: dict[str, Any]) -> Any:
    hints = hints_of(cls)
    try:
        return cls(**{one.name: read(hints[one.name], body[one.name]) for one in fields(cls) if one.name in body})
    except TypeError:
        raise BadMessage(f"a key of {cls.__name__} is missing") from None


@cache
def hints_of(cls: type) -> dict[str, Any]:
    """The types of a record's fields, by name."""
    return get_type_hints(cls)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _refused(constant: str) -> float:
    raise ValueError("JSON has no word for that number")


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refused)
