"""What the machine draws while it has nothing to do: before a job's first iteration, or between the runs of a sweep.

The 2nd percentile of the power seen, as Tripp et al. 2024 (BUTTER-E, section 4) take it over months of a node.
"""

import numpy as np

from autocap.measurement.energy import node_power_w
from autocap.measurement.metering import Metered
from autocap.measurement.tuning import TUNING
from autocap.records import NodeReading

_MOST_SAMPLES = 100_000
# A period in the power is recognised long after the job began to train, and a job that was attached to trains already.
_COUNTED_FROM_THE_START = ("steps", "regex")


class RestPower:
    """Estimates it from what was seen while nothing ran. seen_s: over how long it has looked."""

    def __init__(self) -> None:
        self._watts: list[float] = []
        self._last_s: float | None = None
        self.seen_s = 0.0

    def see(self, t_s: float, power_w: float | None) -> None:
        """What the machine draws now, watts; `None` where that is not known."""
        if power_w is not None and len(self._watts) < _MOST_SAMPLES:
            self.seen_s += 0.0 if self._last_s is None else t_s - self._last_s
            self._last_s = t_s
            self._watts.append(power_w)

    def look_away(self) -> None:
        """Until the next look something runs."""
        self._last_s = None

    def estimate(self) -> float | None:
        """Watts; `None` where there was too little to see."""
        return float(np.percentile(self._watts, TUNING.idle_percentile)) if self.seen_s >= TUNING.idle_least_s else None


class IdleWatch(RestPower):
    """Watches the start of a run until the first iteration has ended."""

    def __init__(self) -> None:
        super().__init__()
        self._done = False

    def before(self, t_s: float, node: NodeReading) -> None:
        """A reading from before the devices are known; it tells of the machine only where theirs is in it."""
        if node.whole:
            self.see(t_s, node.power_w)

    def add(self, metered: Metered, kind: str) -> float | None:
        """The idle power, watts, once: with the first marks; `None` before and afterwards, and where there was too
        little to see. kind: of the progress that made the marks."""
        if self._done or metered.sample.node is None:
            return None
        if metered.marks:
            self._done = True
            return self.estimate() if kind in _COUNTED_FROM_THE_START else None
        self.see(metered.t_s, node_power_w(metered.sample))
        return None
