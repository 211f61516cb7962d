"""What a terminal would obey never reaches it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autocap.text import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]52;c;ZXZpbA==\x07", r"\x1b]52;c;ZXZpbA==\x07"),
        ("\x1b[2J", r"\x1b[2J"),
        ("one\nline\rof\ttext", r"one\nline\rof\ttext"),
        ("\x9b31m", r"\x9b31m"),
        ("\x7f", r"\x7f"),
        ("abc\u202egnp.exe", r"abc\u202egnp.exe"),
        ("\u2066\u2069\u200f\u061c", r"\u2066\u2069\u200f\u061c"),
        ("\udcff", r"\udcff"),
        ("two\u2028lines\u0085more", r"two\u2028lines\x85more"),
        ("NVIDIA A100 – 40 µs, 日本", "NVIDIA A100 – 40 µs, 日本"),
    ],
)
def test_what_a_terminal_obeys_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters()))
def test_any_text_becomes_one_line_that_a_stream_can_take(text: str) -> None:
    shown = printable(text)
    assert len(shown.splitlines()) <= 1
    assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in shown)
    shown.encode()
