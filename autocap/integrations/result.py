"""What came of a run, as a script has it: its Summary, which prints as the report and gives its trials as a table."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Self

from autocap.errors import RunDirectoryError
from autocap.events import Event, record_kind
from autocap.integrations import missing
from autocap.reports.summary.record import Summary
from autocap.reports.summary.summarise import summarise
from autocap.runlog.event_log import read_events

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Summary):
    """events: all that the run has announced, oldest first."""

    events: tuple[Event, ...] = field(default=(), repr=False, compare=False)

    @classmethod
    def of(cls, summary: Summary, events: Sequence[Event]) -> Self:
        known = {one.name: getattr(summary, one.name) for one in fields(Summary)}
        return cls(**known, events=tuple(events))

    def __str__(self) -> str:
        """What `autocap report` prints of the run."""
        from autocap.reports import text
        from autocap.reports.run_document import run_document

        return "\n".join(text.lines(run_document(self, self.events)))

    def trials_dataframe(self) -> "pandas.DataFrame":
        """The trials, oldest first, one a row: cap in watts (the highest, of caps per GPU), state, reason, cost, change
        of energy and time in percent, and what was measured, with standard errors. Raises ImportError without pandas.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise missing(error, "trials_dataframe()", "pandas") from None
        return pandas.DataFrame(list(self._rows()), columns=_COLUMNS)

    def _rows(self) -> Iterator[tuple[object, ...]]:
        for trial in self.trials:
            m = trial.measurement
            measured: tuple[object, ...] = (None,) * 7
            if m is not None:
                measured = (
                    m.period_s,
                    m.period_s * m.period_rel_stderr,
                    m.energy_per_iteration_j,
                    m.energy_per_iteration_j * m.energy_rel_stderr,
                    m.power_w,
                    m.iterations,
                    m.duration_s,
                )
            found = (trial.cost, trial.cost_stderr, trial.energy_pct, trial.time_pct)
            yield max(trial.cap_w), trial.state.value, trial.reason, *found, *measured


_COLUMNS = [
    *("cap_w", "state", "reason", "cost", "cost_stderr", "energy_pct", "time_pct"),
    *("period_s", "period_stderr_s", "energy_per_iteration_j", "energy_stderr_j"),
    *("power_w", "iterations", "duration_s"),
]


def load(directory: Path) -> Result:
    """The run that a directory holds: finished, killed, or as far as it has come. Raises RunDirectoryError where there
    is none, and of a sweep or a budget."""
    events = read_events(directory)
    what = record_kind(events)
    if what != "run":
        raise RunDirectoryError(f"{directory} is a {what}, and no run; show it with `autocap report {directory}`")
    return Result.of(summarise(events), events)
