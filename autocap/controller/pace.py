"""How soon the controller needs the next sample. Each of them wakes a core that sleeps, so none is taken that says
nothing new.

Exact counts and energy counters know what was used by when, however seldom they are looked at: a window needs its
edges alone. There the energy by the end of an iteration is interpolated between two samples, and a counter that moves
every 100 ms is known to a sample's distance: so while something is measured there are many samples an iteration, and
twenty a second where that is short. Where power is added up, or a period is looked for in it, every reading says
something.
"""

from autocap.config import SAMPLES_PER_UPDATE
from autocap.records import Sample, SensorInfo

_FASTEST_S = 0.02  # between two samples
_USUAL_S, _LONGEST_S = 0.05, 0.25  # while something is measured: flags of the driver's, as of heat, are momentary
_HELD_S = 0.8  # while a cap is held: two beats of the watchdog, which wake us in any case
_NODE_S = 0.4  # then, beside a meter of the machine without a counter
_PER_ITERATION = 16  # samples: an edge is known to a percent of an iteration
_PER_PERIOD = 6  # readings that still follow a pattern


class Pace:
    """sensor: of the devices."""

    def __init__(self, sensor: SensorInfo) -> None:
        self._update_s, self._fresh_s = sensor.update_s, sensor.update_s / SAMPLES_PER_UPDATE
        self._counts = False  # all devices count their energy
        self._holds_node = False  # the machine's is added up from power

    def take(self, sample: Sample) -> None:
        """See what a sample holds."""
        self._counts = all(reading.energy_j is not None for reading in sample.readings)
        self._holds_node = sample.node is not None and sample.node.energy_j is None

    def interval_s(self, *, held: bool, follows_power: bool, iteration_s: float) -> float:
        """Seconds until the next sample.

        held: nothing is measured, and only a change is looked for. follows_power: iterations are found in the power.
        iteration_s: of an iteration, 0 while that is unknown.
        """
        fastest_s, usual_s = max(self._fresh_s, _FASTEST_S), max(self._fresh_s, _USUAL_S)
        if follows_power:
            longest_s = max(usual_s, _NODE_S) if held else usual_s
            needed_s = min(max(iteration_s / _PER_PERIOD, fastest_s), longest_s)
            return needed_s if self._counts else min(needed_s, usual_s)
        if not self._counts:
            return max(self._update_s, _USUAL_S) if held else fastest_s
        if held:
            return max(_NODE_S if self._holds_node else _HELD_S, self._fresh_s)
        return min(max(iteration_s / _PER_ITERATION, usual_s), max(usual_s, _LONGEST_S))
