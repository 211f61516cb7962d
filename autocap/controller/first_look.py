"""What the first iterations show: enough to leave the limit found on arrival, where each second costs most.

Every published curve has its optimum well below the draw. So a search does not wait until activity is known to be
steady and the baseline is known well: it begins from a rough one. Whether the job is steady shows in the first trial,
and the baseline is measured in turn with the cap that is to be kept, when all that is stated depends on it.
"""

import math
from dataclasses import replace

from autocap.controller.tuning import TUNING
from autocap.knobs import POWER_LIMIT, Knob
from autocap.measurement.metering import Metered
from autocap.measurement.window import Window
from autocap.progress import COUNTED
from autocap.records import Measurement, SensorInfo


class FirstLook:
    """Takes samples at the limits found on arrival, watts, one per device, until they show a rough baseline.

    Of iterations that are counted, two will do. A period in the power is known only after many, which say well enough
    how exact they are; what a clock did says nothing at once. batches: fewest behind an error. knob: of the limits.
    """

    def __init__(self, settings: tuple[float, ...], sensor: SensorInfo, batches: int, knob: Knob = POWER_LIMIT) -> None:
        self._sensor, self._batches, self._knob = sensor, batches, knob
        self._from_s = math.inf
        self.begin(settings)

    def begin(self, settings: tuple[float, ...]) -> None:
        """These are the limits, and what was seen so far does not count."""
        self._settings = settings
        self._window: Window | None = None

    def add(self, metered: Metered, kind: str) -> Measurement | None:
        """Take in a sample; the rough baseline, its errors stated as such, once there is one. kind: of the progress."""
        if metered.disturbed is not None or metered.paused or metered.sample.node is not None:
            self._window = None
            return None
        if self._window is None:
            self._window, self._from_s = Window(self._settings), metered.t_s + self._sensor.window_s
        self._window.add(metered, [mark for mark in metered.marks if mark.t_s >= self._from_s])
        if not metered.marks or kind == "speed":
            return None
        if kind not in COUNTED:
            return self._window.measure(self._batches)
        if self._window.iterations < TUNING.baseline_rough_iterations or self._window.span_s < TUNING.baseline_rough_s:
            return None
        t_s, counts = self._window.marks()
        if t_s.size < TUNING.baseline_rough_iterations + 1:  # a sample may bring more than one iteration
            return None
        last_s = (t_s[-1] - t_s[-2]) / (counts[-1] - counts[-2])
        before_s = (t_s[-2] - t_s[0]) / (counts[-2] - counts[0])
        if not 1 / (1 + TUNING.baseline_rough_alike) < last_s / before_s < 1 + TUNING.baseline_rough_alike:
            self._window.trim(float(t_s[-2]))  # what came before was another kind of iteration
            return None
        seen = self._window.measure(TUNING.baseline_rough_iterations)
        if seen is None:
            return None
        idles = seen.of_gpus().power_w < TUNING.baseline_rough_draw * sum(self._settings)
        return None if self._knob.is_power_limit and idles else rough(seen)


def rough(seen: Measurement) -> Measurement:
    """With errors that do not rest on the scatter of a few iterations alone: a job may do something else at first. This
    only ever widens what is said, and what is known better takes its place before anything is confirmed."""
    return replace(
        seen,
        period_rel_stderr=math.hypot(seen.period_rel_stderr, TUNING.baseline_rough_floor),
        energy_rel_stderr=math.hypot(seen.energy_rel_stderr, TUNING.baseline_rough_floor),
        power_rel_stderr=math.hypot(seen.power_rel_stderr, TUNING.baseline_rough_floor),
        time_energy_corr=0.0,
    )
