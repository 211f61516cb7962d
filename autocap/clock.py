"""Time is an argument: real runs get the monotonic clock, simulations and tests a virtual one."""

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds since the start of the run, and a way to wait."""

    def now(self) -> float:
        """Seconds since the start of the run."""

    def wait_until(self, t_s: float) -> int | None:
        """Return at `t_s` with `None`, or earlier with the number of a signal that arrived."""


class RunClock(Clock, Protocol):
    """A clock that other processes' stamps can be converted to.

    origin_s: the system's monotonic reading at zero.
    """

    origin_s: float


class MonotonicClock:
    """The system's monotonic clock, zeroed at its creation."""

    def __init__(self) -> None:
        self.origin_s = time.monotonic()

    def now(self) -> float:
        return time.monotonic() - self.origin_s

    def wait_until(self, t_s: float) -> int | None:
        delay_s = t_s - self.now()
        if delay_s > 0:
            time.sleep(delay_s)
        return None


class VirtualClock:
    """A clock that jumps: an hour passes in no time."""

    def __init__(self) -> None:
        self.origin_s = 0.0
        self._now_s = 0.0

    def now(self) -> float:
        return self._now_s

    def wait_until(self, t_s: float) -> int | None:
        self._now_s = max(self._now_s, t_s)
        return None
