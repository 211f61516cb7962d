"""Stretches of a window in which iterations took longer than in the rest of it, as other work came and went.

Nothing makes a job faster than it is when left alone, so what it does when left alone is the level that it keeps to
outside of them. A burst is told from scatter as a changed segment is in circular binary segmentation (Olshen et al.
2004): of all stretches, that whose mean is farthest above the rest's, in standard errors; then the same in the rest.
"""

import numpy as np
from numpy.typing import NDArray

from autocap.measurement.tuning import TUNING

Floats = NDArray[np.float64]
Places = NDArray[np.bool_]
_MOST = 8  # stretches of a window
_NORMAL = 1.4826  # standard deviations a median absolute deviation


def slower(times: Floats) -> Places:
    """Which of several spans of about as many iterations each, in their order, lie in such a stretch, shape (n,).

    times: per iteration, seconds, shape (n,). None where too few are left to tell what is usual, or where longer and
    shorter ones follow each other without stretches of either.
    """
    log = np.log(times)
    left_out = np.zeros(log.size, dtype=np.bool_)
    for _ in range(_MOST):
        found = _slowest(log[~left_out])
        if found is None:
            return left_out
        places = np.flatnonzero(~left_out)[found]
        left_out[places] = True
    return left_out


def cells(iterations: Floats) -> int:
    """How many spans a window of so many marks is to be looked at in; shape (marks,), cumulative."""
    return min(TUNING.burst_cells, iterations.size - 1)


def _slowest(log: Floats) -> slice | None:
    """The stretch that is surely slower than the rest, by most standard errors; `None` where there is none."""
    count = log.size
    if count < 2 * TUNING.burst_fewest_cells:
        return None
    spread = _scatter(log)
    sums = np.concatenate([[0.0], np.cumsum(log)])
    first, last = np.triu_indices(count + 1, 1)
    length = last - first
    fits = (length <= (1 - TUNING.burst_least_left) * count) & (count - length >= TUNING.burst_fewest_cells)
    first, last, length = first[fits], last[fits], length[fits]
    within = (sums[last] - sums[first]) / length
    rest = (sums[-1] - sums[last] + sums[first]) / (count - length)
    beyond = within - rest
    sigmas = beyond / (spread * np.sqrt(1 / length + 1 / (count - length)))
    best = int(np.argmax(np.where(beyond > TUNING.burst_longer, sigmas, -np.inf)))
    if beyond[best] <= TUNING.burst_longer or sigmas[best] < TUNING.burst_sigmas:
        return None
    return slice(int(first[best]), int(last[best]))


def _scatter(log: Floats) -> float:
    """Standard deviation of a span, by how neighbours differ, which bursts hardly change; of longer spans if that is
    more, as what one iteration takes may go with what the one before took."""
    found = []
    for length in (1, 2, 3):
        spans = log[: log.size // length * length].reshape(-1, length).mean(axis=1)
        if spans.size < TUNING.burst_fewest_cells:
            break
        apart = np.abs(np.diff(spans))
        found.append(_NORMAL * float(np.median(apart)) / np.sqrt(2) * np.sqrt(length))
    return max(*found, 1e-6) if found else np.inf
