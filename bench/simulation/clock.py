"""Virtual clocks: one on which things happen, and one of a machine with too few cores for what runs on it, where
autocap wakes late, or is held up in the middle of a reading."""

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

import numpy as np

from autocap.clock import VirtualClock
from autocap.records import Reading, StepReading
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.simulated.node import SimulatedNode, Spell


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


INTERVAL_S = 0.02  # between samples where nothing keeps autocap from taking them: after a long gap two come at once
_GAP_S = (0.02, 5.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Starvation:
    """How seldom autocap gets to run.

    spells: when it is starved. gap_s, spread: median of the gaps between samples and the standard deviation of their
    logarithm; no gap is shorter than 20 ms or longer than 5 s. bursts: the share of samples that come as soon as the
    one before is done. held_up: the share of readings that such a gap follows before anybody looks at the clock.
    """

    spells: tuple[Spell, ...]
    gap_s: float
    spread: float
    bursts: float = 0.0
    held_up: float = 0.0


class StarvedClock(VirtualClock):
    """A clock that wakes late while there is starvation: after a gap that is drawn."""

    def __init__(self, starvation: Starvation, seed: int) -> None:
        super().__init__()
        self._starvation = starvation
        self._rng = np.random.default_rng([seed, 8])

    def wait_until(self, t_s: float) -> int | None:
        now_s = self.now()
        if not self.is_starved:
            return super().wait_until(t_s)
        if self._rng.random() < self._starvation.bursts:
            return super().wait_until(t_s)
        return super().wait_until(max(t_s, now_s + self._gap_s()))

    def hold_up(self) -> None:
        """What is under way may take longer than it should."""
        if self.is_starved and self._rng.random() < self._starvation.held_up:
            super().wait_until(self.now() + self._gap_s())

    @property
    def is_starved(self) -> bool:
        return any(spell.holds(self.now()) for spell in self._starvation.spells)

    def _gap_s(self) -> float:
        gap_s = self._starvation.gap_s * float(np.exp(self._starvation.spread * self._rng.standard_normal()))
        return min(max(gap_s, _GAP_S[0]), _GAP_S[1])


class StarvedDevice(SimulatedDevice):
    """Devices and a step counter that are read by a process which may be held up right after."""

    def __init__(self, clock: StarvedClock, job: SimulatedJob, node: SimulatedNode | None, *, seed: int) -> None:
        super().__init__(clock, job, node, seed=seed)
        self._held_up = clock.hold_up

    def read(self) -> tuple[Reading, ...]:
        readings = super().read()
        self._held_up()
        return readings

    def steps(self, t_s: float) -> StepReading | None:
        reading = super().steps(t_s)
        self._held_up()
        return reading
