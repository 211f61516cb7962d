"""One waveform, repeated along a wandering phase: the joint least-squares fit that everything else reads.

A reading taken at t is modelled as level(t) + f(φ(t)) + noise. f is a sum of harmonics, the same in every cycle. The
phase is φ(t) = u (1 + s) + θ(u) with u = t / period: s corrects the period, θ is a random walk from cycle to cycle,
which is what jittered iterations do to a phase. All unknowns are solved for together by Gauss-Newton steps on the
actual stamps; the variances of noise and walk follow from the fit (MacKay, "Bayesian interpolation", 1992). The
posterior covariance gives the standard error of the cycles counted between two moments.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg.lapack import dpotrf, dpotri

from autocap.progress.period.candidates import fourier
from autocap.progress.period.estimate import Bools, Floats

_KNOTS = 64
_READINGS_PER_KNOT = 5
_LEVELS = 8
_CYCLES_PER_LEVEL = 3.0
_WALK = (2e-4, 0.12)  # smallest and largest standard deviation of the phase per cycle
_FREE = 1.0  # of the phase across what is left out
_OFFSET = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fitted pattern. Values y are in units of their own spread.

    u: phase at the nominal period, shape (n,). knots: at which theta stands, in cycles. keep: readings that belong
    to the pattern. slope: relative correction of the frequency. coefficients: complex amplitudes, c of f(φ) =
    Re Σ c_k exp(-2πikφ). residual: standard deviation of the rest. walk: of the phase, per cycle. explained: share of
    variation that the pattern explains once the level is taken out. evidence: log marginal likelihood.
    covariance: of theta and slope, shape (knots+1, knots+1). used: degrees of freedom that the fit consumed.
    rest, level: of each reading, shape (n,).
    """

    period_s: float
    origin_s: float
    u: Floats
    knots: Floats
    keep: Bools
    theta: Floats
    slope: float
    coefficients: NDArray[np.complex128]
    residual: float
    walk: float
    explained: float
    evidence: float
    covariance: Floats
    used: float
    rest: Floats
    level: Floats

    @property
    def phase(self) -> Floats:
        """Cycles done at each reading."""
        return self.phase_at(self.u)

    def phase_at(self, u: Floats) -> Floats:
        return _phase_at(u, self.knots, self.theta, self.slope)

    def cycles_between(self, spans_u: list[tuple[float, float]]) -> tuple[float, float]:
        """Cycles in some spans (in nominal cycles) together, and their standard error."""
        contrast = np.zeros(len(self.knots) + 1)
        for start, end in spans_u:
            ends = hats(np.array([start, end]), self.knots)
            contrast[:-1] += ends[1] - ends[0]
            contrast[-1] += end - start
        total = sum(end - start for start, end in spans_u)
        cycles = total + float(contrast @ np.append(self.theta, self.slope))
        return cycles, math.sqrt(max(float(contrast @ self.covariance @ contrast), 0.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where the fit begins: theta at the knots, which blocks between knots count, and the expected waveform.

    blocks: shape (knots-1,). expected: complex amplitudes, or zeros; spread: standard deviation of each about them.
    """

    theta: Floats
    blocks: Bools
    expected: NDArray[np.complex128]
    spread: Floats
    walk: float


def knots_for(cycles: float, readings: int) -> Floats:
    """Places of the knots in cycles: one per cycle unless there are too many, or too few readings."""
    most = max(2, min(_KNOTS, readings // _READINGS_PER_KNOT))
    every = max(1, math.ceil(cycles / most))
    return np.arange(math.ceil(cycles / every) + 1, dtype=np.float64) * every


def hats(u: Floats, knots: Floats) -> Floats:
    """Weights that interpolate linearly between the knots, shape (n, knots)."""
    every = knots[1] - knots[0]
    place = np.clip((u / every).astype(int), 0, len(knots) - 2)
    part = u / every - place
    weights = np.zeros((len(u), len(knots)))
    rows = np.arange(len(u))
    weights[rows, place] = 1.0 - part
    weights[rows, place + 1] = part
    return weights


def loose(harmonics: int) -> tuple[NDArray[np.complex128], Floats]:
    """No expectation of the waveform but that its harmonics fall off as those of steps do."""
    return np.zeros(harmonics, dtype=np.complex128), 2.0 / np.arange(1, harmonics + 1)


def fit(t_s: Floats, y: Floats, period_s: float, knots: Floats, start: Start, *, steps: int) -> Fit:
    """Fit the pattern by `steps` Gauss-Newton steps from a start. t_s, y: shape (n,), y of mean 0 and spread 1."""
    problem = _Problem(t_s, y, period_s, knots, start)
    for _ in range(steps):
        problem.step()
    return problem.result(t_s, y)


class _Problem:
    """The state of one fit: parameters theta (m), slope, level (l), cosines (k), sines (k), and the two variances. Its
    arrays hold the readings that are kept; `result` alone needs the others."""

    def __init__(self, t_s: Floats, y: Floats, period_s: float, knots: Floats, start: Start) -> None:
        self.period_s, self.knots, self.start = period_s, knots, start
        every_u = (t_s - t_s[0]) / period_s
        block = np.clip((every_u / (knots[1] - knots[0])).astype(int), 0, len(knots) - 2)
        cycles = float(every_u[-1])
        levels = int(np.clip(cycles / _CYCLES_PER_LEVEL, 2, _LEVELS))
        self.level_knots = np.linspace(0.0, cycles + 1e-9, levels)
        self.keep = start.blocks[block]
        self.u, self.y = every_u[self.keep], y[self.keep]
        self.moves = np.concatenate((hats(self.u, knots), self.u[:, None]), axis=1)
        self.levels = hats(self.u, self.level_knots)
        self.theta, self.slope = start.theta.copy(), 0.0
        self.walk = start.walk
        self.slope_sd = 0.5 / max(cycles, 1.0)
        self.harmonics = len(start.expected)
        self.linear = np.zeros(levels + 2 * self.harmonics)
        self.variance = 1.0
        self.prior = self._fixed_prior()
        self._solve_linear()
        self.now = self._linearised()

    def _waves(self) -> Floats:
        return fourier(self.u + self.moves @ np.append(self.theta, self.slope), self.harmonics)

    def _fixed_prior(self) -> tuple[Floats, Floats, Floats]:
        """Precision matrix of all parameters but for the steps of the phase, that of steps of unit variance, and the
        mean."""
        m, levels = len(self.knots), self.levels.shape[1]
        size = m + 1 + len(self.linear)
        precision = np.zeros((size, size))
        change = np.diff(np.eye(m), axis=0)
        precision[:m, :m] = change[~self.start.blocks].T @ change[~self.start.blocks] / _FREE
        precision[:m, :m] += 1.0 / (m * _OFFSET) ** 2
        precision[m, m] = 1 / self.slope_sd**2
        at = m + 1 + np.arange(levels)
        precision[at, at] = 0.25
        at = m + 1 + levels + np.arange(2 * self.harmonics)
        precision[at, at] = np.tile(1 / self.start.spread**2, 2)
        mean = np.zeros(size)
        mean[at] = np.concatenate((self.start.expected.real, self.start.expected.imag))
        return precision, change[self.start.blocks].T @ change[self.start.blocks], mean

    def _prior(self) -> tuple[Floats, Floats]:
        """Precision matrix and mean of all parameters."""
        fixed, unit_steps, mean = self.prior
        m, every = len(self.knots), float(self.knots[1] - self.knots[0])
        precision = fixed.copy()
        precision[:m, :m] += unit_steps / (every * self.walk**2)
        return precision, mean

    def _solve_linear(self) -> None:
        """Level and waveform along the phase as it stands."""
        design = np.concatenate((self.levels, self._waves()), axis=1)
        precision, mean = self._prior()
        at = len(self.knots) + 1
        inner, mean = precision[at:, at:] * 0.1, mean[at:]
        self.linear = np.linalg.solve(design.T @ design + inner, design.T @ self.y + inner @ mean)
        rest = self.y - design @ self.linear
        self.variance = max(float(rest @ rest) / len(rest), 1e-8)

    def _linearised(self) -> tuple[Floats, Floats, Floats]:
        """Design matrix and target of the linearised problem, and what the fit as it stands leaves of the readings."""
        levels = self.levels.shape[1]
        waves = self._waves()
        orders = 2 * np.pi * np.arange(1, self.harmonics + 1)
        cosines, sines = self.linear[levels : levels + self.harmonics], self.linear[levels + self.harmonics :]
        steepness = waves @ np.concatenate((orders * sines, -orders * cosines))
        rest = self.y - self.levels @ self.linear[:levels] - waves @ self.linear[levels:]
        moves = self.moves * steepness[:, None]
        design = np.concatenate((moves, self.levels, waves), axis=1)
        target = self.y + moves @ np.append(self.theta, self.slope)
        return design, target, rest

    def step(self) -> None:
        """One Gauss-Newton step of all parameters, shortened while it makes things worse; then both variances."""
        design, target, _ = self.now
        precision, mean = self._prior()
        matrix = design.T @ design / self.variance + precision
        covariance, _ = _inverse(matrix)
        solution = covariance @ (design.T @ target / self.variance + precision @ mean)
        before, cost = self._parameters(), self._cost(precision, mean)
        for share in (1.0, 0.5, 0.2):
            self._set(before + share * (solution - before))
            if self._cost(precision, mean) <= cost:
                break
        self._vary(covariance, precision)

    def _parameters(self) -> Floats:
        return np.concatenate((self.theta, [self.slope], self.linear))

    def _set(self, parameters: Floats) -> None:
        m = len(self.knots)
        self.theta, self.slope, self.linear = parameters[:m], float(parameters[m]), parameters[m + 1 :]
        self.now = self._linearised()

    def _cost(self, precision: Floats, mean: Floats) -> float:
        rest = self.now[2]
        off = self._parameters() - mean
        return float(rest @ rest / self.variance + off @ precision @ off)

    def _vary(self, covariance: Floats, precision: Floats) -> None:
        rest = self.now[2]
        used = len(precision) - float(np.sum(covariance * precision))
        self.variance = max(float(rest @ rest) / max(len(rest) - used, 0.1 * len(rest)), 1e-8)
        m, every = len(self.knots), float(self.knots[1] - self.knots[0])
        changes = np.diff(self.theta)[self.start.blocks]
        inner = covariance[:m, :m]
        diagonal = np.diag(inner)
        doubts = (diagonal[1:] + diagonal[:-1] - 2 * np.diag(inner, 1))[self.start.blocks]
        known = max(float(np.sum(1 - doubts / (every * self.walk**2))), 0.05 * len(changes), 0.5)
        square = float(changes @ changes) / every
        self.walk = float(np.clip(np.sqrt(square / known), *_WALK))

    def result(self, t_s: Floats, y: Floats) -> Fit:
        design, _, kept = self.now
        precision, mean = self._prior()
        matrix = design.T @ design / self.variance + precision
        m, levels = len(self.knots), self.levels.shape[1]
        every, log_determinant = _inverse(matrix)
        covariance = every[: m + 1, : m + 1]
        parameters = self._parameters() - mean
        sign = np.linalg.slogdet(precision)[1] - log_determinant
        evidence = -0.5 * (
            len(kept) * np.log(2 * np.pi * self.variance)
            + float(kept @ kept) / self.variance
            + float(parameters @ precision @ parameters)
            - sign
        )
        amplitudes = self.linear[levels:]
        u = (t_s - t_s[0]) / self.period_s
        phase = _phase_at(u, self.knots, self.theta, self.slope)
        level = np.interp(u, self.level_knots, self.linear[:levels])
        flat = y - level
        return Fit(
            period_s=self.period_s,
            origin_s=float(t_s[0]),
            u=u,
            knots=self.knots,
            keep=self.keep,
            theta=self.theta,
            slope=self.slope,
            coefficients=amplitudes[: self.harmonics] + 1j * amplitudes[self.harmonics :],
            residual=float(np.sqrt(self.variance)),
            walk=self.walk,
            explained=1.0 - self.variance / max(float(np.var(flat[self.keep])), 1e-12),
            evidence=float(evidence),
            covariance=covariance,
            used=len(matrix) - float(np.sum(every * precision)),
            rest=flat - fourier(phase, self.harmonics) @ amplitudes,
            level=level,
        )


def _phase_at(u: Floats, knots: Floats, theta: Floats, slope: float) -> Floats:
    wander: Floats = np.interp(u, knots, theta)
    return u * (1.0 + slope) + wander


def _inverse(matrix: Floats) -> tuple[Floats, float]:
    """Inverse and log determinant of a positive definite matrix, by Cholesky. Raises LinAlgError for any other."""
    factor, failed = dpotrf(matrix)
    if failed:
        raise np.linalg.LinAlgError("the matrix is not positive definite")
    upper = dpotri(factor)[0]  # the other triangle is zero
    inverse = upper + upper.T
    np.fill_diagonal(inverse, np.diag(upper))
    return inverse, 2 * float(np.sum(np.log(np.diag(factor))))
