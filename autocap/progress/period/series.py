"""A stretch of readings, made ready: gaps dropped, thinned to what an estimate needs, in units of its own spread."""

from dataclasses import dataclass, replace

import numpy as np

from autocap.progress.period.estimate import Bools, Floats

_MOST_READINGS = 1200
FEWEST_READINGS = 24
_GRID_PER_READING = 8.0  # where readings come in bursts, a grid as fine as they would be nearly all gap
_LOW = 0.75
_STILL_LEVEL = 0.05
_LONG = 0.07
_LEVEL_READINGS = 12
_LEVEL_BLOCKS = 9
_STRETCHES = 10
_STILL = 0.3
_ELSEWHERE = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """t_s, y: shape (n,), t_s ascending without repeats; power is centre_w + spread_w · y. step_s: usual time between
    readings. window_s: the stretch of time that a reading averages over.
    """

    t_s: Floats
    y: Floats
    centre_w: float
    spread_w: float
    step_s: float
    window_s: float

    @property
    def span_s(self) -> float:
        return float(self.t_s[-1] - self.t_s[0])

    def part(self, start: float, end: float) -> "Series":
        """The readings between two shares of their number."""
        places = slice(int(start * len(self.t_s)), int(end * len(self.t_s)))
        return replace(self, t_s=self.t_s[places], y=self.y[places])

    def uneven(self) -> bool:
        """Whether some stretch is unlike the others: it lies still, or at another level."""
        blocks = np.array_split(self.y, _STRETCHES)
        spreads = np.array([block.std() for block in blocks])
        levels = np.array([block.mean() for block in blocks])
        usual = float(np.median(spreads))
        return bool(spreads.min() < _STILL * usual or np.ptp(levels) > _ELSEWHERE * usual)


def prepare(t_s: Floats, power_w: Floats, *, update_s: float, window_s: float) -> Series | None:
    """Readings as a series; `None` when there are too few, or nothing varies. Zero and missing readings are gaps, and
    so is one that is no later than another before it; neighbours are averaged where there are more readings than an
    estimate needs.
    """
    usable = np.isfinite(t_s) & np.isfinite(power_w) & (power_w > 0)
    t_s, power_w = t_s[usable], power_w[usable]
    later = ascending(t_s)
    t_s, power_w = t_s[later], power_w[later]
    if len(t_s) < FEWEST_READINGS:
        return None
    busy = ~_idle(t_s, power_w)
    t_s, power_w = t_s[busy], power_w[busy]
    together = int(np.ceil(len(t_s) / _MOST_READINGS))
    if together > 1:
        size = len(t_s) // together * together
        t_s = t_s[:size].reshape(-1, together).mean(axis=1)
        power_w = power_w[:size].reshape(-1, together).mean(axis=1)
    centre = float(np.median(power_w))
    low, high = np.percentile(power_w, [5, 95])
    spread = max(float(high - low) / 3.0, float(np.std(power_w)) / 4.0)
    if spread <= 1e-6 * abs(centre):
        return None
    return Series(
        t_s=t_s,
        y=(power_w - centre) / spread,
        centre_w=centre,
        spread_w=spread,
        step_s=max(float(np.median(np.diff(t_s))), float(t_s[-1] - t_s[0]) / (_GRID_PER_READING * len(t_s))),
        window_s=max(window_s, update_s) if window_s <= 0 else window_s + (together - 1) * update_s,
    )


def ascending(t_s: Floats) -> Bools:
    """Which of some times are later than all before them, shape (n,)."""
    return np.concatenate(([True], np.diff(np.maximum.accumulate(t_s)) > 0))[: len(t_s)]


def _idle(t_s: Floats, power_w: Floats) -> Bools:
    """Long stretches at a low, still level, such as a checkpoint being written: no part of any pattern.

    Long is a share of all the time that no phase of an iteration reaches when there are cycles enough to find any.
    """
    usual = float(np.median(power_w))
    low = np.concatenate(([False], power_w < _LOW * usual, [False]))
    edges = np.flatnonzero(np.diff(low.astype(int)))
    idle = np.zeros(len(t_s), dtype=bool)
    for start, end in zip(edges[::2], edges[1::2], strict=True):
        if t_s[end - 1] - t_s[start] <= _LONG * (t_s[-1] - t_s[0]):
            continue
        calm, lively = np.percentile(power_w[start:end], [10, 90])
        idle[start:end] = lively - calm < _STILL_LEVEL * lively
    return idle if np.mean(idle) < 0.5 else np.zeros(len(t_s), dtype=bool)


def above_level(series: Series, period_s: float) -> Floats:
    """The readings without their slowly changing level, the running median of the means of short blocks of whole
    cycles; shape (n,)."""
    t_s, y = series.t_s, series.y
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
