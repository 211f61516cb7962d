"""How far power and time stray from a physical curve: a Gaussian process over the caps, conditioned on observations.

There is a slow part that grows with the distance below the baseline's cap, and short bumps.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autocap.strategies.model.shapes import Floats

LEAST_ERROR = 0.001  # of an observation, relative: drift and the like are there even where no error is stated
JITTER = 1e-10
_SLOW_LENGTH, _BUMP_LENGTH = 0.22, 0.06  # of the baseline's cap


@dataclass(frozen=True, slots=True, kw_only=True)
class Roughness:
    """How far a quantity strays from its physical curve, in ln: slow at the baseline, per distance below it (as a
    share of its cap), and the bumps. level: how far one run may be from another."""

    slow: float
    per_depth: float
    bump: float
    level: float


# A curve is smooth, as that of a card that is measured as it runs, or has bumps, as one that was recorded once.
POWER = (
    Roughness(slow=0.002, per_depth=0.045, bump=0.0003, level=0.02),
    Roughness(slow=0.002, per_depth=0.045, bump=0.006, level=0.02),
)
TIME = (
    Roughness(slow=0.003, per_depth=0.075, bump=0.0005, level=1.0),
    Roughness(slow=0.003, per_depth=0.075, bump=0.01, level=1.0),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """One measurement. place: index of its cap. power, time: in ln against the baseline; *_error: their errors.

    level: observations of one level share an unknown factor, as those of another run do; `None` without one.
    """

    place: int
    power: float
    time: float
    power_error: float
    time_error: float
    level: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Posterior:
    """One quantity. mean: by curve, shape (curves, caps). cov: of the residual, by roughness, (kinds, caps, caps).

    kind: which roughness a curve has, shape (curves,). log_likelihood: of what was observed, shape (curves,).
    """

    mean: Floats
    cov: Floats
    kind: NDArray[np.int_]
    log_likelihood: Floats

    def of(self, curves: NDArray[np.bool_]) -> "Posterior":
        """The same for some of the curves."""
        log_likelihood = self.log_likelihood[curves]
        return replace(self, mean=self.mean[curves], kind=self.kind[curves], log_likelihood=log_likelihood)

    @property
    def variance(self) -> Floats:
        """Of the residual, shape (curves, caps)."""
        return np.asarray(np.diagonal(self.cov, axis1=1, axis2=2)[self.kind])

    def cov_with(self, place: int) -> Floats:
        """The covariance of the residual with that at `place`, shape (curves, caps)."""
        return np.asarray(self.cov[self.kind, place])

    def cov_among(self, places: Sequence[int]) -> Floats:
        """The covariance of the residuals at some caps, shape (curves, places, places)."""
        return np.asarray(self.cov[:, places][:, :, places][self.kind])


def condition(
    prior: Floats,
    caps_w: Floats,
    baseline_w: float,
    roughness: Sequence[Roughness],
    observed: Sequence[Observation],
    values: Floats,
) -> Posterior:
    """Condition the curves `prior`, shape (curves, caps), each with every roughness in turn, on values observed.

    values: shape (2, n), value and error.
    """
    places = [item.place for item in observed]
    levels = np.array([np.nan if item.level is None else item.level for item in observed])
    residual = values[0] - prior[:, places]
    means, covs, log_likelihoods = [], [], []
    for rough in roughness:
        kernel = _kernel(caps_w, baseline_w, rough)
        shared = (levels[:, None] == levels[None, :]) * rough.level**2
        seen = kernel[np.ix_(places, places)] + (np.diag(np.maximum(values[1], LEAST_ERROR) ** 2) + shared)
        inverse = np.linalg.inv(seen)
        gain = kernel[:, places] @ inverse
        misfit = np.einsum("ki,ij,kj->k", residual, inverse, residual)
        means.append(prior + residual @ gain.T)
        covs.append(kernel - gain @ kernel[places])
        log_likelihoods.append(-0.5 * misfit - 0.5 * np.linalg.slogdet(seen)[1])
    return Posterior(
        mean=np.concatenate(means),
        cov=np.array(covs),
        kind=np.repeat(np.arange(len(means)), len(prior)),
        log_likelihood=np.concatenate(log_likelihoods),
    )


def _kernel(caps_w: Floats, baseline_w: float, rough: Roughness) -> Floats:
    distance = np.abs(caps_w[:, None] - caps_w[None, :]) / baseline_w
    depth = np.clip((baseline_w - caps_w) / baseline_w, 0.0, 1.0)
    sd = rough.slow + rough.per_depth * depth
    slow = sd[:, None] * sd[None, :] * np.exp(-0.5 * (distance / _SLOW_LENGTH) ** 2)
    bumps = rough.bump**2 * np.exp(-0.5 * (distance / _BUMP_LENGTH) ** 2)
    return np.asarray(slow + bumps + JITTER * np.eye(len(caps_w)))
