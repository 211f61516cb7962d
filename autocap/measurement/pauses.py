"""Is the job training just now? A validation pass, a checkpoint or a stall is no iteration and no slowdown.

Two signs: an iteration is overdue, and the draw stays low for longer than an iteration lasts. Both need progress that
says at once when an iteration has ended; a period in the power is recognised too late for that, and leaves its own
pauses out.
"""

from collections import deque
from collections.abc import Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

from autocap.measurement.energy import gpus_power_w
from autocap.measurement.tuning import TUNING
from autocap.progress import COUNTED, Mark
from autocap.records import Sample

Floats = NDArray[np.float64]


class PauseWatch:
    """Watches every sample and its marks. paused: whether the job does something other than training now.

    is_long: whether no iteration has ended for so long that a cap on trial is not to slow down what goes on instead.
    ended: whether the stretch that the last mark ended held a pause.
    """

    def __init__(self) -> None:
        self.paused = self.is_long = self.ended = False
        self._times: deque[float] = deque(maxlen=TUNING.pause_usual_iterations)
        self._usual_s = 0.0  # their median
        self._at_cap = 0  # iterations seen since the caps changed
        self._settings: tuple[float, ...] = ()
        self._last: Mark | None = None
        self._in_a_row = 0
        self._draw_w: float | None = None
        self._low_since_s: float | None = None

    def add(self, sample: Sample, marks: Sequence[Mark], kind: str, settings: tuple[float, ...]) -> None:
        """Take in a sample at these caps, watts, with its marks. kind: of the progress that made them."""
        self.ended = False
        if settings != self._settings:
            self._settings, self._at_cap, self._low_since_s = settings, 0, None
        if kind not in COUNTED:
            return
        if sample.uncounted:
            self._last, self._low_since_s, self.paused, self.is_long = None, None, False, False
            return
        self._feel(sample)
        if marks:
            self.is_long = False
            self._count(marks[-1])
        elif self._last is not None and self._usual_s:
            since_s = sample.t_s - self._last.t_s
            is_known = self._at_cap >= TUNING.pause_fewest_iterations
            overdue_s = (TUNING.pause_overdue if is_known else TUNING.pause_overdue_at_new_cap) * self._usual_s
            self.is_long = since_s > max(overdue_s, TUNING.pause_long_s)
            if len(self._times) >= TUNING.pause_fewest_iterations:
                self.paused = since_s > max(overdue_s, TUNING.pause_shortest_s) or self._idle(sample.t_s)

    def _feel(self, sample: Sample) -> None:
        """Whether the draw is low."""
        draw_w = gpus_power_w(sample)
        if draw_w is None:
            return
        if self._draw_w is None:
            self._draw_w = draw_w
        if draw_w >= TUNING.pause_low_draw * self._draw_w:
            self._low_since_s = None
        elif self._low_since_s is None:
            self._low_since_s = sample.t_s
        if not self.paused:
            self._draw_w += TUNING.pause_draw_weight * (draw_w - self._draw_w)

    def _idle(self, now_s: float) -> bool:
        if self._low_since_s is None or self._at_cap < TUNING.pause_fewest_iterations or self._last is None:
            return False
        low_s = now_s - max(self._low_since_s, self._last.t_s)
        return low_s > max(1.2 * self._usual_s, TUNING.pause_shortest_s)

    def _count(self, mark: Mark) -> None:
        was_paused, self.paused = self.paused, False
        last, self._last = self._last, mark
        if last is None or mark.iterations <= last.iterations:
            return
        iterations = mark.iterations - last.iterations
        seconds = mark.t_s - last.t_s
        self.ended = was_paused or self._far_longer(seconds, iterations)
        self._at_cap += 1
        self._in_a_row = self._in_a_row + 1 if self.ended else 0
        if self._in_a_row > (TUNING.pause_most_in_a_row if iterations < TUNING.pause_many_iterations else 1):
            self._times.clear()
            self.ended = False
        if not self.ended:
            self._times.append(seconds / iterations)
            self._usual_s = median(self._times)

    def _far_longer(self, seconds: float, iterations: float) -> bool:
        if self._at_cap < TUNING.pause_fewest_iterations or len(self._times) < 2 * TUNING.pause_fewest_iterations:
            return False
        beyond_s = seconds - iterations * self._usual_s
        least = max(TUNING.pause_overdue / 2 - iterations, 0.9 * TUNING.pause_longer)
        if beyond_s < least * self._usual_s:  # as nearly always: no arrays
            return False
        times = np.array([*self._times, seconds / iterations])
        # Samples may be far apart. What scatters from stretch to stretch is then the mean of many iterations, and a
        # stretch that is longer by a few such spreads of each of them holds nothing else.
        if beyond_s < TUNING.pause_spreads * iterations * _spread(times):
            return False
        counts = np.ones_like(times)
        counts[-1] = iterations
        return bool(far_longer(times * counts, counts)[-1])


def far_longer(seconds: Floats, iterations: Floats) -> NDArray[np.bool_]:
    """Which stretches hold a validation pass, a checkpoint or a stall besides their iterations.

    seconds, iterations: of each stretch, shape (n,). What a stretch takes beyond the median time of its iterations is
    held against the median itself and against the spread (median absolute deviation). Where many iterations are long,
    one for each such stretch, that is how the job goes, and none is left out.
    """
    if seconds.size == 0:
        return np.zeros(0, dtype=np.bool_)
    times = seconds / iterations
    middle = float(np.median(times))
    long = seconds - iterations * middle > max(TUNING.pause_longer * middle, TUNING.pause_spreads * _spread(times))
    return long if long.sum() <= TUNING.pause_most_long * iterations.sum() else np.zeros_like(long)


def _spread(times: Floats) -> float:
    """Standard deviation as the median absolute deviation tells it."""
    return 1.4826 * float(np.median(np.abs(times - np.median(times))))
