"""The live view of a run, kept at the bottom of the terminal while the job prints above it.

Of a job of ours it goes to stderr; stdout belongs to the job.
"""

import os
from contextlib import suppress
from typing import TextIO

from rich.console import Console

from autocap.events import Decided, DeviceFound, Event, Warned
from autocap.events.search import PerGpuDecided
from autocap.records import Sample
from autocap.reports.live.footer import Footer
from autocap.reports.live.plain import PREFIX, PlainLines, Reporter
from autocap.reports.live.status import Status
from autocap.reports.live.view import View

_REFRESH_S = 0.5


class LiveView(PlainLines):
    """State, cap, draw, progress, trials and savings, redrawn in place; above them what is worth keeping."""

    def __init__(self, stream: TextIO, prefix: str = PREFIX) -> None:
        super().__init__(stream, prefix)
        self._status = Status()
        self._footer = Footer(stream)
        self._view = View(Console(file=stream, force_terminal=True, highlight=False, emoji=False, markup=False))
        self._drawn_s = float("-inf")

    def event(self, event: Event) -> None:
        self._status.event(event)
        line = self._words.line(event)
        if line is not None and isinstance(event, Warned | Decided | PerGpuDecided | DeviceFound):
            self.say([line])

    def sample(self, sample: Sample) -> None:
        self._status.sample(sample)
        self.tick(sample.t_s)

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

    def close(self) -> None:
        self.step_aside()


def for_stream(stream: TextIO, *, quiet: bool = False, prefix: str = PREFIX) -> Reporter:
    """The reporter that suits a stream."""
    if quiet:
        return Reporter()
    if stream.isatty() and os.environ.get("TERM", "dumb") != "dumb":
        return LiveView(stream, prefix)
    return PlainLines(stream, prefix)
