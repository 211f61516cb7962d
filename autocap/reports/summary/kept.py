"""What a run keeps, from its events: a common cap, or the caps per GPU that were found from it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autocap.events import Decided, Event, State, StateEntered
from autocap.events.search import PerGpuDecided
from autocap.records import Measurement


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """The caps kept last, watts per device, since when, and how they fared against the baseline."""

    cap_w: tuple[float, ...]
    t_s: float
    confirmed: bool
    measurement: Measurement | None


def kept_last(events: Sequence[Event], devices: int) -> Kept | None:
    """What the last decision keeps; `None` where it is the limits found on arrival. devices: how many there are."""
    kept: Kept | None = None
    for event in events:
        if isinstance(event, Decided):
            kept = None if event.cap_w is None else _common(event, event.cap_w, devices)
        elif isinstance(event, PerGpuDecided) and event.kept and kept is not None:
            kept = replace(kept, cap_w=event.cap_w, t_s=event.t_s, measurement=event.as_confirmed)
    return kept


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


def _common(decided: Decided, cap_w: float, devices: int) -> Kept:
    measured = decided.measurement
    return Kept(
        cap_w=measured.cap_w if measured else (cap_w,) * devices,
        t_s=decided.t_s,
        confirmed=decided.confirmed,
        measurement=measured,
    )
