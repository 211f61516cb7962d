"""What is printed, and the streams that it goes to: whatever it holds, a terminal shows it and obeys nothing of it.
What a terminal has room for, and which characters, is asked here and nowhere else.
"""

import io
import os
import sys
from contextlib import suppress
from typing import TextIO

from autocap.text import printable, printable_json

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
