"""What is believed of every cap after a few measurements: physical curves, each with a smooth residual of its own.

Every curve of `shapes` is the mean of a Gaussian process for ln power and of another for ln time. The process stands
for what no such curve explains: a slow part that grows with the distance below the baseline's cap, and short bumps.
How much of either there is depends on the curve's kind, and which kind is for the observations to say: many curves
stand there once for each of several. The observations weigh all these by their likelihood (its determinant included,
which tells the kinds apart) and bend each towards themselves, in closed form: curves of one kind share the kernel, so
that two small matrices a kind serve them all.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocap.measurement.stats import normal_below
from autocap.metrics import Terms
from autocap.records import Prediction
from autocap.strategies.model.parameters import Floats
from autocap.strategies.model.residual import (
    JITTER,
    LEAST_ERROR,
    POWER_LEVEL,
    TIME_LEVEL,
    Observation,
    Posterior,
    Residual,
)
from autocap.strategies.model.shapes import Shapes

_NODES, _WEIGHTS = np.polynomial.hermite_e.hermegauss(24)  # of a standard normal
_SHARES = _WEIGHTS / _WEIGHTS.sum()
_NEGLIGIBLE = 1e-3  # a curve with less weight than this share of the likeliest is left out: it only costs time
_UNDERSTATED = 1.25  # the error of a prediction over the belief's spread: a few curves are left after some trials
_WORLDS = 400  # that are drawn where no closed form is at hand
_LEAST_SAVED = 0.1  # in ln power: over less, errors alone make a slope


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """The joint state of knowledge. weight: of each curve, sums to 1. power, time: its posteriors, ln."""

    weight: Floats
    power: Posterior
    time: Posterior

    @classmethod
    def after(
        cls, shapes: Shapes, power_kernels: Floats, time_kernels: Floats, observed: Sequence[Observation]
    ) -> "Belief":
        """What is believed after some observations; the kernels: of the residuals, by kind (`residual.kernels`)."""
        power_values = np.array([[item.power for item in observed], [item.power_error for item in observed]])
        time_values = np.array([[item.time for item in observed], [item.time_error for item in observed]])
        power = Residual.after(power_kernels, observed, power_values, POWER_LEVEL)
        time = Residual.after(time_kernels, observed, time_values, TIME_LEVEL)
        log_weight = shapes.log_weight + power.log_likelihood(shapes.log_power, shapes.kind)
        log_weight += time.log_likelihood(shapes.log_time, shapes.kind)
        weight = np.exp(log_weight - log_weight.max())
        likely = weight > _NEGLIGIBLE
        weight, left = weight[likely] / weight[likely].sum(), shapes.of(likely)
        return cls(
            weight=weight,
            power=power.condition(left.log_power, left.kind),
            time=time.condition(left.log_time, left.kind),
        )

    def costs(self, terms: Terms) -> "Costs":
        """A metric at every cap."""
        joint, alone = _parts(terms, self.power.mean, self.time.mean)
        return Costs(
            weight=self.weight,
            value=joint + alone + terms.constant,
            terms=terms,
            by_power=joint,
            by_time=(1 + terms.power) * joint + alone,
            power=self.power,
            time=self.time,
        )

    def predictions(self, settings: Floats, baseline: int) -> list[Prediction]:
        """True energy and time of every cap over the baseline's, whose own error is included; settings: all of them,
        shape (caps,). baseline: its place."""
        log_p, var_p = _against(self.power, baseline)
        log_t, var_t = _against(self.time, baseline)
        log_e = log_p + log_t
        spread_e, spread_t = log_e - self.weight @ log_e, log_t - self.weight @ log_t
        sd_e = np.sqrt(self.weight @ (spread_e**2 + var_p + var_t))
        sd_t = np.sqrt(self.weight @ (spread_t**2 + var_t))
        ratios = self.weight @ np.exp(log_e), self.weight @ np.exp(log_t)
        correlation = (self.weight @ (spread_e * spread_t + var_t)) / (sd_e * sd_t)
        return [
            Prediction(
                setting=setting, energy=e, time=t, energy_rel_stderr=e_e, period_rel_stderr=e_t, time_energy_corr=corr
            )
            for setting, e, t, e_e, e_t, corr in np.column_stack(
                (settings, *ratios, _UNDERSTATED * sd_e, _UNDERSTATED * sd_t, correlation)
            ).tolist()
        ]

    def surprise(self, seen: Observation) -> float:
        """How many standard deviations an observation is from what is expected, the larger of power and time."""
        return max(
            self._deviation(self.power, seen.place, seen.power, seen.power_error),
            self._deviation(self.time, seen.place, seen.time, seen.time_error),
        )

    def _deviation(self, quantity: Posterior, place: int, value: float, error: float) -> float:
        curves = quantity.mean[:, place]
        mean = float(self.weight @ curves)
        variance = float(self.weight @ ((curves - mean) ** 2 + quantity.cov_with(place)[:, place]))
        return abs(value - mean) / math.sqrt(variance + max(error, LEAST_ERROR) ** 2)

    def share_of(self, *kinds: int) -> float:
        """The probability that the job's residual is of one of these kinds."""
        return float(self.weight[np.isin(self.time.kind, kinds)].sum())

    def expected_power(self, place: int) -> float:
        """ln P/P0 of a cap."""
        return float(self.weight @ self.power.mean[:, place])

    def chance_within(self, slowdown: float) -> Floats:
        """The probability that a cap is no slower than this, shape (caps,)."""
        spread = np.sqrt(np.maximum(self.time.variance, JITTER))
        return np.asarray(self.weight @ normal_below((np.log(slowdown) - self.time.mean) / spread))


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The metric of every cap under every curve, shape (curves, caps), and its slopes by ln power and ln time."""

    weight: Floats
    value: Floats
    terms: Terms
    by_power: Floats
    by_time: Floats
    power: Posterior
    time: Posterior

    @property
    def mean(self) -> Floats:
        """The expected cost of each cap, shape (caps,)."""
        return np.asarray(self.weight @ self.value)

    @property
    def spread(self) -> Floats:
        """The standard deviation of each cap's cost, shape (caps,)."""
        return np.asarray(np.sqrt(self.weight @ (self._variance + (self.value - self.mean) ** 2)))

    @property
    def _variance(self) -> Floats:
        """Of the cost by the residuals, shape (curves, caps)."""
        return np.asarray(self.by_power**2 * self.power.variance + self.by_time**2 * self.time.variance)

    def gain_again(self, places: Sequence[int], power_error: float, time_error: float) -> Floats:
        """What one more trial of each of these measured caps is expected to gain for the choice among them.

        The knowledge gradient for correlated beliefs (Frazier, Powell and Dayanik 2009), with the costs taken as
        jointly normal: a trial of these errors moves all of them along one direction. In the order of `places`.
        """
        value, by_power, by_time = (each[:, places] for each in (self.value, self.by_power, self.by_time))
        mean = self.weight @ value
        away = value - mean
        cov = np.einsum("k,ki,kj->ij", self.weight, away, away)
        for slopes, posterior in ((by_power, self.power), (by_time, self.time)):
            cov += np.einsum("k,ki,kj,kij->ij", self.weight, slopes, slopes, posterior.cov_among(places))
        errors = max(power_error, LEAST_ERROR), max(time_error, LEAST_ERROR)
        noise = self.weight @ ((by_power * errors[0]) ** 2 + (by_time * errors[1]) ** 2)
        moved = cov / np.sqrt(np.diagonal(cov) + noise + JITTER)[:, None]
        after = mean[:, None] + moved[:, :, None] * _NODES  # (the one tried again, the one it tells of, outcome)
        return np.asarray(mean.min() - after.min(axis=1) @ _SHARES)

    def loss(self, place: int, of: Sequence[int], lowest: int) -> tuple[float, float]:
        """How much more the cap at `place` costs than the best of some caps, relative to it: mean and standard
        deviation over equally likely worlds, drawn with a fixed seed.

        lowest: the place of the lowest cap measured. Below it no cliff turns into a plateau: the less power, the more
        time a further watt costs, so that in every world power costs no less time there than it does above.
        """
        rng = np.random.default_rng(_WORLDS)
        among = np.array(sorted({*of, place, lowest}))
        curve = rng.choice(len(self.weight), size=_WORLDS, p=self.weight)
        power, time = (self._worlds(quantity, curve, among, rng) for quantity in (self.power, self.time))
        at = int(np.searchsorted(among, lowest))
        saved = np.maximum(power[:, [at]] - power[:, :at], 0.0)
        slope = np.maximum(time[:, [at]], 0.0) / np.maximum(-power[:, [at]], _LEAST_SAVED)
        time[:, :at] = np.maximum(time[:, :at], time[:, [at]] + slope * saved)
        joint, alone = _parts(self.terms, power, time)
        cost = joint + alone + self.terms.constant
        lost = cost[:, int(np.searchsorted(among, place))] / cost.min(axis=1) - 1
        return float(lost.mean()), float(lost.std())

    def _worlds(
        self, quantity: Posterior, curve: NDArray[np.int_], among: NDArray[np.int_], rng: np.random.Generator
    ) -> Floats:
        """A quantity at some caps in as many worlds, ln, as far apart as the errors of predictions have it."""
        centre = self.weight @ quantity.mean[:, among]
        drawn = quantity.mean[np.ix_(curve, among)] + _drawn(quantity, curve, among, rng)
        return np.asarray(centre + _UNDERSTATED * (drawn - centre))

    def chance_above(self, cost: float) -> Floats:
        """The probability that a cap costs more than this, by the curves alone, shape (caps,)."""
        return np.asarray(self.weight @ (self.value > cost))

    def gain_over(
        self, place: int | None, cost: float, power_error: float, time_error: float, *, of: Sequence[int]
    ) -> tuple[Floats, Floats]:
        """What a trial of some caps is expected to gain over the cap at `place`, and to lose to it while it lasts.

        With `None` for the place, over a cost that is known. of: the indices of those caps. The gain is the knowledge
        gradient (Frazier, Powell and Dayanik 2008): a trial of these errors moves what is believed by less than the cap
        may truly differ. Both in the order of `of`.
        """
        value, by_power, by_time = (each[:, of] for each in (self.value, self.by_power, self.by_time))
        variance = self._variance[:, of]
        if place is None:
            better = cost - value
        else:
            better = self.value[:, [place]] - value
            for slopes, slope, posterior in ((self.by_power, by_power, self.power), (self.by_time, by_time, self.time)):
                own, cov = slopes[:, [place]], posterior.cov_with(place)
                variance = variance + own**2 * cov[:, [place]] - 2 * own * slope * cov[:, of]
        variance = np.maximum(variance, JITTER)
        noise = (by_power * power_error) ** 2 + (by_time * time_error) ** 2
        gain = _above_zero(better, variance / np.sqrt(variance + noise))
        mean = np.asarray(self.weight @ gain)
        return mean, mean - self.weight @ better  # as max(0, -x) is max(0, x) - x


def _parts(terms: Terms, log_power: Floats, log_time: Floats) -> tuple[Floats, Floats]:
    """What goes with the energy, and what with the time alone, of any shape."""
    joint = terms.energy * np.exp(log_power + (1 + terms.power) * log_time)
    return np.asarray(joint), np.asarray(terms.time * np.exp(log_time))


def _drawn(quantity: Posterior, curve: NDArray[np.int_], places: NDArray[np.int_], rng: np.random.Generator) -> Floats:
    """Residuals at some caps, one draw for each of these curves, shape (curves, places)."""
    drawn = rng.standard_normal((len(curve), len(places)))
    for kind in np.unique(quantity.kind[curve]):
        some = quantity.kind[curve] == kind
        cov = quantity.cov[kind][np.ix_(places, places)]
        drawn[some] = drawn[some] @ np.linalg.cholesky(cov + JITTER * np.eye(len(places))).T
    return drawn


def _against(quantity: Posterior, place: int) -> tuple[Floats, Floats]:
    """How far a quantity is from that at `place`, in ln, and the variance of its residual, each (curves, caps)."""
    cov = quantity.cov_with(place)
    variance = quantity.variance + cov[:, [place]] - 2 * cov
    return quantity.mean - quantity.mean[:, [place]], np.maximum(variance, JITTER)


def _above_zero(mean: Floats, spread: Floats) -> Floats:
    """E[max(0, x)] of a normal x."""
    z = mean / spread
    return np.asarray(mean * normal_below(z) + spread * np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi))
