"""Standard errors of time and energy per iteration, from batch means.

Iteration times are autocorrelated and energy = power × time makes the errors of time and energy correlated, so the
standard errors come from the means of long batches, as a covariance (Law and Kelton, Simulation Modeling and
Analysis, "batch means").
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
MIN_BATCHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchErrors:
    """Relative standard errors of the mean time, energy and power, and the correlation of time and energy."""

    time: float
    energy: float
    correlation: float

    @property
    def power(self) -> float:
        both = 2 * self.correlation * self.time * self.energy
        return math.sqrt(max(0.0, self.time**2 + self.energy**2 - both))


def batch_errors(t_s: Floats, energy_j: Floats, iterations: Floats, min_batches: int = MIN_BATCHES) -> BatchErrors:
    """Errors of energy and time per iteration, from batch means.

    t_s, energy_j, iterations: at each mark, shape (marks,), cumulative. Batches of equal iteration counts are formed
    at two lengths, and the larger error is taken: short batches alone understate autocorrelated noise.
    """
    fewest = _covariance(t_s, energy_j, iterations, min_batches)
    twice = _covariance(t_s, energy_j, iterations, 2 * min_batches) if t_s.size > 2 * min_batches else fewest
    covariance = max(fewest, twice, key=lambda matrix: float(np.trace(matrix)))
    time, energy = np.sqrt(np.diag(covariance))
    correlation = float(covariance[0, 1] / (time * energy)) if time > 0 and energy > 0 else 0.0
    return BatchErrors(time=float(time), energy=float(energy), correlation=min(1.0, max(-1.0, correlation)))


def _covariance(t_s: Floats, energy_j: Floats, iterations: Floats, batches: int) -> Floats:
    """Relative covariance, shape (2, 2), of the weighted means of (time, energy) per iteration."""
    wanted = np.linspace(iterations[0], iterations[-1], batches + 1)
    edges = np.unique(np.searchsorted(iterations, wanted - 1e-9))
    counts = np.diff(iterations[edges])
    means = np.stack([np.diff(t_s[edges]) / counts, np.diff(energy_j[edges]) / counts])
    total = counts.sum()
    centre = np.array([t_s[-1] - t_s[0], energy_j[-1] - energy_j[0]]) / total
    weights = counts / total
    deviations = (means / centre[:, None] - 1) * weights
    # The t quantile in place of the normal one keeps "two sigma" at 95 % with so few batches.
    few = counts.size
    small = few / (few - 1) * _student_factor(few - 1) ** 2
    result: Floats = deviations @ deviations.T * small
    return result


def _student_factor(freedom: int) -> float:
    """Student's two-sided 95.45 % quantile over the normal one, 2 (Cornish–Fisher, Abramowitz and Stegun 26.7.5)."""
    z = 2.0
    g1, g2 = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return (z + g1 / freedom + g2 / freedom**2) / z
