"""Which baseline holds for what was measured: the latest before it, as the controller compares it; and whether the
whole of a run may be held against one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from autocap.events import (
    BaselineMeasured,
    Decided,
    DeviceFound,
    Event,
    Followed,
    RunEnded,
    State,
    StateEntered,
    TrialEnded,
)
from autocap.events.search import PerGpuTried
from autocap.events.settled import failed, settled
from autocap.knobs import POWER_LIMIT, Knob
from autocap.measurement.drift import impossible
from autocap.records import Measurement
from autocap.reports.summary.record import ChosenSummary, Summary, TrialSummary


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
    knob = POWER_LIMIT
    for event in settled(events):
        match event:
            case DeviceFound():
                knob = event.knob
            case BaselineMeasured(measurement=measurement):
                baseline = measurement
                yield event, baseline
            case Decided(baseline=measurement) if measurement:
                confirmed = measurement
            case TrialEnded():
                yield _comparable(event, baseline, knob), baseline
            case PerGpuTried():
                yield event, confirmed


def _comparable(event: TrialEnded, baseline: Measurement | None, knob: Knob) -> TrialEnded:
    """The trial, as one that has failed where it and its baseline cannot be of the same job on the same machine: what
    was measured while other work starved the job makes rows of savings that are none."""
    measured = event.trial.measurement
    why = None if measured is None or baseline is None else impossible(measured, baseline, knob)
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


def claims(events: Sequence[Event], chosen: ChosenSummary | None) -> bool:
    """Whether it may: where it was tuned anew, what the iterations before would have cost at the baseline is not known,
    and a run that in the end kept no cap shows mostly how the machine has drifted."""
    over = any(
        isinstance(event, Decided | RunEnded) or (isinstance(event, StateEntered) and event.state is State.DONE)
        for event in events
    )
    return not tuned_anew(events) and (chosen is not None or not over)


def comparable(events: Sequence[Event], chosen: ChosenSummary | None) -> Measurement | None:
    """The baseline that it may be held against, `None` for none. A run that followed a value kept caps, also where it
    keeps none at the last value."""
    followed = any(isinstance(event, Followed) for event in events) and not tuned_anew(events)
    return reference(events) if followed or claims(events, chosen) else None


def tuned_anew(events: Sequence[Event]) -> bool:
    """Whether a baseline was begun again after a search."""
    states = [event.state for event in events if isinstance(event, StateEntered)]
    return State.SEARCHING in states and State.BASELINE in states[states.index(State.SEARCHING) :]
