"""Where a job lies still instead of iterating: checkpoints being written, at whatever level the device waits there.

What belongs to an iteration comes back with every one of them. So stretches are interruptions where they are still and
stand out as longer than all others, with lively stretches in between. Where there are many of them, that alone does
not tell whether an iteration waits in them or whether they come between iterations.
"""

from dataclasses import dataclass

import numpy as np

from autocap.progress.period.estimate import Bools, Floats

_MOST_LOOKED_AT = 1200  # readings: of more every so manieth is looked at
_WINDOW_READINGS, _WINDOW_S = 5, 0.5
_STILL = 0.2  # range within a window, of the range that is usual where the power moves
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
    edges = np.flatnonzero(np.diff(np.concatenate(([False], ranges < _STILL * usual_w, [False])).astype(int)))
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
