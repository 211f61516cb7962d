"""What counts of a log, once trials were withdrawn."""

from collections.abc import Sequence
from dataclasses import replace

from autocap.events import Event, TrialEnded, TrialWithdrawn
from autocap.records import TrialState


def settled(events: Sequence[Event]) -> Sequence[Event]:
    """The events, oldest first, with every trial that was withdrawn as one that has failed, for that reason."""
    found = list(events)
    for place, event in enumerate(events):
        if isinstance(event, TrialWithdrawn):
            found[:place] = [_without(one, event) for one in found[:place]]
    return found


def _without(event: Event, withdrawn: TrialWithdrawn) -> Event:
    if not isinstance(event, TrialEnded) or event.t_s < withdrawn.since_s:
        return event
    if event.trial.cap_w != withdrawn.cap_w or event.trial.measurement is None:
        return event
    why = f"does not count: {withdrawn.reason}"
    failed = replace(event.trial, state=TrialState.FAILED, reason=why, cost=None, cost_stderr=None, measurement=None)
    return replace(event, trial=failed)
