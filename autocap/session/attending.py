"""Work that calls into drivers, each of which may take seconds to answer: done in a thread while signals are heard."""

from collections.abc import Callable
from typing import TypeVar

from autocap.clock import Clock
from autocap.job.signals import SignalClock
from autocap.limits.together import done_aside

_R = TypeVar("_R")

_TURN_S = 0.05  # the work is awaited for so long, then signals are, in turns


def attended(work: Callable[[], _R], clock: Clock, turn: Callable[[int | None], None]) -> _R:
    """What it yields or raises. turn: told each signal, or of none, again and again while it is not done; what that
    raises leaves the work to itself. Where time is not real, it is merely done."""
    if not isinstance(clock, SignalClock):
        return work()
    return done_aside(work, lambda: turn(clock.wait_until(clock.now() + _TURN_S)), _TURN_S)
