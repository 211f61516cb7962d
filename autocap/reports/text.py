"""A document as text for a terminal, line by line and without colour, no wider than the terminal."""

import re
import sys
from collections.abc import Iterator, Sequence

from rich.cells import cell_len, chop_cells

from autocap.reports.document import Document, Sentences, Table
from autocap.text import columns, encoding_of, printable, put, spelled

WIDTH = 120  # characters, where no terminal says how many there are
_ROOM = 160  # of a table by itself
_INDENT = "  "  # of a sentence's second line, and of a remark below its row
_GAPS = (2, 1)  # between columns
_LEAST_REMARK = 24  # characters, for which other columns make room
_TOGETHER = re.compile(r" (?=(?:±|\+/-|%)(?: |,|;|$))|(?<= ±) |(?<= \+/-) ")


def lines(document: Document, width: int | None = None, encoding: str = "utf-8") -> list[str]:
    """Its sentences and tables, an empty line between them.

    width: of the terminal, in characters; `None`, where there is none: then a sentence is one line however long, and
    tables are for 120. encoding: of the stream that they are for.
    """
    out: list[str] = []
    for block in document.body:
        if isinstance(block, Sentences):
            sentences = [spelled(printable(line), encoding) for line in block.lines]
            out += [
                "",
                *(sentences if width is None else [part for line in sentences for part in folded(line, width)]),
            ]
        elif not block.page_only:
            heading = spelled(printable(block.title), encoding)
            out += ["", *folded(heading, width or WIDTH), *table_lines(block, width or WIDTH, encoding)]
    return out[1:]


def show(shown: Document | Table) -> None:
    """Print a document, or a table without its heading, which for a reader that is no terminal has room for more."""
    width, encoding = columns(sys.stdout), encoding_of(sys.stdout)
    if isinstance(shown, Document):
        put(*lines(shown, width, encoding))
    else:
        put(*table_lines(shown, width or _ROOM, encoding))


def table_lines(table: Table, width: int, encoding: str = "utf-8") -> list[str]:
    """Its titles and rows without the heading; a row takes more than one line where its remark has no room beside it.

    Numbers are aligned to the right, `table.left` and the remarks to the left. No cell is cut: columns go whole, as
    `table.spare` says.
    """
    cells = [[spelled(printable(cell), encoding) for cell in row] for row in (table.titles, *table.rows)]
    shown, gap = _columns(table, cells, width)
    *sizes, _ = (max(cell_len(row[column]) for row in cells) for column in shown)
    room = width - sum(sizes) - gap * len(sizes)
    *_, remark = shown
    beneath = room < _longest_word(row[remark] for row in cells)
    out = []
    for row in cells:
        padded = [
            _padded(row[column], size, left=column in table.left)
            for column, size in zip(shown[:-1], sizes, strict=True)
        ]
        head = (" " * gap).join(padded)
        if beneath:
            out.append(head.rstrip())
            out += [_INDENT + part for part in _wrapped(row[remark], width - len(_INDENT)) if part]
        else:
            first, *more = _wrapped(row[remark], room)
            out.append(f"{head}{' ' * gap}{first}".rstrip())
            out += [" " * (width - room) + part for part in more]
    return out


def _columns(table: Table, cells: Sequence[Sequence[str]], width: int) -> tuple[list[int], int]:
    """The columns that there is room for, and how far they stand apart."""
    shown = list(range(len(table.titles)))
    *numbers, remark = (max(cell_len(row[column]) for row in cells) for column in shown)
    least = max(min(remark, _LEAST_REMARK), _longest_word(row[-1] for row in cells))
    for column in (*table.spare, None):
        if sum(numbers[one] + _GAPS[0] for one in shown[:-1]) + least <= width:
            return shown, _GAPS[0]
        if column is not None:
            shown.remove(column)
    for column in table.below:  # with the remark below
        if sum(numbers[one] + _GAPS[0] for one in shown[:-1]) <= width:
            return shown, _GAPS[0]
        shown.remove(column)
    least = _longest_word(row[-1] for row in cells)
    for gap in _GAPS:
        if sum(numbers[one] + gap for one in shown[:-1]) + least <= width:
            return shown, gap
    return shown, _GAPS[-1]


def _padded(cell: str, size: int, *, left: bool) -> str:
    room = " " * (size - cell_len(cell))
    return cell + room if left else room + cell


def _longest_word(texts: Iterator[str]) -> int:
    """Characters of the longest word; one that is very long may be broken."""
    return min(_LEAST_REMARK, max((cell_len(word) for text in texts for word in text.split()), default=0))


def folded(sentence: str, width: int) -> list[str]:
    """A sentence on as many lines as it takes, as far as it can be broken between words; no number is torn from its
    error and its unit."""
    if cell_len(sentence) <= width:
        return [sentence]
    indent = " " * (len(sentence) - len(sentence.lstrip(" ")))
    whole = _TOGETHER.sub("\N{NO-BREAK SPACE}", sentence.strip(" "))
    first, *more = _wrapped(whole, width - len(indent) - len(_INDENT), longest=None)
    parts = [indent + first, *(indent + _INDENT + part for part in more)]
    return [part.replace("\N{NO-BREAK SPACE}", " ") for part in parts]


def _wrapped(text: str, width: int, *, longest: int | None = 0) -> list[str]:
    """The text in lines of that width; a longer word is broken, or, where longest is `None`, left whole."""
    out = [""]
    for word in text.split(" "):
        longer = f"{out[-1]} {word}" if out[-1] else word
        if cell_len(longer) <= width:
            out[-1] = longer
        elif longest is None or cell_len(word) <= width:
            out.append(word)
        else:
            out += chop_cells(word, max(1, width))
    return [line for line in out if line] or [""]
