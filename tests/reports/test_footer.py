"""The footer's escape sequences, on a terminal that nobody looks at."""

import fcntl
import os
import pty
import struct
import termios
from collections.abc import Iterator
from contextlib import suppress
from typing import TextIO

import pytest

from autocap.reports.live.terminal import Footer


class Screen:
    """Both ends of a terminal of 20 lines."""

    def __init__(self) -> None:
        self.ours, theirs = pty.openpty()
        self.stream: TextIO = os.fdopen(theirs, "w")
        os.set_blocking(self.ours, False)
        self.resize(20, 60)

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self.stream, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def printed(self) -> str:
        """What has come since the last look."""
        seen = b""
        with suppress(BlockingIOError):
            while chunk := os.read(self.ours, 65536):
                seen += chunk
        return seen.decode()


@pytest.fixture
def screen() -> Iterator[Screen]:
    made = Screen()
    yield made
    made.stream.close()
    os.close(made.ours)


def test_the_region_is_set_once_and_the_cursor_is_given_back_each_time(screen: Screen) -> None:
    footer = Footer(screen.stream)
    footer.draw(["one", "two"])
    first = screen.printed
    assert "\x1b[1;18r" in first
    assert "\x1b[19;1Hone" in first
    assert "\x1b[20;1Htwo" in first
    footer.draw(["one", "more"])
    second = screen.printed
    assert second.startswith("\x1b7")
    assert second.endswith("\x1b8")
    assert "r\x1b" not in second
    assert "\n" not in first + second, "a line feed would scroll somebody else's output"


def test_more_lines_make_the_region_shorter_and_a_resize_sets_it_anew(screen: Screen) -> None:
    footer = Footer(screen.stream)
    footer.draw(["one"])
    footer.draw(["one", "two", "three"])
    assert "\x1b[1;17r" in screen.printed
    screen.resize(30, 60)
    footer.draw(["one", "two", "three"])
    assert "\x1b[1;27r" in screen.printed


def test_removing_clears_what_was_drawn_and_frees_the_whole_screen_once(screen: Screen) -> None:
    footer = Footer(screen.stream)
    footer.remove()
    assert screen.printed == ""
    footer.draw(["one", "two"])
    assert screen.printed
    footer.remove()
    assert screen.printed == "\x1b7\x1b[r\x1b[19;1H\x1b[2K\x1b[20;1H\x1b[2K\x1b8"
    footer.remove()
    assert screen.printed == ""


def test_on_the_terminal_of_another_session_there_is_no_room(screen: Screen) -> None:
    assert Footer(screen.stream).room() is None
