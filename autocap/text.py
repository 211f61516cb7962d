"""Text from outside, made safe to print: what a terminal would obey is shown as an escape instead; and what was
probably meant by a name that is not known.
"""

import json
import re
from collections.abc import Iterable

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


_LONGEST = 60  # characters of a name that is compared: it takes time with their square
_ALIKE = 0.6  # share of characters that a name has in common with the one that is meant


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` (did you mean energy?)`, to stand behind a name in a message; nothing where none of the known is like it.

    A name in capitals, with underscores for dashes or cut short is like the one it stands for.
    """
    from difflib import get_close_matches  # only where something is wrong already

    if len(name) > _LONGEST:
        return ""
    plain = {_plain(one): one for one in sorted(known, reverse=True)}  # the first by alphabet for two that are alike
    wanted = _plain(name)
    close = get_close_matches(wanted, plain, n=1, cutoff=_ALIKE)
    longer = [one for one in plain if wanted and one.startswith(wanted)]
    meant = longer if len(longer) == 1 else close
    return f" (did you mean {plain[meant[0]]}?)" if meant and plain[meant[0]] != name else ""


def _plain(name: str) -> str:
    return name.casefold().replace("_", "-").removeprefix("--")
