"""Where a job lies still instead of iterating: checkpoints being written, at whatever level the device waits there.

What belongs to an iteration comes back with every one of them. So stretches are interruptions where they are still and
stand out as longer than all others, and where there are few of them, with lively stretches in between.
"""

import numpy as np

from autocap.progress.period.estimate import Bools, Floats

_MOST_LOOKED_AT = 1200  # readings: of more every so manieth is looked at
_WINDOW_READINGS, _WINDOW_S = 5, 0.5
_STILL = 0.2  # range within a window, of the range that is usual where the power moves
_MOVING = 80.0  # percentile of the ranges of all windows that stands for that
_LEVEL_S, _LONG_S = 1.2, 2.0  # the shortest level of an interruption, and the shortest interruption
_STANDS_OUT = 1.6  # times the longest of the others
_FEW, _MOST_LEVELS = 7, 3  # interruptions are fewer, and levels of one no more
_LEAST_WINDOWS = 4  # to tell what is usual
_STEP_WINDOWS = 1.5  # between two levels of one interruption
_LIVELY = 4.0  # ups and downs for each interruption, in usual ranges
_LEAST_LEFT = 0.15

_Stretch = tuple[int, int]  # the first reading, and the one after the last


def working(t_s: Floats, power_w: Floats) -> Bools:
    """Which readings lie outside of interruptions, shape (n,); t_s ascending."""
    every = -(-len(t_s) // _MOST_LOOKED_AT)
    busy = np.ones(len(t_s), dtype=bool)
    for start, end in _interruptions(t_s[::every], power_w[::every]):
        busy[start * every : end * every] = False
    return busy if np.mean(busy) >= _LEAST_LEFT else np.ones(len(t_s), dtype=bool)


def _interruptions(t_s: Floats, power_w: Floats) -> list[_Stretch]:
    if len(t_s) < _LEAST_WINDOWS * _WINDOW_READINGS:
        return []
    step_s = float(np.median(np.diff(t_s)))
    size = int(np.clip(_WINDOW_S / max(step_s, 1e-9), _WINDOW_READINGS, len(t_s) // _LEAST_WINDOWS))
    windows = np.lib.stride_tricks.sliding_window_view(power_w, size)
    ranges = windows.max(axis=1) - windows.min(axis=1)
    usual_w = float(np.percentile(ranges, _MOVING))
    edges = np.flatnonzero(np.diff(np.concatenate(([False], ranges < _STILL * usual_w, [False])).astype(int)))
    starts, ends = edges[::2], edges[1::2] + size - 1
    lengths_s = t_s[ends - 1] - t_s[starts]
    ordered_s = np.sort(np.concatenate(([size * step_s], lengths_s)))
    for shortest_s in ordered_s[1:][ordered_s[1:] >= np.maximum(_STANDS_OUT * ordered_s[:-1], _LEVEL_S)]:
        levels = lengths_s >= shortest_s
        found, most_levels = _joined(starts[levels], ends[levels], int(_STEP_WINDOWS * size))
        if len(found) >= _FEW or most_levels > _MOST_LEVELS:
            continue
        moved_w = np.abs(np.diff(power_w))
        for start, end in found:
            moved_w[max(start - 1, 0) : end] = 0.0
        if float(moved_w.sum()) >= _LIVELY * usual_w * len(found):
            return [(start, end) for start, end in found if t_s[end - 1] - t_s[start] >= _LONG_S]
    return []


def _joined(starts: Floats, ends: Floats, gap: int) -> tuple[list[_Stretch], int]:
    """Stretches with no more than a step between them as one, and of how many the largest was made."""
    first = np.concatenate(([True], starts[1:] - ends[:-1] > gap))
    last = np.concatenate((first[1:], [True]))
    most = int(np.max(np.bincount(np.cumsum(first))))
    return [(int(start), int(end)) for start, end in zip(starts[first], ends[last], strict=True)], most
