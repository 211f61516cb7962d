"""A stretch of readings, made ready: interruptions cut out, thinned to what an estimate needs, in units of its own
spread.

Where a job lies still instead of iterating, as while checkpoints are being written, the device waits at whatever level.
What belongs to an iteration comes back with every one of them. So stretches are interruptions where they are still and
stand out as longer than all others, with lively stretches in between. Where there are many of them, that alone does
not tell whether an iteration waits in them or whether they come between iterations.
"""

from dataclasses import dataclass, replace

import numpy as np

from autocap.progress.period.estimate import Bools, Floats

_MOST_LOOKED_AT = 1200  # readings: of more every so manieth is looked at
_WINDOW_READINGS, _WINDOW_S = 5, 0.5
_STOPPED = 0.2  # range within a window, of the range that is usual where the power moves
_MOVING = 80.0  # percentile of the ranges of all windows that stands for that
_LEVEL_S, _LONG_S = 0.8, 2.0  # the shortest level of an interruption, and the shortest interruption
_STANDS_OUT = 1.6  # times the longest of the others
_FEW, _MOST_LEVELS = 7, 3  # as many may be a part of what repeats; levels of one
_LEAST_WINDOWS = 4  # to tell what is usual
_STEP_WINDOWS = 1.5  # between two levels of one interruption
_LIVELY = 3.0  # ups and downs for each interruption, in ranges of the whole
_LEAST_LEFT = 0.15
# Where the power hardly moves but for them, interruptions are known by their level.
_LOW, _LEVEL = 0.75, 0.05  # of the usual power; its range, over itself
_LONG, _MOST = 0.07, 0.5  # of the time: one of them, and all
_ONCE_OR_TWICE = 2
_FLAT = 0.5  # range of what is left, of the whole

_Stretch = tuple[int, int]  # the first reading, and the one after the last


@dataclass(frozen=True, slots=True)
class Pauses:
    """Interruptions of a stretch of readings. within: which readings lie in one, shape (n,). shortest_s: the shortest
    level of any; 0 where there are none. few: whether they are too few to be a part of what repeats.
    """

    within: Bools
    shortest_s: float
    few: bool


def pauses(t_s: Floats, power_w: Floats) -> Pauses:
    """The interruptions in readings, each of shape (n,); t_s ascending."""
    every = -(-len(t_s) // _MOST_LOOKED_AT)
    found, shortest_s = _interruptions(t_s[::every], power_w[::every])
    within = _idle(t_s, power_w)
    if within.any():
        return Pauses(within, 0.0, True)
    for start, end in found:
        within[start * every : end * every] = True
    if np.mean(~within) < _LEAST_LEFT:
        return Pauses(np.zeros(len(t_s), dtype=bool), 0.0, True)
    return Pauses(within, shortest_s, len(found) < _FEW)


def _idle(t_s: Floats, power_w: Floats) -> Bools:
    """Long stretches at a low, still level within power that hardly moves otherwise, shape (n,).

    Long is a share of all the time that no phase of an iteration reaches when there are cycles enough to find any.
    """
    low = np.concatenate(([False], power_w < _LOW * float(np.median(power_w)), [False]))
    edges = np.flatnonzero(np.diff(low.astype(int)))
    idle = np.zeros(len(t_s), dtype=bool)
    long = [t_s[end - 1] - t_s[start] > _LONG * (t_s[-1] - t_s[0]) for start, end in edges.reshape(-1, 2)]
    if sum(long) > _ONCE_OR_TWICE:
        return idle
    for start, end in edges.reshape(-1, 2)[np.array(long, dtype=bool)]:
        calm_w, lively_w = np.percentile(power_w[start:end], [10, 90])
        idle[start:end] = lively_w - calm_w < _LEVEL * lively_w
    calm = np.mean(idle) < _MOST and np.ptp(power_w[~idle]) < _FLAT * np.ptp(power_w)
    return idle if calm else np.zeros(len(t_s), dtype=bool)


def _interruptions(t_s: Floats, power_w: Floats) -> tuple[list[_Stretch], float]:
    if len(t_s) < _LEAST_WINDOWS * _WINDOW_READINGS:
        return [], 0.0
    step_s = float(np.median(np.diff(t_s)))
    size = int(np.clip(_WINDOW_S / max(step_s, 1e-9), _WINDOW_READINGS, len(t_s) // _LEAST_WINDOWS))
    windows = np.lib.stride_tricks.sliding_window_view(power_w, size)
    ranges = windows.max(axis=1) - windows.min(axis=1)
    usual_w = float(np.percentile(ranges, _MOVING))
    edges = np.flatnonzero(np.diff(np.concatenate(([False], ranges < _STOPPED * usual_w, [False])).astype(int)))
    starts, ends = edges[::2], edges[1::2] + size - 1
    lengths_s = t_s[ends - 1] - t_s[starts]
    ordered_s = np.sort(lengths_s)
    others_s = np.maximum(np.concatenate(([0.0], ordered_s[:-1])), size * step_s)
    for shortest_s in ordered_s[ordered_s >= np.maximum(_STANDS_OUT * others_s, _LEVEL_S)]:
        levels = lengths_s >= shortest_s
        found, most_levels = _joined(starts[levels], ends[levels], int(_STEP_WINDOWS * size))
        if most_levels > _MOST_LEVELS:
            continue
        if _lively(power_w, found):
            return [(start, end) for start, end in found if t_s[end - 1] - t_s[start] >= _LONG_S], float(shortest_s)
    return [], 0.0


def _lively(power_w: Floats, found: list[_Stretch]) -> bool:
    """Whether the power goes up and down between interruptions, in most places where they are many."""
    moved_w = np.concatenate(([0.0], np.cumsum(np.abs(np.diff(power_w)))))
    starts, ends = [0, *(end for _, end in found)], [*(start for start, _ in found), len(power_w) - 1]
    each_w = moved_w[ends] - moved_w[np.minimum(starts, len(power_w) - 1)]
    usual_w = float(np.median(each_w[1:-1])) if len(found) >= _FEW else float(np.sum(each_w)) / len(found)
    low_w, high_w = np.percentile(power_w, [2, 98])
    return usual_w >= _LIVELY * float(high_w - low_w)


def _joined(starts: Floats, ends: Floats, gap: int) -> tuple[list[_Stretch], int]:
    """Stretches with no more than a step between them as one, and of how many the largest was made."""
    first = np.concatenate(([True], starts[1:] - ends[:-1] > gap))
    last = np.concatenate((first[1:], [True]))
    most = int(np.max(np.bincount(np.cumsum(first))))
    return [(int(start), int(end)) for start, end in zip(starts[first], ends[last], strict=True)], most


MOST_READINGS = 1200
FEWEST_READINGS = 24
_GRID_PER_READING = 8.0  # where readings come in bursts, a grid as fine as they would be nearly all gap
_LEVEL_READINGS = 12
_LEVEL_BLOCKS = 9
_STRETCHES = 10
_LARGEST = 1e12  # seconds or watts
_LEAST_W = 1e-9
_LEAST_SPAN_S = 1e-6
_STILL = 0.3
_ELSEWHERE = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """t_s, busy_s, y: shape (n,), ascending without repeats; power is centre_w + spread_w · y. busy_s: t_s as if there
    had been no interruptions, each cut down to one step. cuts_s: where that was done, in busy_s, shape (m,); lost_s:
    how much was cut out there. paused: which readings lie in interruptions that were left in, as they come so often
    that they may be a part of what repeats; paused_s: the shortest level of those, 0 where there are none. step_s:
    usual time between readings. window_s: the stretch of time that a reading averages over. together: how many readings
    were averaged for one; hidden: the root of their mean square about that, of its spread.
    """

    t_s: Floats
    busy_s: Floats
    cuts_s: Floats
    lost_s: Floats
    paused: Bools
    paused_s: float
    y: Floats
    centre_w: float
    spread_w: float
    step_s: float
    window_s: float
    together: int
    hidden: float

    @property
    def span_s(self) -> float:
        """Without interruptions."""
        return float(self.busy_s[-1] - self.busy_s[0])

    def cuts_within(self) -> Floats:
        """Seconds from the first reading, on the clock without interruptions, to each cut."""
        cuts_s: Floats = self.cuts_s - self.busy_s[0]
        within: Floats = cuts_s[(cuts_s > 0) & (cuts_s < self.span_s)]
        return within

    def clock_s(self, busy_s: Floats) -> Floats:
        """Times on the readings' own clock, of some on that without interruptions; shape (n,)."""
        before = np.concatenate(([0.0], np.cumsum(self.lost_s)))
        clock_s: Floats = busy_s + before[np.searchsorted(self.cuts_s, busy_s)]
        return clock_s

    def part(self, start: float, end: float) -> "Series":
        """The readings between two shares of their number."""
        places = slice(int(start * len(self.t_s)), int(end * len(self.t_s)))
        return replace(
            self, t_s=self.t_s[places], busy_s=self.busy_s[places], paused=self.paused[places], y=self.y[places]
        )

    def uneven(self) -> bool:
        """Whether some stretch is unlike the others: it lies still, or at another level."""
        blocks = np.array_split(self.y, _STRETCHES)
        spreads = np.array([block.std() for block in blocks])
        levels = np.array([block.mean() for block in blocks])
        usual = float(np.median(spreads))
        return bool(spreads.min() < _STILL * usual or np.ptp(levels) > _ELSEWHERE * usual)


def prepare(
    t_s: Floats, power_w: Floats, *, update_s: float, window_s: float, period_s: float | None = None
) -> Series | None:
    """Readings as a series; `None` when there are too few, or nothing varies. Zero and missing readings are gaps, and
    so is one that is no later than another before it; neighbours are averaged where there are more readings than an
    estimate needs. Interruptions are cut out where they are few, and where each outlasts a period that is known.
    """
    t_s, power_w = usable(t_s, np.where(power_w > _LEAST_W, power_w, np.nan))
    if len(t_s) < FEWEST_READINGS or t_s[-1] - t_s[0] < _LEAST_SPAN_S:
        return None
    found = pauses(t_s, power_w)
    cut = found.few or (period_s is not None and period_s < found.shortest_s)
    busy = ~found.within if cut else np.ones(len(t_s), dtype=bool)
    paused = found.within[busy]
    busy_s, cuts_s, lost_s = _without(t_s, ~busy)
    t_s, power_w = t_s[busy], power_w[busy]
    if len(t_s) < FEWEST_READINGS:
        return None
    together, hidden_w = int(np.ceil(len(t_s) / MOST_READINGS)), 0.0
    if together > 1:
        size = len(t_s) // together * together
        hidden_w = float(np.sqrt(np.mean(np.var(power_w[:size].reshape(-1, together), axis=1))))
        t_s, busy_s, power_w = (values[:size].reshape(-1, together).mean(axis=1) for values in (t_s, busy_s, power_w))
        paused = paused[:size].reshape(-1, together).all(axis=1)
    centre = float(np.median(power_w))
    low, high = np.percentile(power_w, [5, 95])
    spread = max(float(high - low) / 3.0, float(np.std(power_w)) / 4.0)
    if spread <= 1e-6 * abs(centre):
        return None
    span_s = float(busy_s[-1] - busy_s[0])
    return Series(
        t_s=t_s,
        busy_s=busy_s,
        cuts_s=cuts_s,
        lost_s=lost_s,
        paused=paused,
        paused_s=0.0 if cut else found.shortest_s,
        y=(power_w - centre) / spread,
        centre_w=centre,
        spread_w=spread,
        step_s=max(float(np.median(np.diff(busy_s))), span_s / (_GRID_PER_READING * len(t_s))),
        window_s=max(window_s, update_s) if window_s <= 0 else window_s + (together - 1) * update_s,
        together=together,
        hidden=hidden_w / spread,
    )


def _without(t_s: Floats, cut: Bools) -> tuple[Floats, Floats, Floats]:
    """The times that are left, moved together; where that was done, on the same clock; and by how much."""
    left = np.flatnonzero(~cut)
    left_s, step_s = t_s[left], float(np.median(np.diff(t_s)))
    after = np.flatnonzero(np.diff(left) > 1) + 1
    lost_s = np.maximum(left_s[after] - left_s[after - 1] - step_s, 0.0)
    before_s = np.zeros(len(left_s))
    before_s[after] = lost_s
    busy_s = left_s - np.cumsum(before_s)
    return busy_s, (busy_s[after - 1] + busy_s[after]) / 2, lost_s


def usable(t_s: Floats, values: Floats) -> tuple[Floats, Floats]:
    """The finite ones among values with their stamps, each later than those before; of a size that anything real has,
    so that no square of them overflows."""
    real = (np.abs(t_s) < _LARGEST) & (np.abs(values) < _LARGEST)
    t_s, values = t_s[real], values[real]
    later = ascending(t_s)
    return t_s[later], values[later]


def ascending(t_s: Floats) -> Bools:
    """Which of some times are later than all before them, shape (n,)."""
    return np.concatenate(([True], np.diff(np.maximum.accumulate(t_s)) > 0))[: len(t_s)]


def above_level(series: Series, period_s: float) -> Floats:
    """The readings without their slowly changing level, the running median of the means of short blocks of whole
    cycles; shape (n,)."""
    t_s, y = series.busy_s, series.y
    step_s = series.span_s / (len(t_s) - 1)
    every_s = period_s * max(1.0, np.ceil(_LEVEL_READINGS * step_s / period_s))
    block = ((t_s - t_s[0]) / every_s).astype(int)
    used, block = np.unique(block, return_inverse=True)
    means = np.bincount(block, y) / np.bincount(block)
    if len(means) < 3:
        return y - float(np.median(means))
    half = min(_LEVEL_BLOCKS, len(means)) // 2
    padded = np.pad(means, half, mode="reflect")
    running = np.median(np.lib.stride_tricks.sliding_window_view(padded, 2 * half + 1), axis=1)
    return y - np.interp(t_s, t_s[0] + (used + 0.5) * every_s, running)
