"""Whether the whole of a run may be held against its baseline."""

from collections.abc import Sequence

from autocap.events import Decided, Event, Followed, RunEnded, State, StateEntered
from autocap.records import Measurement
from autocap.reports.summary.baselines import reference
from autocap.reports.summary.record import ChosenSummary


def claims(events: Sequence[Event], chosen: ChosenSummary | None) -> bool:
    """Whether it may: where it was tuned anew, what the iterations before would have cost at the baseline is not known,
    and a run that in the end kept no cap shows mostly how the machine has drifted."""
    over = any(isinstance(event, Decided | RunEnded) or _is_done(event) for event in events)
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


def _is_done(event: Event) -> bool:
    return isinstance(event, StateEntered) and event.state is State.DONE
