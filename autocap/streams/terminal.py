"""What a terminal has room for, and which characters: asked here, and nowhere else."""

import os
from typing import TextIO

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
