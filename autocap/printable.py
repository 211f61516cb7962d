"""Text from outside, made safe to print: what a terminal would obey is shown as an escape instead."""

import json
import re

# C0 and C1 with DEL; the marks, embeddings, overrides and isolates that turn the direction of text round; the
# separators at which some readers break a line; and surrogates, which no stream can encode.
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    """The text on one line, with `\\x1b` and the like for each character that a terminal obeys or cannot take."""
    return _OBEYED.sub(_escape, text)


def printable_json(value: object, indent: int | None = None) -> str:
    """A value as JSON, in ASCII without control characters, DEL among them, on one line unless it is to be indented.

    Raises ValueError for what JSON cannot say, such as an infinity.
    """
    return json.dumps(value, allow_nan=False, indent=indent).replace("\x7f", "\\u007f")


def _escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape", "backslashreplace").decode()
