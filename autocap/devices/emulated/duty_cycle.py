"""When to stop and when to continue a process so that it runs slower by a given factor; pure, no process here.

A stop lasts about 20 ms and the run slices between stops carry the balance: run time that is owed grows by 1/slowdown
of all time that passes and shrinks by the time that really ran, so late timers are made up for, not added up.

What ran is worth less than the clock says: a continued process waits for a CPU, and its threads for each other. The
CPU time per second of running, set against the same while nothing was throttled, shows by how much (`efficiency`).
A ratio far from 1 says that the job itself does something else now; then running time counts as it is, so that a job
that got busier is not starved.
"""

import math

STOP_S = 0.020  # on average
LONGEST_STOP_S = 0.065  # on average, where runs of the least length would not pay a shorter stop back
LEAST_RUN_S = 0.005
_NEGLIGIBLE = 5e-4  # a slowdown this close to 1 is none: a stop every 40 s would only be noise
_LARGEST_DEBT_S = 0.1
_MEMORY_S = 2.0  # of running, over which the efficiency is averaged
_FREE_MEMORY_S = 10.0  # over which the unthrottled CPU rate is
_LEAST_FREE_S, _LEAST_THROTTLED_S = 1.0, 0.2  # before which neither is believed
_PLAUSIBLE = (0.7, 1.15)
_GOLDEN = (math.sqrt(5) - 1) / 2


class _CpuRate:
    """CPU seconds per second of running, averaged with exponential forgetting."""

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self.run_s = 0.0
        self._cpu_s = 0.0

    def add(self, run_s: float, cpu_s: float) -> None:
        keep = math.exp(-run_s / self._memory_s)
        self.run_s = keep * self.run_s + run_s
        self._cpu_s = keep * self._cpu_s + cpu_s

    @property
    def rate(self) -> float:
        return self._cpu_s / self.run_s if self.run_s > 0 else 0.0


class DutyCycle:
    """Tell it what passed (`spend`), ask how long the present slice still lasts (`left_s`), and `turn` when it is over.

    stopped: whether the process is in a stop slice. It begins running, at slowdown 1.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._slowdown = 1.0
        self._owed_s = 0.0
        self._slice_s = 0.0
        self._turns = 0
        self._free = _CpuRate(_FREE_MEMORY_S)
        self._throttled = _CpuRate(_MEMORY_S)

    @property
    def slowdown(self) -> float:
        """The factor by which everything is to take longer, 1 or more; less counts as 1."""
        return self._slowdown

    @slowdown.setter
    def slowdown(self, slowdown: float) -> None:
        wanted = slowdown if slowdown > 1.0 + _NEGLIGIBLE else 1.0
        if wanted != self._slowdown:
            self._slowdown = wanted
            self._owed_s = 0.0
            self._throttled = _CpuRate(_MEMORY_S)

    @property
    def efficiency(self) -> float:
        """What a second of running between stops is worth, in seconds of running freely."""
        believed = self._free.run_s >= _LEAST_FREE_S and self._throttled.run_s >= _LEAST_THROTTLED_S
        if self._slowdown == 1.0 or not believed or self._free.rate <= 0:
            return 1.0
        ratio = self._throttled.rate / self._free.rate
        return ratio if _PLAUSIBLE[0] <= ratio <= _PLAUSIBLE[1] else 1.0

    def spend(self, elapsed_s: float, cpu_s: float) -> None:
        """Time passed in the present slice, and the CPU time that the process used up meanwhile."""
        self._slice_s += elapsed_s
        run_s = 0.0 if self.stopped else elapsed_s
        if self._slowdown == 1.0:
            self._free.add(run_s, cpu_s)
            return
        self._throttled.add(run_s, cpu_s)  # what a process uses while it is being stopped belongs to the run before
        owed_s = self._owed_s + elapsed_s / self._slowdown - run_s * self.efficiency
        self._owed_s = min(max(owed_s, -_LARGEST_DEBT_S), _LARGEST_DEBT_S)

    def left_s(self) -> float:
        """How long the present slice still lasts, as far as is known: 0 or less when it is over."""
        if self.stopped:
            return -math.inf if self._slowdown == 1.0 else self._stop_s() - self._slice_s
        gain = self.efficiency - 1.0 / self._slowdown  # run time paid back per second of running
        if self._slowdown == 1.0 or gain <= 0:
            return math.inf
        return max(self._owed_s / gain, LEAST_RUN_S - self._slice_s)

    def turn(self) -> None:
        """The process was stopped, or continued, just now."""
        self.stopped = not self.stopped
        self._slice_s = 0.0
        self._turns += 1

    def _stop_s(self) -> float:
        """Stops differ in length by up to a half, so that a job with a rhythm of its own cannot fall into step."""
        mean_s = min(max(STOP_S, LEAST_RUN_S * (self._slowdown - 1.0)), LONGEST_STOP_S)
        return mean_s * (0.5 + self._turns * _GOLDEN % 1.0)
