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
from autocap.progress import COUNTED, Mark
from autocap.records import Sample

Floats = NDArray[np.float64]
_LONGER = 1.0  # an iteration of twice the usual time holds something else
_SPREADS = 8.0
_MOST_LONG = 0.15  # of all iterations
_KEPT = 64  # iterations that say what is usual
_FEWEST = 4
_OVERDUE = 3.0  # usual iterations without an end
_OVERDUE_AT_NEW_CAP = 6.0  # a low cap alone may slow a job down four times
_SHORTEST_S = 1.0
_LONG_S = 5.0
_LOW = 0.6  # of the usual draw
_DRAW_MEMORY = 0.02  # weight of a new reading in the usual draw
_MOST_IN_A_ROW = 3  # long iterations; more of them are how the job goes from here on,
_MANY = 8.0  # and so is the second stretch of as many iterations, where samples are far apart


class PauseWatch:
    """Watches every sample and its marks. paused: whether the job does something other than training now.

    is_long: whether no iteration has ended for so long that a cap on trial is not to slow down what goes on instead.
    ended: whether the stretch that the last mark ended held a pause.
    """

    def __init__(self) -> None:
        self.paused = self.is_long = self.ended = False
        self._times: deque[float] = deque(maxlen=_KEPT)
        self._usual_s = 0.0  # their median
        self._at_cap = 0  # iterations seen since the caps changed
        self._caps_w: tuple[float, ...] = ()
        self._last: Mark | None = None
        self._in_a_row = 0
        self._draw_w: float | None = None
        self._low_since_s: float | None = None

    def add(self, sample: Sample, marks: Sequence[Mark], kind: str, caps_w: tuple[float, ...]) -> None:
        """Take in a sample at these caps, watts, with its marks. kind: of the progress that made them."""
        self.ended = False
        if caps_w != self._caps_w:
            self._caps_w, self._at_cap, self._low_since_s = caps_w, 0, None
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
            overdue_s = (_OVERDUE if self._at_cap >= _FEWEST else _OVERDUE_AT_NEW_CAP) * self._usual_s
            self.is_long = since_s > max(overdue_s, _LONG_S)
            if len(self._times) >= _FEWEST:
                self.paused = since_s > max(overdue_s, _SHORTEST_S) or self._idle(sample.t_s)

    def _feel(self, sample: Sample) -> None:
        """Whether the draw is low."""
        draw_w = gpus_power_w(sample)
        if draw_w is None:
            return
        if self._draw_w is None:
            self._draw_w = draw_w
        if draw_w >= _LOW * self._draw_w:
            self._low_since_s = None
        elif self._low_since_s is None:
            self._low_since_s = sample.t_s
        if not self.paused:
            self._draw_w += _DRAW_MEMORY * (draw_w - self._draw_w)

    def _idle(self, now_s: float) -> bool:
        if self._low_since_s is None or self._at_cap < _FEWEST or self._last is None:
            return False
        low_s = now_s - max(self._low_since_s, self._last.t_s)
        return low_s > max(1.2 * self._usual_s, _SHORTEST_S)

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
        if self._in_a_row > (_MOST_IN_A_ROW if iterations < _MANY else 1):
            self._times.clear()
            self.ended = False
        if not self.ended:
            self._times.append(seconds / iterations)
            self._usual_s = median(self._times)

    def _far_longer(self, seconds: float, iterations: float) -> bool:
        if self._at_cap < _FEWEST or len(self._times) < 2 * _FEWEST:
            return False
        beyond_s = seconds - iterations * self._usual_s
        if beyond_s < max(_OVERDUE / 2 - iterations, 0.9 * _LONGER) * self._usual_s:  # as nearly always: no arrays
            return False
        times = np.array([*self._times, seconds / iterations])
        # Samples may be far apart. What scatters from stretch to stretch is then the mean of many iterations, and a
        # stretch that is longer by a few such spreads of each of them holds nothing else.
        if beyond_s < _SPREADS * iterations * _spread(times):
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
    long = seconds - iterations * middle > max(_LONGER * middle, _SPREADS * _spread(times))
    return long if long.sum() <= _MOST_LONG * iterations.sum() else np.zeros_like(long)


def _spread(times: Floats) -> float:
    """Standard deviation as the median absolute deviation tells it."""
    return 1.4826 * float(np.median(np.abs(times - np.median(times))))
