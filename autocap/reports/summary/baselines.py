"""Which baseline holds for what was measured: the latest before it, as the controller compares it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autocap.events import BaselineMeasured, Decided, Event, TrialEnded
from autocap.events.search import PerGpuTried
from autocap.events.settled import failed, settled
from autocap.measurement.drift import impossible
from autocap.records import Measurement
from autocap.reports.summary.record import Summary, TrialSummary


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A baseline that was measured, or, where there is a `trial`, that trial beside the baseline of its time."""

    baseline: Measurement
    trial: TrialSummary | None = None


def with_baselines(
    events: Sequence[Event],
) -> Iterator[tuple[BaselineMeasured | TrialEnded | PerGpuTried, Measurement | None]]:
    """Every baseline and every trial, oldest first, each with the baseline that it is held against: that of caps per
    GPU was measured in turn with the common cap. A trial that was withdrawn has failed, and so has
    one that cannot be beside its baseline."""
    baseline: Measurement | None = None
    confirmed: Measurement | None = None
    for event in settled(events):
        match event:
            case BaselineMeasured(measurement=measurement):
                baseline = measurement
                yield event, baseline
            case Decided(baseline=measurement) if measurement:
                confirmed = measurement
            case TrialEnded():
                yield _comparable(event, baseline), baseline
            case PerGpuTried():
                yield event, confirmed


def _comparable(event: TrialEnded, baseline: Measurement | None) -> TrialEnded:
    """The trial, as one that has failed where it and its baseline cannot be of the same job on the same machine: what
    was measured while other work starved the job makes rows of savings that are none."""
    measured = event.trial.measurement
    why = None if measured is None or baseline is None else impossible(measured, baseline)
    return (
        event if why is None else replace(event, trial=failed(event.trial, f"not comparable with its baseline: {why}"))
    )


def rows(summary: Summary, events: Sequence[Event], most: int) -> list[Row]:
    """What a table of the trials shows, oldest first: the latest of its rows, so many at most, and wherever what
    follows is held against another baseline, that one before it. The last is what `versus_baseline` compares with.

    Nothing before the first baseline.
    """
    trials, found = iter(summary.trials), list[Row]()
    for event, baseline in with_baselines(events):
        trial = None if isinstance(event, BaselineMeasured) else next(trials, None)
        if baseline is not None:
            found.append(Row(baseline=baseline, trial=trial))
    out = list[Row]()
    for row in found[-most:] if most > 0 else []:
        if row.trial is not None and (not out or row.baseline is not out[-1].baseline):
            out.append(Row(baseline=row.baseline))
        out.append(row)
    last = reference(events) if summary.chosen is not None else None
    if last is not None and (not out or last != out[-1].baseline):
        out.append(Row(baseline=last))
    return out


def reference(events: Sequence[Event]) -> Measurement | None:
    """What the last decision's cap is compared with: the windows between its own, or else the last baseline."""
    decided = next((event for event in reversed(events) if isinstance(event, Decided)), None)
    if decided is not None and decided.baseline is not None:
        return decided.baseline
    known = (event.measurement for event in reversed(settled(events)) if isinstance(event, BaselineMeasured))
    return next(known, None)
