"""What the log of a simulated job holds, for tests of what became of it."""

from typing import Any, Protocol

from autocap import events
from autocap.events import State


class Logged(Protocol):
    """An outcome of `bench.simulation.jobs.tune`, or the log of any other run."""

    @property
    def log(self) -> Any: ...


def announced(outcome: Logged, *kinds: type[events.Event]) -> list[Any]:
    """Its events of some kinds, in order."""
    return [event for event in outcome.log.events if isinstance(event, kinds)]


def states(outcome: Logged) -> list[State]:
    return [event.state for event in announced(outcome, events.StateEntered)]


def warnings(outcome: Logged) -> list[str]:
    return [event.text for event in announced(outcome, events.Warned)]


def caps_set(outcome: Logged) -> list[float]:
    return [event.setting[0] for event in announced(outcome, events.CapSet)]


def held_at(outcome: Logged, t_s: float, found_w: float = 260.0) -> float:
    """The cap that was set last by a time, watts. found_w: the limit found on arrival."""
    held = [event.setting[0] for event in announced(outcome, events.CapSet) if event.t_s <= t_s]
    return held[-1] if held else found_w
