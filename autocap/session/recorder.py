"""Passes what happens on to the run directory and the reporters, and keeps the events for the summary.

`internal-fault.txt` says where in autocap something went wrong that a run survived: the run log says what and when, the
file holds the tracebacks, which are for whoever is to correct it.
"""

import logging
import traceback
from collections.abc import Callable

from autocap import events
from autocap.errors import AutocapError, RunDirectoryError
from autocap.events import Event
from autocap.records import Sample
from autocap.reports.live.terminal import Reporter
from autocap.runlog.directory import FAULTS, RunDirectory
from autocap.text import printable

log = logging.getLogger(__name__)
_MOST, _LONGEST = 10, 400  # tracebacks, and lines of each


class Recorder:
    """Where the runner puts events and samples. That the run directory can no longer be written is warned of once, and
    a reporter that fails is dropped; the run goes on."""

    def __init__(self, directory: RunDirectory, *reporters: Reporter) -> None:
        self._directory, self._reporters = directory, list(reporters)
        self._faults: list[str] = []  # tracebacks
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
        """What a warning or a report says of an error: its own words where it is one that autocap raises on purpose; of
        any other the traceback is kept in the run directory as well, and named."""
        log.debug("what went wrong", exc_info=error)
        if isinstance(error, AutocapError):
            return str(error)
        said = f"internal fault: {type(error).__name__}: {error}"
        lines = "".join(traceback.format_exception(error)).splitlines()[-_LONGEST:]
        text = "".join(f"{printable(line)}\n" for line in lines)
        if text not in self._faults:
            if len(self._faults) == _MOST:
                return said
            self._faults.append(text)
            try:
                self._directory.put(FAULTS, "\n".join(self._faults))
            except RunDirectoryError as lost:
                return f"{said}; its traceback is lost: {lost}"
        return said if self._directory.failed else f"{said}; its traceback is in {self._directory.path / FAULTS}"

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
