"""What the trials so far say about each cap: repeats pooled, and who comes before whom.

Repeats of a cap are pooled as everywhere (`autocap.measurement.stats`); the error that all of them share, where a
proxy stands for the iterations, stays. Caps are ordered by standing first and only then by cost, since a cap that is
too slow may well look cheap.

What the neighbouring caps say about a cap's cost is a local quadratic, trusted only where it fits. Cost against cap is
smooth over a few tens of watts nearly everywhere, so a cap's neighbours are further measurements of it. Where they are
not (a cliff, a bump, drift between trials), the residuals say so and the window shrinks, in the end to the cap itself.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autocap.measurement import stats
from autocap.measurement.stats import chi_square_above
from autocap.metrics import Metric, slowdown
from autocap.records import AtSetting, Measurement, Trial, TrialState

Floats = NDArray[np.float64]
_FEWEST_POINTS = 5  # a quadratic through fewer leaves next to nothing to judge its fit by
_LEAST_P = 0.05
_LEAST_ERROR = 1e-9


def smooth(settings: Floats, costs: Floats, stderrs: Floats, half_widths_w: Sequence[float]) -> Floats:
    """Each cap's cost as its neighbours see it, shape (n,).

    settings, costs, stderrs: shape (n,), caps distinct, errors independent. half_widths_w: the windows to try, widest
    first. A cap keeps its own cost where no window holds five points that a quadratic fits (chi-square, p ≥ 0.05).
    """
    smoothed = costs.copy()
    for index, setting in enumerate(settings):
        for half_width_w in half_widths_w:
            near = np.abs(settings - setting) <= half_width_w
            if np.count_nonzero(near) < _FEWEST_POINTS:
                break
            offset = (settings[near] - setting) / half_width_w
            value, p = _quadratic_at_zero(offset, costs[near], stderrs[near])
            if p >= _LEAST_P:
                smoothed[index] = value
                break
    return smoothed


def _quadratic_at_zero(x: Floats, y: Floats, stderr: Floats) -> tuple[float, float]:
    """A weighted least-squares quadratic's value at x = 0, and the chance of residuals as large as its own."""
    weight = 1 / np.maximum(stderr, _LEAST_ERROR)
    design = np.vander(x, 3, increasing=True) * weight[:, None]
    coefficients = np.linalg.lstsq(design, y * weight, rcond=None)[0]
    residuals = y * weight - design @ coefficients
    return float(coefficients[0]), chi_square_above(len(x) - 3, float(residuals @ residuals))


def pool(values: Sequence[float], stderrs: Sequence[float]) -> tuple[float, float]:
    """Independent estimates of one quantity as one, and its standard error, wider where they disagree."""
    level = max(map(abs, values))  # an error is taken to belong to what it is a share of, as far as that has a sign
    rel = [stderr / (value if min(values) > 0 else level or 1.0) for value, stderr in zip(values, stderrs, strict=True)]
    counts = stats.weights(rel)
    found = stats.mean(values, counts)
    if min(values) <= 0:  # only beside prices below 0
        return found, math.hypot(*(count * stderr for count, stderr in zip(counts, stderrs, strict=True) if count))
    return found, found * stats.rel_stderr(values, rel, counts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding(AtSetting[float]):
    """What is known of one cap, over all its trials that have a cost.

    cost, stderr: pooled. slowdown: time per iteration over the baseline's, pooled. complete: whether a trial was
    measured to the end; if not, all were pruned. repeated: whether another trial followed the first complete one,
    whatever became of it. allowed, forbidden: two-sigma verdicts on the slowdown limit; between them it is undecided.
    """

    setting: float
    cost: float
    stderr: float
    slowdown: float
    complete: bool
    repeated: bool
    allowed: bool
    forbidden: bool

    @property
    def keepable(self) -> bool:
        """Whether it may be recommended."""
        return self.complete and self.allowed

    @property
    def rank(self) -> tuple[int, float]:
        """Sorts caps from best to worst: keepable, then pruned as worse, then those that break the slowdown limit.

        Among the last the faster comes first, whatever it costs, so that a search moves back up.
        """
        if not self.allowed:
            return 2, self.slowdown
        return (0 if self.complete else 1), self.cost

    def beyond(self, other: "Finding", sigmas: float) -> bool:
        """Whether this cap costs more than the other by more than that many combined standard errors."""
        return self.cost - other.cost > sigmas * math.hypot(self.stderr, other.stderr)


def find_out(trials: Sequence[Trial], metric: Metric, baseline: Measurement) -> Finding | None:
    """Pool the trials of one cap, oldest first; `None` when none of them has a cost."""
    known = [
        (one.cost, one.cost_stderr, one.measurement)
        for one in trials
        if one.cost is not None and one.cost_stderr is not None and one.measurement is not None
    ]
    if not known:
        return None
    shared = max(metric.cost(measurement, baseline).shared for _, _, measurement in known)
    own = [math.sqrt(max(0.0, stderr**2 - shared**2)) if shared else stderr for _, stderr, _ in known]
    cost, stderr = pool([cost for cost, _, _ in known], own)
    stderr = math.hypot(stderr, shared)
    measurement = _pooled_time([measurement for _, _, measurement in known])
    states = [trial.state for trial in trials]
    first_complete = states.index(TrialState.COMPLETE) if TrialState.COMPLETE in states else len(states)
    return Finding(
        setting=trials[0].setting,
        cost=cost,
        stderr=stderr,
        slowdown=slowdown(measurement, baseline)[0],
        complete=TrialState.COMPLETE in states,
        repeated=first_complete < len(states) - 1,
        allowed=metric.allows(measurement, baseline),
        forbidden=metric.forbids(measurement, baseline),
    )


def _pooled_time(measurements: Sequence[Measurement]) -> Measurement:
    """The last measurement with the time per iteration of all."""
    times = [measurement.period_s for measurement in measurements]
    shared = max(measurement.proxy_rel_stderr or 0.0 for measurement in measurements)
    own = [one.period_s * math.sqrt(max(0.0, one.period_rel_stderr**2 - shared**2)) for one in measurements]
    period_s, stderr_s = pool(times, own)
    return replace(measurements[-1], period_s=period_s, period_rel_stderr=math.hypot(stderr_s / period_s, shared))
