"""What a run says while it goes on: nothing, plain lines beside the job's output, or a live view, kept at the bottom of
the terminal while others, the job among them, print above it. A terminal or pipe that has gone away is no reason to
stop.

Of a job of ours the view goes to stderr; stdout belongs to the job. The terminal's scrolling region is made shorter, so
that output scrolls above the view and nothing has to pass through us. The escape sequences are those of a VT100, which
every terminal of today knows.
"""

import os
import select
from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

from autocap.events import (
    CardRecalled,
    Decided,
    DeviceFound,
    Event,
    ProgramFound,
    Remembered,
    SetterChosen,
    SettingsTaken,
    State,
    StateEntered,
    Warned,
)
from autocap.events.search import PerGpuDecided
from autocap.records import Sample
from autocap.reports.live.queued import settle
from autocap.reports.live.status import Status
from autocap.reports.wording.events import Wording
from autocap.text import PREFIX, beneath, columns, encoding_of, fresh_line, printable


class Reporter:
    """Says nothing."""

    def event(self, event: Event) -> None:
        return

    def sample(self, sample: Sample) -> None:
        return

    def tick(self, t_s: float) -> None:
        """Time has passed: `t_s` of the run, whatever happened or did not."""
        return

    def say(self, lines: Sequence[str]) -> None:
        return

    def step_aside(self) -> None:
        """Leave the terminal as it was found; what comes next draws anew."""
        return

    @property
    def width(self) -> int | None:
        """Characters that a line of `say` has room for; `None` where there is no terminal to say."""
        return None

    @property
    def encoding(self) -> str:
        """Of what `say` is given."""
        return "utf-8"

    def close(self) -> None:
        return


class PlainLines(Reporter):
    """One line an event, each beginning with the prefix."""

    def __init__(self, stream: TextIO, prefix: str = PREFIX) -> None:
        self._stream, self._prefix = stream, prefix
        self._words = Wording()

    def event(self, event: Event) -> None:
        line = self._words.line(event)
        if line is not None:
            self.say([line])

    @property
    def width(self) -> int | None:
        found = columns(self._stream)
        return None if found is None else max(1, found - len(self._prefix))

    @property
    def encoding(self) -> str:
        return encoding_of(self._stream)

    def say(self, lines: Sequence[str]) -> None:
        self._write("".join(f"{self._prefix}{printable(line)}".rstrip() + "\n" for line in lines))

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the terminal or pipe has gone; the run directory has it all
            self._stream.write(text)
            self._stream.flush()


_LEAST_ROWS, _LEAST_COLUMNS = 6, 20  # of a terminal that a footer leaves room in
_SAVE, _RESTORE = "\x1b7", "\x1b8"  # the cursor, which is somebody else's
_WHOLE_SCREEN = "\x1b[r"  # as the scrolling region; moves the cursor
_CLEAR_BELOW = "\x1b[J"
_REFRESH_S = 0.5
# What stays above the view, if it is said at all.
_KEPT = SetterChosen | Warned | Decided | PerGpuDecided | DeviceFound | ProgramFound | SettingsTaken
_KEPT |= Remembered | CardRecalled


class LiveView(PlainLines):
    """State, cap, draw, progress, trials and savings, redrawn in place; above them what is worth keeping."""

    def __init__(self, stream: TextIO, prefix: str = PREFIX) -> None:
        from rich.console import Console  # which only a terminal needs, and takes long to import

        from autocap.reports.live.view import View

        super().__init__(stream, prefix)
        self._status = Status()
        self._footer = Footer(beneath(stream))
        self._view = View(
            Console(file=beneath(stream), force_terminal=True, highlight=False, emoji=False, markup=False)
        )
        self._drawn_s = float("-inf")

    def event(self, event: Event) -> None:
        self._status.event(event)
        line = self._words.line(event)
        kept = isinstance(event, _KEPT)
        # What is searched for says what the metric in the view means.
        if line is not None and (kept or (isinstance(event, StateEntered) and event.state is State.SEARCHING)):
            self.say([line])

    def sample(self, sample: Sample) -> None:
        self._status.sample(sample)
        self.tick(sample.t_s)

    def say(self, lines: Sequence[str]) -> None:
        width = columns(self._stream)
        if lines and width is not None:  # the job may have left the cursor in the middle of a line
            with suppress(OSError, ValueError):
                beneath(self._stream).write(fresh_line(width))
        super().say(lines)

    def tick(self, t_s: float) -> None:
        if t_s - self._drawn_s < _REFRESH_S:
            return
        self._drawn_s = t_s
        room = self._footer.room()
        if room is not None:
            columns, most = room
            with suppress(OSError, ValueError):
                self._footer.draw(self._view.lines(self._status, t_s, columns, most))

    def step_aside(self) -> None:
        self._drawn_s = float("-inf")
        with suppress(OSError, ValueError):
            self._footer.remove()
        settle(self._stream)

    def close(self) -> None:
        self.step_aside()


def for_stream(stream: TextIO, *, quiet: bool = False, prefix: str = PREFIX) -> Reporter:
    """The reporter that suits a stream."""
    if quiet:
        return Reporter()
    if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return LiveView(stream, prefix)
    return PlainLines(stream, prefix)


class Footer:
    """Lines at the bottom of a terminal, drawn and removed whole; one that is too small, or not ours now, gets none."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._size = (0, 0)  # of the terminal when the region was set: columns, rows
        self._held = 0  # lines

    def room(self) -> tuple[int, int] | None:
        """Columns and lines that a footer may fill now; `None` where none may be drawn.

        None is drawn while another process group has the terminal, or while the terminal takes nothing (^S): a write
        would wait, and the caps with it.
        """
        try:
            fd = self._stream.fileno()
            if os.tcgetpgrp(fd) != os.getpgrp():
                return None
            columns, rows = os.get_terminal_size(fd)
        except (OSError, ValueError):  # gone, or the terminal of another session
            return None
        if rows < _LEAST_ROWS or columns < _LEAST_COLUMNS or not _takes_output(fd):
            return None
        return columns, rows // 2

    def draw(self, lines: Sequence[str]) -> None:
        """Show these lines, none wider than the terminal, in place of the last ones. Raises OSError, ValueError."""
        size = os.get_terminal_size(self._stream.fileno())
        text = "" if (size, len(lines)) == (self._size, self._held) else self._reserved(len(lines), size)
        first = size.lines - len(lines) + 1
        text += _SAVE + "".join(f"\x1b[{first + i};1H{line}\x1b[0m\x1b[K" for i, line in enumerate(lines)) + _RESTORE
        self._write(text)

    def remove(self) -> None:
        """Give the lines back; the cursor stays where the others' output ended. Raises OSError, ValueError."""
        if self._held:
            self._write(self._released())

    def _reserved(self, count: int, size: os.terminal_size) -> str:
        """Makes room of so many lines below the cursor: scrolls, if need be, without moving it along its line."""
        text = self._released(resized=size != self._size)
        self._held, self._size = count, size
        down_and_up = "\x1bD" * count + f"\x1b[{count}A"
        return f"{text}{down_and_up}{_SAVE}\x1b[1;{size.lines - count}r{_RESTORE}"

    def _released(self, *, resized: bool = False) -> str:
        if not self._held:
            return ""
        # A terminal that was resized has moved our lines, but there are no others below the cursor.
        first = self._size[1] - self._held + 1
        erase = "" if resized else "".join(f"\x1b[{first + i};1H\x1b[2K" for i in range(self._held))
        self._held = 0
        return f"{_SAVE}{_WHOLE_SCREEN}{erase}{_RESTORE}" + (_CLEAR_BELOW if resized else "")

    def _write(self, text: str) -> None:
        self._stream.write(text)  # in one piece, so that nobody else's output comes between
        self._stream.flush()


def _takes_output(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLOUT)
    return any(events & select.POLLOUT for _, events in poll.poll(0))
