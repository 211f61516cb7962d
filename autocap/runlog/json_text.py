"""One reader of JSON that somebody else may have written: within limits that the standard one does not have."""

import json

from autocap.runlog.codec import Json

_MOST_DIGITS = 18  # of an integer: what 64 bits hold


def parse(text: bytes, most_bytes: int) -> Json:
    """The value that is written there, in UTF-8.

    Raises ValueError for what is no JSON or longer, for NaN and infinities, which JSON does not have, and for integers
    of more than 18 digits; RecursionError for what is nested deeper than the interpreter's own calls may be.
    """
    if len(text) > most_bytes:
        raise ValueError(f"it is longer than {most_bytes} bytes")
    value: Json = _DECODER.decode(text.decode())
    return value


def _integer(digits: str) -> int:
    if len(digits) > _MOST_DIGITS + 1:  # and a sign
        raise ValueError("an integer is beyond all measure")
    return int(digits)


def _refused(constant: str) -> float:
    raise ValueError("JSON has no word for that number")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_constant=_refused)
