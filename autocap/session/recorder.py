"""Passes what happens on to the run directory and the reporters, and keeps the events for the summary."""

import logging
from collections.abc import Callable

from autocap import events
from autocap.events import Event
from autocap.records import Sample
from autocap.reports.live.plain import Reporter
from autocap.runlog.directory import RunDirectory
from autocap.runlog.faults import Faults

log = logging.getLogger(__name__)


class Recorder:
    """Where the runner puts events and samples. That the run directory can no longer be written is warned of once, and
    a reporter that fails is dropped; the run goes on."""

    def __init__(self, directory: RunDirectory, *reporters: Reporter) -> None:
        self._directory, self._reporters = directory, list(reporters)
        self._faults = Faults(directory)
        self._said = set[str]()
        self.events: list[Event] = []

    def event(self, event: Event) -> None:
        self.events.append(event)
        self._report(lambda reporter: reporter.event(event))
        self.record(event.t_s, lambda: self._directory.append(event))

    def sample(self, sample: Sample) -> None:
        self._report(lambda reporter: reporter.sample(sample))
        self.record(sample.t_s, lambda: self._directory.sample(sample))

    def warn(self, t_s: float, text: str) -> None:
        self.event(events.Warned(t_s=t_s, text=text))

    def reason(self, error: Exception) -> str:
        """What a warning or a report says of an error. The traceback of an internal fault is kept in the run directory,
        and named."""
        log.debug("what went wrong", exc_info=error)
        return self._faults.reason(error)

    def step_aside(self) -> None:
        """Leave the terminal to somebody else for a while."""
        self._report(lambda reporter: reporter.step_aside())

    def _report(self, tell: Callable[[Reporter], None]) -> None:
        for reporter in tuple(self._reporters):
            try:
                tell(reporter)
            except Exception as error:  # noqa: BLE001 - no picture is worth the job, nor its tuning
                self._reporters.remove(reporter)
                said = f"{type(reporter).__name__} fails and shows nothing from here on: {self.reason(error)}"
                self.warn(self.events[-1].t_s if self.events else 0.0, said)

    def record(self, t_s: float, write: Callable[[], None]) -> None:
        """Write to the run directory; where that fails a warning, once for each cause."""
        try:
            write()
        except Exception as error:  # noqa: BLE001 - no record is worth the job, nor its tuning
            said = self.reason(error)
            if said not in self._said:
                self._said.add(said)
                self.warn(t_s, said)
