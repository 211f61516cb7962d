"""How soon the controller needs the next sample. Each of them wakes a core that sleeps, so none is taken that says
nothing new.

Exact counts and energy counters know what was used by when, however seldom they are looked at: a window needs its
edges alone. There the energy by the end of an iteration is interpolated between two samples, and a counter that moves
every 100 ms is known to no better than that. So while something is measured there are many samples an iteration, or
two a move of the counter, in step with it: it is then found as old each time. Out of step a search took up to twice as
long until errors were as small; with one a move, and out of step by a hundredth, three times. Where power is added up,
or a period is looked for in it, every reading of the sensor counts: through every other one a period was found to be
off by 4 %. Once it is known at a cap that is held, its phase is followed by a reading now and then.
"""

from autocap.config import SAMPLES_PER_UPDATE
from autocap.records import Sample, SensorInfo

_FASTEST_S = 0.02  # between two samples; no sensor is known to update more often
_USUAL_S = 0.05  # while something is measured
_FAST_COUNTER_S, _BY_FAST_COUNTER_S = 0.05, 0.1  # one that moves more often than that is never old
_LONGEST_S = 0.25  # then: flags of the driver's, as of heat, are momentary
_HELD_S = 0.8  # while a cap is held: two beats of the watchdog, which wake us in any case
_NODE_S = 0.4  # then, beside a meter of the machine without a counter
_PER_ITERATION = 16  # samples: an edge is known to a percent of an iteration


class Pace:
    """sensor: of the devices."""

    def __init__(self, sensor: SensorInfo) -> None:
        self._update_s, self._fresh_s = sensor.update_s, sensor.update_s / SAMPLES_PER_UPDATE
        self._step_s, self._usual_s = self._fresh_s, _USUAL_S
        if sensor.counter_s is not None:
            is_fast = sensor.counter_s < _FAST_COUNTER_S
            self._step_s = sensor.counter_s if is_fast else sensor.counter_s / SAMPLES_PER_UPDATE
            self._usual_s = _BY_FAST_COUNTER_S if is_fast else _USUAL_S
        self._counts = False  # all devices count their energy
        self._holds_node = False  # the machine's is added up from power

    def take(self, sample: Sample) -> None:
        """See what a sample holds."""
        self._counts = all(reading.energy_j is not None for reading in sample.readings)
        self._holds_node = sample.node is not None and sample.node.energy_j is None

    @property
    def counts(self) -> bool:
        """Whether counters tell the energy, however seldom they are looked at."""
        return self._counts and not self._holds_node

    def interval_s(self, *, held: bool, follows_power: bool, iteration_s: float, step_s: float = 0.0) -> float:
        """Seconds until the next sample.

        held: nothing is measured, and only a change is looked for. follows_power: iterations are found in the power,
        which takes as much then, but where a sample each step_s, above 0, will do. iteration_s: of an iteration, 0
        while that is unknown.
        """
        fastest_s = max(self._fresh_s, _FASTEST_S)
        if follows_power and held and step_s > fastest_s:
            return step_s if self._counts else min(step_s, max(self._update_s, _USUAL_S))
        if follows_power or not (self._counts or held):
            return fastest_s
        if not self._counts:
            return max(self._update_s, _USUAL_S)
        if held:
            return max(_NODE_S if self._holds_node else _HELD_S, self._fresh_s)
        needed_s = min(max(iteration_s / _PER_ITERATION, self._usual_s), _LONGEST_S)
        return self._step_s * max(1, round(needed_s / self._step_s))
