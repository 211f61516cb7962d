"""How busy a job keeps its CPUs: what stands in for a GPU's load."""

import math

_MEMORY_S = 0.05  # long against the clock's errors at the edges of a slice, short against the sensor's update
_LOOK_S = 1.0  # of running, over which the job's breadth is looked at
_BUSY_SHARE = 0.8  # the quantile of the rate that counts as its breadth: idle and single-threaded phases lie below


class Activity:
    """The share of the CPUs that the job keeps busy when it is at work, over the last moments it could run; 0 to 1.

    A job of one thread on a large machine keeps its emulated GPU as busy as one that uses every core: what counts is
    its own breadth, the most CPUs that it kept busy in any second, in whole CPUs.
    """

    def __init__(self) -> None:
        self._rate = 0.0  # CPU seconds per second
        self._carried_s = 0.0
        self._breadth = 1
        self._looked_s = 0.0
        self._rates: list[float] = []

    def spend(self, run_s: float, cpu_s: float) -> None:
        """Seconds in which the job could run, and the CPU seconds that it used.

        In a stop, pass 0 and what it still used: that counts with the next run.
        """
        self._carried_s += cpu_s
        if run_s > 0:
            keep = math.exp(-run_s / _MEMORY_S)
            rate = self._carried_s / run_s
            self._rate = keep * self._rate + (1.0 - keep) * rate
            self._carried_s = 0.0
            self._look(run_s, rate)

    def share(self) -> float:
        """The activity."""
        return min(max(self._rate / self._breadth, 0.0), 1.0)

    def _look(self, run_s: float, rate: float) -> None:
        self._rates.append(rate)
        self._looked_s += run_s
        if self._looked_s >= _LOOK_S:
            busy = sorted(self._rates)[int(_BUSY_SHARE * (len(self._rates) - 1))]
            self._breadth = max(self._breadth, round(busy))
            self._rates, self._looked_s = [], 0.0
