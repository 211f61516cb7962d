"""How far power and time stray from a physical curve: a Gaussian process over the caps, conditioned on observations.

There is a slow part that grows with the distance below the baseline's cap, and short bumps. How much of each is a
matter of the curve's kind.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocap.strategies.model.parameters import Floats

LEAST_ERROR = 0.001  # of an observation, relative: drift and the like are there even where no error is stated
JITTER = 1e-10


@dataclass(frozen=True, slots=True, kw_only=True)
class Roughness:
    """How far a quantity strays from its physical curve, in ln: slow at the baseline, per distance below it (as a
    share of its cap), and the bumps. length, bump_length: how far either reaches, shares of the baseline's cap."""

    slow: float
    per_depth: float
    bump: float
    length: float = 0.22
    bump_length: float = 0.06


# The kinds: smooth, as the curve of a card that is measured as it runs, bumpy, as one that was recorded once, or bent,
# as no formula follows a knee closely, or strange, as the curves of jobs that no family describes, or akin, as a curve
# that was measured on the card, and is deformed already, or rough, as one whose runs were off by percents each.
SMOOTH, BUMPY, BENT, STRANGE, AKIN, ROUGH = range(6)
POWER = (
    Roughness(slow=0.002, per_depth=0.045, bump=0.0003),
    Roughness(slow=0.002, per_depth=0.045, bump=0.006),
    Roughness(slow=0.002, per_depth=0.045, bump=0.005),
    Roughness(slow=0.002, per_depth=0.1, bump=0.01, length=0.15),
    Roughness(slow=0.002, per_depth=0.045, bump=0.003),
    Roughness(slow=0.002, per_depth=0.045, bump=0.005),
)
TIME = (
    Roughness(slow=0.003, per_depth=0.075, bump=0.0005),
    Roughness(slow=0.003, per_depth=0.075, bump=0.01),
    Roughness(slow=0.003, per_depth=0.15, bump=0.005, length=0.13),
    Roughness(slow=0.003, per_depth=0.5, bump=0.01, length=0.12),
    Roughness(slow=0.0035, per_depth=0.075, bump=0.005),
    Roughness(slow=0.003, per_depth=0.15, bump=0.025, length=0.13, bump_length=0.03),
)
POWER_LEVEL, TIME_LEVEL = 0.02, 1.0  # how far, in ln, one run may be from another


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
    """One quantity. mean: by curve, shape (curves, caps). cov: of the residual, by kind, shape (kinds, caps, caps).

    kind: of each curve, shape (curves,).
    """

    mean: Floats
    cov: Floats
    kind: NDArray[np.int_]

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Residual:
    """What observations of one quantity say of its residuals. kernel: before them, by kind, shape (kinds, caps, caps).

    places, values: of the observations, shape (n,). precision: the inverse of their covariance, (kinds, n, n).
    """

    kernel: Floats
    places: NDArray[np.int_]
    values: Floats
    precision: Floats

    @classmethod
    def after(cls, kernel: Floats, observed: Sequence[Observation], values: Floats, level: float) -> "Residual":
        """After observations of these values and errors, shape (2, n); those of one level share an unknown factor."""
        places = np.array([item.place for item in observed])
        levels = np.array([np.nan if item.level is None else item.level for item in observed])
        noise = np.diag(np.maximum(values[1], LEAST_ERROR) ** 2) + (levels[:, None] == levels[None, :]) * level**2
        precision = np.linalg.inv(kernel[:, places[:, None], places] + noise)
        return cls(kernel=kernel, places=places, values=values[0], precision=precision)

    def log_likelihood(self, prior: Floats, kind: NDArray[np.int_]) -> Floats:
        """Of what was observed, under each of the curves `prior`, shape (curves, caps), each of a kind; (curves,)."""
        off = self.values - prior[:, self.places]
        misfit = np.empty(len(prior))
        for each, precision in enumerate(self.precision):
            some = kind == each
            misfit[some] = np.sum(off[some] @ precision * off[some], axis=1)
        return np.asarray(-0.5 * misfit + 0.5 * np.linalg.slogdet(self.precision)[1][kind])

    def condition(self, prior: Floats, kind: NDArray[np.int_]) -> Posterior:
        """The curves `prior`, shape (curves, caps), each of a kind, bent to what was observed."""
        gain = self.kernel[:, :, self.places] @ self.precision
        off = self.values - prior[:, self.places]
        mean = prior.copy()
        for each in range(len(gain)):
            some = kind == each
            mean[some] += off[some] @ gain[each].T
        return Posterior(mean=mean, cov=self.kernel - gain @ self.kernel[:, self.places], kind=kind)


def kernels(settings: Floats, baseline_w: float, roughness: Sequence[Roughness]) -> Floats:
    """The covariance of the residuals at some caps before anything was measured, shape (kinds, caps, caps)."""
    distance = np.abs(settings[:, None] - settings[None, :]) / baseline_w
    depth = np.clip((baseline_w - settings) / baseline_w, 0.0, 1.0)

    def kernel(rough: Roughness) -> Floats:
        sd = rough.slow + rough.per_depth * depth
        slow = sd[:, None] * sd[None, :] * np.exp(-0.5 * (distance / rough.length) ** 2)
        bumps = rough.bump**2 * np.exp(-0.5 * (distance / rough.bump_length) ** 2)
        return np.asarray(slow + bumps + JITTER * np.eye(len(settings)))

    return np.array([kernel(rough) for rough in roughness])
