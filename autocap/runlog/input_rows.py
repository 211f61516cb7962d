"""Rows of a time and a number, as people and programs write them: CSV with a heading."""

import csv
import io
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from autocap.runlog.input_file import InputRefused


@dataclass(frozen=True, slots=True, kw_only=True)
class InputRow:
    """where: its source and line, for messages. cells: by the name of their column; one that is not there is empty."""

    where: str
    cells: Mapping[str, str]


def read_rows(
    data: bytes, source: str, columns: Sequence[str], most: int, wanted: str
) -> tuple[tuple[str, ...], list[InputRow]]:
    """The names of all columns, and the rows under them. columns: those that must be there. most: rows. wanted: what to
    give instead, for messages. Raises InputRefused for what is no such text."""
    try:
        reader = csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline=""), restval="")
        names = tuple(reader.fieldnames or ())
        missing = [column for column in columns if column not in names]
        if missing:
            raise InputRefused(f"{source} lacks the column {missing[0]}; {wanted}")
        rows = [
            InputRow(where=f"{source}, line {reader.line_num}", cells=row) for row in itertools.islice(reader, most + 1)
        ]
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputRefused(f"{source} cannot be read: {error}; {wanted}") from error
    if not 0 < len(rows) <= most:
        raise InputRefused(f"{source} holds {f'more than {most}' if rows else '0'} rows; give 1 to {most}")
    return names, rows


def number(text: str) -> float | None:
    """The number in a cell, which may be infinite or no number by name; `None` for any other text."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if text.strip().isascii() else None


def moment(text: str) -> float | None:
    """Seconds since 1970 of an ISO 8601 date with a zone; `None` for any other text."""
    try:
        found = datetime.fromisoformat(text.strip())
        return None if found.tzinfo is None else found.timestamp()
    except (ValueError, OverflowError):
        return None
