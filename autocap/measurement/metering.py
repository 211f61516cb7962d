"""The one look at each sample that everything which measures shares: how much energy it brings, whether something
disturbs, and whether the job trains just now; and what the machine draws at rest.

A validation pass, a checkpoint or a stall is no iteration and no slowdown. Two signs of it: an iteration is overdue,
and the draw stays low for longer than an iteration lasts. Both need progress that says at once when an iteration has
ended; a period in the power is recognised too late for that, and leaves its own pauses out.

At rest is before a job's first iteration, or between the runs of a sweep: the 2nd percentile of the power seen there,
as Tripp et al. 2024 (BUTTER-E, section 4) take it over months of a node.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np
from numpy.typing import NDArray

from autocap.measurement.energy import EnergyMeter, Joules, disturbance, gpus_power_w, node_power_w
from autocap.measurement.tuning import TUNING
from autocap.progress import COUNTED, Mark
from autocap.records import NodeReading, Sample

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


_UNKNOWN = "an energy counter stands still, and power readings are missing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Metered:
    """A sample with what can be said of it, and the marks that it brought.

    gained: energy since the sample before; energy_j: what the metric counts since the run began; gap_s: seconds of the
    run of which it is not known. known: whether the energy up to here is; moved: whether a counter that moved, or
    power, says so. node_fresh: the machine's reading is another than at the sample before. disturbed: why nothing
    is to be measured here, `None` where nothing disturbs. paused: the job does something other than training;
    long_pause: for so long that a cap on trial is not to slow it down; pause_ended: the last mark ends a stretch that
    held a pause.
    """

    sample: Sample
    marks: Sequence[Mark]
    gained: Joules
    energy_j: float
    gap_s: float
    known: bool
    moved: bool
    node_fresh: bool
    disturbed: str | None
    paused: bool
    long_pause: bool
    pause_ended: bool

    @property
    def t_s(self) -> float:
        return self.sample.t_s


class Metering:
    """Meters the samples of a run, in their order."""

    def __init__(self) -> None:
        self._energy, self._pauses = EnergyMeter(), PauseWatch()
        self._node_stamp_s: float | None = None

    def meter(self, sample: Sample, marks: Sequence[Mark], kind: str, settings: tuple[float, ...]) -> Metered:
        """Take in the next sample and its marks. kind: of the progress that made them. settings: at which the job
        trains, watts."""
        self._energy.add(sample)
        self._pauses.add(sample, marks, kind, settings)
        return Metered(
            sample=sample,
            marks=marks,
            gained=self._energy.gained,
            energy_j=self._energy.energy_j,
            gap_s=self._energy.gap_s,
            known=self._energy.known,
            moved=self._energy.moved,
            node_fresh=self._fresh(sample.node),
            disturbed=disturbance(sample) or self._unknown,
            paused=self._pauses.paused,
            long_pause=self._pauses.is_long,
            pause_ended=self._pauses.ended,
        )

    @property
    def _unknown(self) -> str | None:
        return None if self._energy.known and not self._energy.lost else _UNKNOWN

    def _fresh(self, node: NodeReading | None) -> bool:
        """Whether the meter has a new reading; not at the first sample, where its age is not known."""
        if node is None or node.power_w is None:
            return False
        before_s, self._node_stamp_s = self._node_stamp_s, node.t_s
        return before_s is not None and before_s != node.t_s


_APART_S = 0.2  # of the points that are kept until the next mark
_MOST_POINTS = 10_000


class EnergyCurve:
    """Points of the energy since the run began, and of the seconds of which it is not known."""

    def __init__(self) -> None:
        self._points: list[tuple[float, float, float]] = []  # t_s, energy_j, gap_s

    @property
    def start_s(self) -> float | None:
        """Its first point, seconds; `None` before there is one."""
        return self._points[0][0] if self._points else None

    def add(self, metered: Metered) -> None:
        """Another point."""
        point = (metered.t_s, metered.energy_j, metered.gap_s)
        if len(self._points) > 1 and metered.t_s - self._points[-2][0] < _APART_S:
            self._points[-1] = point
        else:
            self._points.append(point)
        if len(self._points) > _MOST_POINTS:  # no mark for long
            self._points = self._points[::2]

    def at(self, t_s: float) -> tuple[float, float]:
        """Joules by a moment, and the gaps until then, seconds; what is nearest outside of the curve."""
        after = bisect_right(self._points, t_s, key=lambda point: point[0])
        if after in (0, len(self._points)):
            _, energy_j, gap_s = self._points[min(after, len(self._points) - 1)]
            return energy_j, gap_s
        (t0_s, energy0_j, gap0_s), (t1_s, energy1_j, gap1_s) = self._points[after - 1 : after + 1]
        share = (t_s - t0_s) / (t1_s - t0_s)
        return energy0_j + share * (energy1_j - energy0_j), gap0_s + share * (gap1_s - gap0_s)

    def forget_before(self, t_s: float) -> None:
        """Keep no more than what is asked for from a moment on."""
        first = bisect_right(self._points, t_s - _APART_S, key=lambda point: point[0])
        if first > 0 and (first == len(self._points) or self._points[first][0] > t_s):
            first -= 1  # samples may be far apart: the moment lies between this point and the next
        del self._points[:first]


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
