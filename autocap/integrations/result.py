"""What came of a run, as a script has it: its Summary, which prints as the report and gives its trials as a table;
always one, of the run that was recorded or of none."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Self

from autocap import __version__
from autocap.config import RunConfig
from autocap.errors import RunDirectoryError
from autocap.events import BLOCK_ENDED, Event, MetricInfo, OptionValue, RunEnded, RunStarted, record_kind
from autocap.integrations import missing
from autocap.reports.summary.record import Summary
from autocap.reports.summary.summarise import UNFINISHED, summarise
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

    def _repr_html_(self) -> str:
        """As a notebook shows it."""
        from autocap.reports.html import notebook
        from autocap.reports.run_document import run_document

        return notebook(run_document(self, self.events))

    def trials_dataframe(self) -> "pandas.DataFrame":
        """The trials, oldest first, one a row: cap in watts (the highest, of caps per GPU), or what another knob was
        set to, state, reason, cost, change of energy and time in percent, and what was measured, with standard errors.
        Raises ImportError without pandas.
        """
        try:
            import pandas
        except ModuleNotFoundError as error:
            raise missing(error, "trials_dataframe()", "pandas") from None
        first = "cap_w" if self.knob.is_power_limit else "setting"
        return pandas.DataFrame(list(self._rows()), columns=[first, *_COLUMNS])

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
            highest = max(trial.setting)
            shown = highest if self.knob.is_power_limit else self.knob.shown(highest)
            yield shown, trial.state.value, trial.reason, *found, *measured


_COLUMNS = [
    *("state", "reason", "cost", "cost_stderr", "energy_pct", "time_pct"),
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


_DIED = "the process that tunes has ended by itself; it says why on standard error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block that has ended. pid: of the process that was to be tuned. seconds: that it lasted."""

    config: RunConfig
    pid: int
    began: datetime
    seconds: float


def outcome(block: Block, directory: Path, why_not: str | None, *, died: bool) -> tuple[Result, str | None]:
    """What came of it; and why nothing was tuned, where nobody has said so yet.

    directory: of its run. why_not: why there is none. died: whether the process that tunes has ended before the block.
    """
    if why_not is not None:
        return _untuned(block, why_not), None
    summary = _recorded(directory, block.pid)
    if summary is None:
        why = _DIED if died else _too_short(block, "tuning began")
        return _untuned(block, why), why
    if summary.ended_because == BLOCK_ENDED and summary.device is None:
        why = _too_short(block, "the job used a GPU")
        return replace(summary, ended_because=why), why
    if summary.ended_because == BLOCK_ENDED and summary.baseline is None:
        return summary, _too_short(block, "the job was measured")
    if summary.ended_because == UNFINISHED and summary.device is None:
        return summary, _DIED
    return summary, None


def _recorded(directory: Path, pid: int) -> Result | None:
    """Of the run directory; `None` where that holds nothing of this process, but perhaps an older run."""
    try:
        summary = load(directory)
    except RunDirectoryError:
        return None
    return summary if summary.pid == pid else None


def _untuned(block: Block, why: str) -> Result:
    tune = block.config.tune
    started = RunStarted(
        t_s=0.0,
        autocap_version=__version__,
        mode="tune",
        command=tuple(sys.orig_argv),
        pid=block.pid,
        started_at=block.began.isoformat(timespec="seconds"),
        metric=MetricInfo.of(tune.metric),
        strategy=block.config.strategy,
        strategy_options=tuple(OptionValue(name=name, value=text) for name, text in block.config.strategy_options),
        observe=tune.observe,
        rates=block.config.rates,
    )
    events: list[Event] = [started, RunEnded(t_s=block.seconds, ended_because=why)]
    return Result.of(summarise(events), events)


def _too_short(block: Block, before: str) -> str:
    return f"the block ended after {block.seconds:.1f} s, before {before}; put more of the training into it"
