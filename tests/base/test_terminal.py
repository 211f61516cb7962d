"""What a terminal has room for, and how what its encoding lacks is written."""

import fcntl
import io
import os
import pty
import struct
import termios
from collections.abc import Iterator
from typing import TextIO, cast

import pytest

from autocap.reports.live.terminal import LiveView
from autocap.text import PrintableStream, columns, fresh_line, put_json, spelled


@pytest.mark.parametrize(
    ("text", "encoding", "shown"),
    [
        ("9 ± 1 – 2 … → × ≥", "ascii", "9 +/- 1 - 2 ... -> x >="),
        ("9 ± 1 – 2 … ×", "latin-1", "9 ± 1 - 2 ... ×"),
        ("9 ± 1 – 2 … ×", "utf-8", "9 ± 1 – 2 … ×"),
        ("9 ± 1 – 2 … ×", "UTF-8", "9 ± 1 – 2 … ×"),
        ("é ±", "ascii", "é +/-"),
        ("±", "no such encoding", "+/-"),
        ("plain", "no such encoding", "plain"),
    ],
)
def test_what_an_encoding_lacks_is_spelled(text: str, encoding: str, shown: str) -> None:
    assert spelled(text, encoding) == shown


def test_whatever_is_printed_is_spelled_for_the_stream_beneath() -> None:
    written = io.BytesIO()
    beneath = io.TextIOWrapper(written, "ascii", errors="backslashreplace")
    stream = PrintableStream(beneath)
    stream.write("27 ± 1 … é\n")
    stream.flush()
    assert written.getvalue() == rb"27 +/- 1 ... \xe9" + b"\n"


@pytest.mark.parametrize(("said", "found"), [("72", 72), ("0", None), ("-5", None), ("wide", None), ("", None)])
def test_without_a_terminal_columns_may_say_how_wide_it_is(said, found, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", said)
    assert columns(io.StringIO()) == found


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[int, TextIO]]:
    """A terminal of 60 columns: its end, and the stream of whoever writes to it."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 60, 0, 0))
    monkeypatch.setenv("COLUMNS", "72")
    with os.fdopen(theirs, "w") as stream:
        yield ours, stream
    os.close(ours)


def test_a_terminal_says_itself_how_wide_it_is(screen: tuple[int, TextIO]) -> None:
    assert columns(screen[1]) == 60


def shown_by(text: str, width: int) -> list[str]:
    """The lines of a terminal of that width, which wraps as a VT100 does: with the character after the last column."""
    rows, row, column = [[" "] * width], 0, 0
    for one in text:
        if one == "\r":
            column = 0
        elif one == "\n":
            row += 1
            rows += [[" "] * width] if row == len(rows) else []
        else:
            if column == width:
                row, column = row + 1, 0
                rows += [[" "] * width] if row == len(rows) else []
            rows[row][column] = one
            column += 1
    return ["".join(line).rstrip() for line in rows]


@pytest.mark.parametrize(
    ("before", "shown"),
    [
        ("", ["warning"]),
        ("epoch 1\r\n", ["epoch 1", "warning"]),
        ("\r 45%|###", [" 45%|###", "warning"]),
        ("a" * 19, ["a" * 19, "warning"]),
        ("a" * 20, ["a" * 20, "warning"]),
        ("a" * 25, ["a" * 20, "a" * 5, "warning"]),
    ],
)
def test_a_fresh_line_is_this_one_or_the_next(before: str, shown: list[str]) -> None:
    assert shown_by(f"{before}{fresh_line(20)}warning", 20) == shown


def test_what_the_view_says_begins_a_line_wherever_the_job_left_the_cursor(screen: tuple[int, TextIO]) -> None:
    ours, stream = screen
    view = LiveView(cast(TextIO, PrintableStream(stream)))
    stream.write("\r 45%|####    ")
    view.say(["warning: hot"])
    seen = b""
    while not seen.endswith(b"\n"):
        seen += os.read(ours, 4096)
    assert shown_by(seen.decode(), 60)[:2] == [" 45%|####", "autocap: warning: hot"]


def test_json_that_shares_a_stream_with_a_job_is_a_line_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    print("loss 0.1", end="")
    put_json({"a": 1}, shared=True)
    assert capsys.readouterr().out.splitlines()[-1] == '{"a": 1}'
    put_json({"a": 1})
    assert capsys.readouterr().out == '{"a": 1}\n'
