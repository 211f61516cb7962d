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
    if len(x) < 2 * buckets:
        return _broken(Envelope(x=x, low=y, mean=y, high=y))
    bucket = np.minimum((buckets * (x - x[0]) / (x[-1] - x[0])).astype(int), buckets - 1)
    starts = np.flatnonzero(np.diff(bucket, prepend=-1))
    sizes = np.diff(starts, append=len(x))
    return _broken(
        Envelope(
            x=np.add.reduceat(x, starts) / sizes,
            low=np.minimum.reduceat(y, starts),
            mean=np.add.reduceat(y, starts) / sizes,
            high=np.maximum.reduceat(y, starts),
        )
    )


def changes(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """A signal that holds its value, such as a limit, by its changes alone, and its end."""
    if not len(x):
        return x, y
    same = (y[1:] == y[:-1]) | (np.isnan(y[1:]) & np.isnan(y[:-1]))
    kept = np.flatnonzero(np.concatenate(([True], ~same)))
    kept = np.union1d(kept, [len(x) - 1])
    return x[kept], y[kept]


def _broken(found: Envelope) -> Envelope:
    """With a NaN put into each gap, so that no line is drawn across it."""
    if len(found.x) < 3:
        return found
    apart = np.diff(found.x)
    gaps = np.flatnonzero(apart > _GAP * np.median(apart)) + 1
    middle = (found.x[gaps - 1] + found.x[gaps]) / 2
    return Envelope(
        x=np.insert(found.x, gaps, middle),
        low=np.insert(found.low, gaps, np.nan),
        mean=np.insert(found.mean, gaps, np.nan),
        high=np.insert(found.high, gaps, np.nan),
    )
