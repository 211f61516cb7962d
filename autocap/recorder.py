"""Passes what happens on to the run directory and the terminal, and keeps the events for the summary."""

from collections.abc import Callable

from autocap import events
from autocap.errors import RunDirectoryError
from autocap.events import Event
from autocap.records import Sample
from autocap.reporters.terminal import Quiet
from autocap.runlog import RunDirectory


class Recorder:
    """The runner's sink. A directory that can no longer be written is said once; the run goes on."""

    def __init__(self, directory: RunDirectory, reporter: Quiet) -> None:
        self._directory, self._reporter = directory, reporter
        self.events: list[Event] = []

    def event(self, event: Event) -> None:
        self.events.append(event)
        self._reporter.event(event)
        self._record(event.t_s, lambda: self._directory.append(event))

    def sample(self, sample: Sample) -> None:
        self._reporter.sample(sample)
        self._record(sample.t_s, lambda: self._directory.sample(sample))

    def warn(self, t_s: float, text: str) -> None:
        self.event(events.Warned(t_s=t_s, text=text))

    def _record(self, t_s: float, write: Callable[[], None]) -> None:
        try:
            write()
        except RunDirectoryError as error:
            self.warn(t_s, str(error))
