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
from autocap.controller.tuning import TUNING
from autocap.records import Sample, SensorInfo


class Pace:
    """sensor: of the devices."""

    def __init__(self, sensor: SensorInfo) -> None:
        self._update_s, self._fresh_s = sensor.update_s, sensor.update_s / SAMPLES_PER_UPDATE
        self._step_s, self._usual_s = self._fresh_s, TUNING.sample_measuring_s
        if sensor.counter_s is not None:
            is_fast = sensor.counter_s < TUNING.sample_fast_counter_s
            self._step_s = sensor.counter_s if is_fast else sensor.counter_s / SAMPLES_PER_UPDATE
            self._usual_s = TUNING.sample_by_fast_counter_s if is_fast else TUNING.sample_measuring_s
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
        fastest_s = max(self._fresh_s, TUNING.sample_fastest_s)
        if follows_power and held and step_s > fastest_s:
            return step_s if self._counts else min(step_s, max(self._update_s, TUNING.sample_measuring_s))
        if follows_power or not (self._counts or held):
            return fastest_s
        if not self._counts:
            return max(self._update_s, TUNING.sample_measuring_s)
        if held:
            return max(TUNING.sample_node_s if self._holds_node else TUNING.sample_held_s, self._fresh_s)
        needed_s = min(max(iteration_s / TUNING.sample_per_iteration, self._usual_s), TUNING.sample_longest_s)
        return self._step_s * max(1, round(needed_s / self._step_s))
