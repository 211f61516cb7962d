"""A long signal in few points: the lowest, the mean and the highest reading of each stretch of time.

Days of samples become as many points as a screen is wide, and no peak is lost.
"""

from dataclasses import dataclass

import numpy as np

from autocap.reports.figures.model import Floats

BUCKETS = 700
_GAP = 5.0  # times the usual distance; a longer one between readings is a gap


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Shape (n,) each: the middle of a stretch, and what was read in it; NaN between stretches without a reading."""

    x: Floats
    low: Floats
    mean: Floats
    high: Floats


def envelope(x: Floats, y: Floats, buckets: int = BUCKETS) -> Envelope:
    """The envelope of readings y at ascending x, both of shape (n,), in at most that many stretches of equal length.
    Readings that are not numbers are gaps; fewer readings than two a stretch are given as they are."""
    known = np.isfinite(x) & np.isfinite(y)
    x, y = x[known], y[known]
    rows = np.stack([x, y, y, y])
    if len(x) >= 2 * buckets:
        bucket = np.minimum((buckets * (x - x[0]) / (x[-1] - x[0])).astype(int), buckets - 1)
        starts = np.flatnonzero(np.diff(bucket, prepend=-1))
        sums = np.add.reduceat(rows[:2], starts, axis=1) / np.diff(starts, append=len(x))
        rows = np.stack([sums[0], np.minimum.reduceat(y, starts), sums[1], np.maximum.reduceat(y, starts)])
    middles, low, mean, high = _broken(rows)
    return Envelope(x=middles, low=low, mean=mean, high=high)


def changes(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """A signal that holds its value, such as a limit, by its changes alone, and its end."""
    if not len(x):
        return x, y
    same = (y[1:] == y[:-1]) | (np.isnan(y[1:]) & np.isnan(y[:-1]))
    kept = np.flatnonzero(np.concatenate(([True], ~same)))
    kept = np.union1d(kept, [len(x) - 1])
    return x[kept], y[kept]


def _broken(rows: Floats) -> Floats:
    """Times and values, shape (4, n), with NaN put into each gap in time, so that no line is drawn across it."""
    x = rows[0]
    if len(x) < 3:
        return rows
    apart = np.diff(x)
    gaps = np.flatnonzero(apart > _GAP * np.median(apart)) + 1
    unknown = np.full((4, len(gaps)), np.nan)
    unknown[0] = (x[gaps - 1] + x[gaps]) / 2
    return np.insert(rows, gaps, unknown, axis=1)
