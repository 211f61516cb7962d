"""A virtual clock on which things happen."""

import heapq
import time
from collections.abc import Callable
from itertools import count

from autocap.clock import VirtualClock


class EventClock(VirtualClock):
    """A virtual clock with what is to happen at which time. spent_s: CPU time of what happened."""

    def __init__(self) -> None:
        super().__init__()
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()
        self.spent_s = 0.0

    def at(self, t_s: float, do: Callable[[], None]) -> None:
        """Have something happen then."""
        heapq.heappush(self._events, (t_s, next(self._order), do))

    def wait_until(self, t_s: float) -> int | None:
        """Go on to that time; all that is to happen before happens."""
        began_s = time.process_time()
        while self._events and self._events[0][0] <= t_s:
            at_s, _, do = heapq.heappop(self._events)
            super().wait_until(at_s)
            do()
        super().wait_until(t_s)
        self.spent_s += time.process_time() - began_s
        return None

    def pause(self, seconds: float) -> None:
        """Wait for so long."""
        self.wait_until(self.now() + seconds)
