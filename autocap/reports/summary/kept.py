"""What a run keeps, from its events: a common cap, or the caps per GPU that were found from it."""

from collections.abc import Sequence
from dataclasses import replace

from autocap.events import Decided, Event, State, StateEntered
from autocap.events.search import PerGpuDecided
from autocap.reports.summary.record import ChosenSummary


def kept_last(events: Sequence[Event], devices: int) -> tuple[ChosenSummary | None, float]:
    """The caps that the last decision keeps, and since when they are held, seconds; `None` where the limits found on
    arrival are put back. devices: how many there are.
    """
    chosen, since_s = None, 0.0
    for event in events:
        if isinstance(event, Decided):
            measured = event.measurement
            caps_w = None if event.cap_w is None else measured.cap_w if measured else (event.cap_w,) * devices
            since_s, chosen = event.t_s, None
            if caps_w is not None:
                chosen = ChosenSummary(cap_w=caps_w, confirmed=event.confirmed, measurement=measured)
        elif isinstance(event, PerGpuDecided) and event.kept and chosen is not None:
            chosen, since_s = replace(chosen, cap_w=event.cap_w, measurement=event.as_confirmed), event.t_s
    return chosen, since_s


def last_per_gpu(events: Sequence[Event]) -> PerGpuDecided | None:
    """The end of the last search for a cap per GPU, unless the job has been tuned anew since, or no cap is kept."""
    last: PerGpuDecided | None = None
    for event in events:
        if isinstance(event, PerGpuDecided):
            last = event
        elif (isinstance(event, StateEntered) and event.state is State.BASELINE) or (
            isinstance(event, Decided) and event.cap_w is None
        ):
            last = None
    return last
