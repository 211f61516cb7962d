"""What counts of a log, once trials were withdrawn and a rough baseline was refined, and which running totals do."""

from collections.abc import Sequence
from dataclasses import replace

from autocap.events.base import Event
from autocap.events.quote import Quoted
from autocap.events.run import Tally
from autocap.events.search import BaselineMeasured, BaselineRefined, Predicted, TrialEnded, TrialWithdrawn
from autocap.records import Trial, TrialState


def settled(events: Sequence[Event]) -> Sequence[Event]:
    """The events, oldest first, with every trial that was withdrawn as one that has failed, for that reason, and with
    what is known in the end of a baseline that was rough at first, and of the trials that were held against it. What
    was predicted from what does not count any more, or is known better now, has gone with it."""
    found, stale = list(events), set[int]()
    for place, event in enumerate(events):
        match event:
            case TrialWithdrawn():
                found[:place] = [_without(one, event) for one in found[:place]]
                stale.update(range(place))
            case BaselineRefined():
                found[:place] = _refined(found[:place], event)
                stale.update(range(place))
            case _:
                pass
    return [one for place, one in enumerate(found) if place not in stale or not isinstance(one, Predicted)]


def _refined(events: list[Event], refined: BaselineRefined) -> list[Event]:
    """The events before, with the rough baseline and the trials since then as they are known now."""
    since = max(
        (place for place, one in enumerate(events) if isinstance(one, BaselineMeasured)),
        default=len(events),
    )
    trials = iter(refined.trials)
    out = events[:since]
    for one in events[since:]:
        if isinstance(one, BaselineMeasured):
            one = replace(one, measurement=refined.measurement, rough=False)
        elif isinstance(one, TrialEnded) and one.trial.measurement is not None:
            one = replace(one, trial=next(trials, one.trial))
        out.append(one)
    return out


def _without(event: Event, withdrawn: TrialWithdrawn) -> Event:
    if not isinstance(event, TrialEnded) or event.t_s < withdrawn.since_s:
        return event
    if event.trial.setting != withdrawn.setting or event.trial.measurement is None:
        return event
    return replace(event, trial=failed(event.trial, f"does not count: {withdrawn.reason}"))


def failed(trial: Trial, why: str) -> Trial:
    """A trial of which nothing counts that was measured."""
    return replace(trial, state=TrialState.FAILED, reason=why, cost=None, cost_stderr=None, measurement=None)


class LastTotals:
    """Is told all events in their order. Of totals that follow each other the last counts: nothing has changed in
    between, and they would be most of a long run's events. The first after a value of electricity has changed stay: so
    no stretch between two of them has energy at one value and draws power for another."""

    def __init__(self) -> None:
        self._replaceable = self._is_new_value = False

    def replaces(self, event: object) -> bool:
        """Whether an event takes the place of the one before it."""
        is_tally = isinstance(event, Tally)
        replaces = is_tally and self._replaceable
        self._replaceable = is_tally and not self._is_new_value
        self._is_new_value = not is_tally and (self._is_new_value or isinstance(event, Quoted))
        return replaces
