"""JSON that somebody else may have written: within limits that the standard reader does not have; and requests, one
object a line, as a helper and the manager of a budget take them."""

import json
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

MOST_WHOLE = 2**53  # what every reader of JSON takes exactly
_MOST_DIGITS = 18  # of an integer: what 64 bits hold
Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
_Op = TypeVar("_Op")


class BadMessage(ValueError):
    """It is none of the protocol's messages, or of our records; the text says what is wrong. id: of the request, where
    it shows."""

    def __init__(self, text: str, id: int | None = None) -> None:
        super().__init__(text)
        self.id = id


class NotALine(BadMessage):
    """It is not even a line of JSON: what follows cannot be told from it, so the connection is closed."""


def parse(text: bytes, most_bytes: int) -> Json:
    """The value that is written there, in UTF-8.

    Raises ValueError for what is no JSON or longer, for NaN and infinities, which JSON does not have, for integers of
    more than 18 digits, and for what is nested deeper than the interpreter's own calls may be.
    """
    if len(text) > most_bytes:
        raise ValueError(f"it is longer than {most_bytes} bytes")
    try:
        value: Json = _DECODER.decode(text.decode())
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    return value


def object_in(line: bytes, most_bytes: int) -> dict[str, Any]:
    """The object in a line, with or without its newline. Raises NotALine for whatever else it holds."""
    if len(line) > most_bytes:
        raise NotALine(f"a line is longer than {most_bytes} bytes")
    try:
        body = _EXACT.decode(line.decode())
    except (ValueError, RecursionError):
        raise NotALine("the line is no JSON in UTF-8, has a key twice, or a number that JSON does not have") from None
    if not isinstance(body, dict):
        raise NotALine("the line is no JSON object")
    return body


def request_in(line: bytes, most_bytes: int, version: int, ops: Mapping[str, _Op]) -> tuple[int, _Op, dict[str, Any]]:
    """The id of a request, what is asked, and its further keys. Raises BadMessage."""
    body = object_in(line, most_bytes)
    id, said, name = body.pop("id", None), body.pop("v", None), body.pop("op", None)
    if type(id) is not int or not 0 <= id < MOST_WHOLE:
        raise BadMessage("id is no whole number from 0 on")
    if said != version or type(said) is not int:
        raise BadMessage(f"v is not {version}, the version that is spoken here", id)
    op = ops.get(name) if isinstance(name, str) else None
    if op is None:
        raise BadMessage(f"op is none of {', '.join(ops)}", id)
    return id, op, body


def answer_in(line: bytes, most_bytes: int, version: int) -> tuple[int | None, dict[str, Any]]:
    """The id of the request, `None` where that was not understood or there was none, and the answer. Raises
    BadMessage."""
    body = object_in(line, most_bytes)
    id = body.get("id")
    if body.get("v") != version or not (id is None or type(id) is int):
        raise BadMessage(f"it is no answer of version {version}")
    return id, body


def names_of(kinds: Iterable[type], written: Mapping[type, str]) -> dict[type, str]:
    """What each kind of message is called in a line: its class's name, in small letters. written: of those that are
    called otherwise, as earlier versions called them."""
    return {kind: written.get(kind, kind.__name__.lower()) for kind in kinds}


def line_of(body: Mapping[str, object], most_bytes: int) -> bytes:
    """An object as a line, with its newline. Raises BadMessage where it would be too long, ValueError for a number that
    JSON does not have."""
    line = _ENCODER.encode(body).encode() + b"\n"
    if len(line) > most_bytes:
        raise BadMessage(f"a message of {len(line)} bytes is longer than the {most_bytes} that are taken")
    return line


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(found := dict(pairs)) < len(pairs):
        raise ValueError("a key stands there twice")
    return found


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS + 1:  # and a sign
        raise ValueError("an integer is beyond all measure")
    return int(digits)


def _refused(constant: str) -> float:
    raise ValueError("JSON has no word for that number")


_ENCODER = json.JSONEncoder(allow_nan=False, separators=(",", ":"))
_DECODER = json.JSONDecoder(parse_int=_integer, parse_constant=_refused)
_EXACT = json.JSONDecoder(object_pairs_hook=_once, parse_constant=_refused)
