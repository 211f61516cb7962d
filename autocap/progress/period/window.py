"""What a power reading averages over, learned from the energy counter, which misses nothing.

A reading at t that averages over the last w seconds is the energy of these seconds over w, whatever the load does:

    r(t) = gain·(E(t) - E(t - w))/w + offset

The counter shows E where it moves, later by up to one of its moves; in between it is taken to rise evenly. Of all w the
one that explains the readings best is the window, and those that do not explain them worse in every stretch of time
may be it as well: with ten stretches a wrong one is that bad by chance once in a thousand. How finely the counter moves
limits that, so the window is given with half of a move on either side. A sensor that is no average, as a low pass,
leaves too much, or has another gain; so do readings that show a load faster than the sensor, which the counter does
not. Then nothing is learned.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autocap.progress.period.estimate import Floats

_STEP = 1.08  # from one window that is tried to the next
_SHORTEST_MOVES, _SHORTEST, _LONGEST_S = 0.2, 0.1, 1.6  # windows that are tried: of a move, of an update; seconds
_LATE = np.linspace(-0.25, 1.0, 6)  # moves of the counter that these may be seen late
_STRETCHES, _FEWEST_READINGS = 10, 100
_LEFT = 0.05  # of the variation of the readings, at most
_GAIN = (0.92, 1.08)  # of the readings against the counter: both are of the same shunts
_MOVES, _MOST_MOVES_APART = 60, 2.5  # fewest moves; gap between two of them, times the usual one
_RESPONSES, _AS_WELL = np.geomspace(0.15, 1.5, 8), 3.0  # time constants, in windows; left by a low pass, at least
_LEAST_MOVES = 2.0  # of the counter in a window: of a shorter one these say little
_WIDEST = 0.6  # of what is learned: half of it, over its middle


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What a reading averages over: window_s, seconds, and by which share it may be longer or shorter."""

    window_s: float
    off: float


def learned(t_s: Floats, power_w: Floats, moved_s: Floats, energy_j: Floats, *, update_s: float) -> Window | None:
    """The window of a sensor, `None` where that cannot be told.

    t_s, power_w: fresh readings with their own stamps, ascending, shape (n,), seconds and watts. moved_s, energy_j:
    when the energy counter was seen to have moved, ascending, and what it showed, shape (m,), seconds and joules.
    update_s: of the sensor.
    """
    if len(moved_s) < _MOVES:
        return None
    move_s = float(np.median(np.diff(moved_s)))
    shortest_s = min(_SHORTEST_MOVES * move_s, _SHORTEST * update_s)
    windows_s = np.geomspace(shortest_s, _LONGEST_S, int(np.log(_LONGEST_S / shortest_s) / np.log(_STEP)) + 2)
    within = (t_s > moved_s[0] + _LONGEST_S) & (t_s < moved_s[-1] - move_s) & np.isfinite(power_w)
    gaps_s = np.diff(moved_s)[np.clip(np.searchsorted(moved_s, t_s) - 1, 0, len(moved_s) - 2)]
    within &= gaps_s < _MOST_MOVES_APART * move_s
    t_s, power_w = t_s[within], power_w[within]
    if len(t_s) < _FEWEST_READINGS or np.ptp(power_w) <= 0:
        return None
    averages_w = [_averages(t_s + late_s, moved_s, energy_j, windows_s) for late_s in _LATE * move_s]
    left, gain = _left(averages_w, power_w)
    whole = left.sum(axis=1)
    best = int(np.argmin(whole))
    if whole[best] > _LEFT or not _GAIN[0] < gain[best] < _GAIN[1]:
        return None
    passed_w = [_passed(t_s + late_s, moved_s, energy_j, _RESPONSES * windows_s[best]) for late_s in _LATE * move_s]
    if np.min(_left(passed_w, power_w)[0].sum(axis=1)) < _AS_WELL * whole[best]:
        return None
    worse = np.all(left > left[best], axis=1)
    may_be_s = windows_s[~worse]
    if may_be_s[0] < _LEAST_MOVES * move_s:
        return None
    low_s = max(float(may_be_s[0]) / _STEP - 0.5 * move_s, 0.0)
    high_s = float(may_be_s[-1]) * _STEP + 0.5 * move_s
    found = Window(window_s=0.5 * (low_s + high_s), off=(high_s - low_s) / (high_s + low_s))
    return found if found.off < _WIDEST else None


def _averages(t_s: Floats, moved_s: Floats, energy_j: Floats, windows_s: Floats) -> Floats:
    """Mean power over the last of some windows, shape (windows, n)."""
    before_j = np.interp(t_s - windows_s[:, None], moved_s, energy_j)
    means_w: Floats = (np.interp(t_s, moved_s, energy_j) - before_j) / windows_s[:, None]
    return means_w


def _passed(t_s: Floats, moved_s: Floats, energy_j: Floats, constants_s: Floats) -> Floats:
    """Power behind a first-order low pass with each of some time constants, shape (constants, n)."""
    spans_s = np.diff(moved_s)
    power_w, kept = np.diff(energy_j) / spans_s, np.exp(-spans_s / constants_s[:, None])
    at_moves_w = np.empty((len(constants_s), len(moved_s)))
    at_moves_w[:, 0] = power_w[0]
    for place, now_w in enumerate(power_w):
        at_moves_w[:, place + 1] = now_w + (at_moves_w[:, place] - now_w) * kept[:, place]
    last = np.clip(np.searchsorted(moved_s, t_s) - 1, 0, len(power_w) - 1)
    since = np.exp(-(t_s - moved_s[last]) / constants_s[:, None])
    passed_w: Floats = power_w[last] + (at_moves_w[:, last] - power_w[last]) * since
    return passed_w


def _left(models_w: Sequence[Floats], power_w: Floats) -> tuple[Floats, Floats]:
    """What is left of the variation of readings, shape (n,), in each of some stretches, by the best of what each of
    some sensors would read, all of shape (sensors, n): shape (sensors, stretches); and the gains, shape (sensors,)."""
    values = power_w - power_w.mean()
    starts = np.arange(_STRETCHES) * len(values) // _STRETCHES
    left, gains = np.full((len(models_w[0]), _STRETCHES), np.inf), np.ones(len(models_w[0]))
    for model_w in models_w:
        centred_w = model_w - model_w.mean(axis=1, keepdims=True)
        gain = centred_w @ values / np.maximum(np.sum(centred_w**2, axis=1), 1e-12)
        rest = values - np.clip(gain, *_GAIN)[:, None] * centred_w
        squares = np.add.reduceat(rest**2, starts, axis=1)
        better = squares.sum(axis=1) < left.sum(axis=1)
        left[better], gains[better] = squares[better], gain[better]
    return left / float(values @ values), gains
