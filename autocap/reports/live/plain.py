"""What a run says where no view can be drawn: plain lines beside the job's output, or nothing.

A terminal or pipe that has gone away is no reason to stop.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import TextIO

from autocap.events import Event
from autocap.records import Sample
from autocap.reports.wording.events import Wording
from autocap.text import PREFIX, columns, encoding_of, printable


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
