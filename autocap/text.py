"""Text that is printed, and the streams that it goes to: whatever it holds, a terminal shows it and obeys none of it.
What a terminal has room for, and which characters, is asked here and nowhere else; and so is what was probably meant by
a name that is not known.
"""

import io
import json
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import TextIO

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


PREFIX = "autocap: "


class PrintableStream(io.TextIOBase):
    """Text for another stream, with escapes for what a terminal would obey, other than the ends of lines, and other
    words for what its encoding lacks.

    beneath: the other stream, which takes everything: for what draws on a terminal on purpose. failure: the first error
    of a write, whether or not somebody has dealt with it.
    """

    def __init__(self, beneath: TextIO) -> None:
        self.beneath = beneath
        self.failure: OSError | None = None

    @property
    def encoding(self) -> str:  # type: ignore[override]  # an attribute there, which is not to be set
        return self.beneath.encoding

    def write(self, text: str) -> int:
        """Raises what the stream beneath does."""
        try:
            safe = "\n".join(map(printable, text.split("\n")))
            self.beneath.write(spelled(safe, encoding_of(self.beneath)))
        except OSError as error:
            self.failure = self.failure or error
            raise
        return len(text)

    def flush(self) -> None:
        """Raises what the stream beneath does."""
        try:
            self.beneath.flush()
        except OSError as error:
            self.failure = self.failure or error
            raise

    def close(self) -> None:
        """The stream beneath is not ours to close."""

    def fileno(self) -> int:
        return self.beneath.fileno()

    def isatty(self) -> bool:
        return self.beneath.isatty()

    def writable(self) -> bool:
        return True


def beneath(stream: TextIO) -> TextIO:
    """The stream that takes escape sequences, for what draws on a terminal on purpose."""
    return stream.beneath if isinstance(stream, PrintableStream) else stream


def put(*lines: str) -> None:
    """Print on standard output, each on one line whatever it holds. Raises OSError."""
    sys.stdout.write("".join(f"{printable(line)}\n" for line in lines))
    sys.stdout.flush()


def put_json(value: object, *, shared: bool = False) -> None:
    """Print a value on standard output as a line of JSON. Raises OSError.

    shared: a job writes there too. It may have left its last line open, which nobody can see, so that a line end comes
    first; where it had ended its line, this is an empty one.
    """
    put(*([""] if shared else []), printable_json(value))


def note(*sentences: str) -> None:
    """Say something on standard error, each sentence on one line; a stream that is gone is no reason to stop."""
    with suppress(OSError, ValueError):
        sys.stderr.write("".join(f"{PREFIX}{printable(sentence)}\n" for sentence in sentences))
        sys.stderr.flush()


# What stands for a character that an encoding lacks; any other becomes an escape.
_SPELLED = {
    "±": "+/-",
    "–": "-",
    "—": "-",
    "−": "-",
    "·": "-",
    "…": "...",
    "→": "->",
    "×": "x",
    "≤": "<=",
    "≥": ">=",
    "²": "2",
    "₂": "2",
    "µ": "u",
    "€": "EUR",
    "£": "GBP",
    "¥": "JPY",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
    "━": "-",
    "╸": "-",
    "╺": "-",
}
_FOREIGN = str.maketrans(_SPELLED)


def columns(stream: TextIO) -> int | None:
    """Characters in a line of the terminal that a stream goes to; of none, what COLUMNS says, or `None`."""
    try:
        found = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError):  # no terminal
        found = 0
    said = os.environ.get("COLUMNS", "")
    if not found and said.isascii() and said.isdigit() and len(said) < 5:
        found = int(said)
    return found or None


def encoding_of(stream: TextIO) -> str:
    """The encoding of a stream; UTF-8 of one that takes text as it is."""
    return getattr(stream, "encoding", None) or "utf-8"


def spelled(text: str, encoding: str) -> str:
    """The text with `+/-` for ± and the like, where the encoding lacks such a character."""
    if text.isascii() or encoding.lower().startswith("utf"):
        return text
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(_in(one, encoding) for one in text)
    except LookupError:
        return text.translate(_FOREIGN)
    return text


def fresh_line(width: int) -> str:
    """Moves the cursor of a terminal of that width to the start of a line: of the next one, if somebody else has left
    it in the middle of one, and of this one if not.

    So many spaces end in the last column if they begin in the first, and else on the line below (as zsh does before its
    prompt); nothing to the left of the cursor is lost.
    """
    return f"{' ' * width}\r"


def _in(character: str, encoding: str) -> str:
    try:
        character.encode(encoding)
    except UnicodeEncodeError:
        return _SPELLED.get(character, character)
    return character
