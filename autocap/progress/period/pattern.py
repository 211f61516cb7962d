"""One waveform, repeated along a wandering phase: the joint least-squares fit that everything else reads.

A reading taken at t is modelled as level(t) + f(φ(t)) + noise. f is a sum of harmonics, the same in every cycle. The
phase is φ(t) = u (1 + s) + θ(u) with u = t / period: s corrects the period, θ is a random walk from cycle to cycle,
which is what jittered iterations do to a phase. All unknowns are solved for together by Gauss-Newton steps on the
actual stamps; the variances of noise and walk follow from the fit (MacKay, "Bayesian interpolation", 1992). The
posterior covariance gives the standard error of the cycles counted between two moments.

Without a good first guess, where the phase stands is found cycle by cycle: the shortest path through a table of how
well each phase fits each block of cycles. Blocks that no phase fits are left out: they are not the pattern.
"""

import math
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from autocap.progress.period.candidates import fourier
from autocap.progress.period.estimate import Bools, Floats
from autocap.progress.period.series import Series

_PHASES = 64
_SPARSE = 0.3
_JUMP = 12.0  # what a jump of the phase costs, against a step of the walk


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """When a block is left out: when its mean squared rest is more than `many` times the usual, plus `few` over the
    root of its readings, plus this share of the waveform's own mean square.
    """

    many: float
    few: float
    share: float


# While periods compete, little is left out: a part of the true period would do without what it cannot explain. Once the
# period is known, whatever is not the waveform goes.
COMPETING = Tolerance(many=9.0, few=0.0, share=0.3)
KNOWN = Tolerance(many=2.0, few=6.0, share=0.2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Path:
    """theta: phase at each knot beyond the nominal one, unwrapped, shape (knots,). blocks: which count."""

    theta: Floats
    blocks: Bools


def path(
    u: Floats,
    y: Floats,
    knots: Floats,
    coefficients: NDArray[np.complex128],
    *,
    noise: float,
    walk: float,
    tolerance: Tolerance,
    cuts: NDArray[np.int_],
) -> Path:
    """Track the phase of a known waveform.

    u: nominal phase of the readings, shape (n,). y: readings with the level taken out. coefficients: of the waveform.
    noise: standard deviation of what it leaves. walk: standard deviation of the phase per cycle.
    cuts: blocks in which something is cut out of the readings: there the phase may do anything.
    """
    every = float(knots[1] - knots[0])
    misfit, sizes = _misfit(u, y, coefficients, between(u, knots), len(knots) - 1)
    costs = misfit / (2 * noise**2)
    moves = np.minimum(_square_gaps() / (2 * every * walk**2), _JUMP)
    square = 0.5 * float(np.sum(np.abs(coefficients) ** 2))
    many = tolerance.many + tolerance.few / np.sqrt(np.maximum(sizes, 1.0))
    out_costs = (0.5 * many + tolerance.share * square / (2 * noise**2)) * sizes
    out_costs[cuts] = -1.0
    chosen, out = _shortest(costs, moves, out_costs)
    return _as_path(chosen, out, sizes)


def _misfit(
    u: Floats, y: Floats, coefficients: NDArray[np.complex128], block: NDArray[np.int_], blocks: int
) -> tuple[Floats, Floats]:
    """Squared misfit of each block at each phase, shape (blocks, phases), and readings per block."""
    harmonics = len(coefficients)
    waves = fourier(u, harmonics)
    turned = coefficients[:, None] * turns(harmonics, _PHASES)
    modelled = waves[:, :harmonics] @ turned.real + waves[:, harmonics:] @ turned.imag
    squares = (y[:, None] - modelled) ** 2
    sizes = np.bincount(block, minlength=blocks).astype(np.float64)
    totals = np.zeros((blocks, _PHASES))
    starts = np.flatnonzero(np.diff(block, prepend=-1))
    totals[block[starts]] = np.add.reduceat(squares, starts, axis=0)
    return totals, sizes


def between(u: Floats, knots: Floats) -> NDArray[np.int_]:
    """For each phase the place of the last knot before it, shape (n,); knots are as far apart as the first two."""
    return np.asarray(np.clip((u / (knots[1] - knots[0])).astype(int), 0, len(knots) - 2))


@cache
def _square_gaps() -> Floats:
    """Squared distances between phases, the shorter way round, shape (phases, phases)."""
    steps = np.arange(_PHASES) / _PHASES
    return np.asarray(((steps[:, None] - steps[None, :] + 0.5) % 1.0 - 0.5) ** 2)


@cache
def turns(harmonics: int, phases: int) -> NDArray[np.complex128]:
    """What each of many phases, all round the cycle, does to each harmonic, shape (harmonics, phases)."""
    return np.asarray(np.exp(-2j * np.pi * np.outer(np.arange(1, harmonics + 1), np.arange(phases) / phases)))


def _shortest(costs: Floats, moves: Floats, out_costs: Floats) -> tuple[NDArray[np.int_], Bools]:
    """The cheapest phase per block, and the blocks that are cheaper to leave out."""
    blocks = len(costs)
    out = costs.min(axis=1) > out_costs
    costs = np.minimum(costs, out_costs[:, None])
    total = costs[0]
    back = np.zeros((blocks, _PHASES), dtype=int)
    every = np.arange(_PHASES)
    for place in range(1, blocks):
        if out[place - 1]:
            back[place] = np.argmin(total)
            total = total.min() + costs[place]
        else:
            reached = total + moves
            back[place] = reached.argmin(axis=1)
            total = reached[every, back[place]] + costs[place]
    chosen = np.zeros(blocks, dtype=int)
    chosen[-1] = int(np.argmin(total))
    for place in range(blocks - 1, 0, -1):
        chosen[place - 1] = back[place][chosen[place]]
    return chosen, out


def _as_path(chosen: NDArray[np.int_], out: Bools, sizes: Floats) -> Path:
    """Unwrapped phases at the knots; a block next to a jump is left out as well."""
    steps = (np.diff(chosen) / _PHASES + 0.5) % 1.0 - 0.5
    phases = np.concatenate(([chosen[0] / _PHASES], chosen[0] / _PHASES + np.cumsum(steps)))
    sparse = sizes < _SPARSE * np.median(sizes)
    sparse[-1] = False  # cut short by the end of the readings, not by a gap
    sparse |= sizes == 0
    out = _with_neighbours(out | sparse)
    for place in np.flatnonzero(np.abs(steps) > 0.2):
        if not out[place] and not out[place + 1]:
            out[place + 1] = True
    # A knot stands between two blocks: at the mean phase of those that count.
    blocks_at_knot = np.convolve(~out, [1.0, 1.0])
    where = np.flatnonzero(blocks_at_knot)
    if len(where) == 0:
        return Path(theta=np.zeros(len(out) + 1), blocks=~out)
    means = np.convolve(np.where(out, 0.0, phases), [1.0, 1.0])[where] / blocks_at_knot[where]
    return Path(theta=np.interp(np.arange(len(out) + 1), where, means), blocks=~out)


def _with_neighbours(out: Bools) -> Bools:
    """A long stretch that is left out begins and ends somewhere inside its neighbours, so they go with it."""
    inside = out[:-1] & out[1:]
    run = np.concatenate(([False], inside)) | np.concatenate((inside, [False]))
    return np.asarray(out | np.concatenate((run[1:], [False])) | np.concatenate(([False], run[:-1])))


_KNOTS = 64
_READINGS_PER_KNOT = 5
_LEVELS = 8
_CYCLES_PER_LEVEL = 3.0
_WALK = (2e-4, 0.12)  # smallest and largest standard deviation of the phase per cycle
_FREE = 1.0  # of the phase across what is left out
_OFFSET = 0.5
_CLEAR = 4.5  # times its variance: a harmonic's power that is more than noise
_OUTSIDE = 3.5  # what a reading that is left out costs the evidence
MOST_SEEN = 0.5  # of the waveform's power, at least: of what a real cycle shows its readings see most as it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """A fitted pattern. Values y are in units of their own spread.

    u: phase at the nominal period, shape (n,). knots: where the phase may bend, in cycles. keep: readings that belong
    to the pattern. path: how far the phase is ahead at each knot, in cycles, then the relative correction of the
    frequency, shape (knots+1,). design: the readings kept, linearised in path, level and waveform, shape (kept,
    unknowns); posterior: covariance of these unknowns. coefficients: complex amplitudes, c of f(φ) =
    Re Σ c_k exp(-2πikφ). residual: standard deviation of the rest. walk: of the phase, per cycle. explained: share of
    variation that the pattern explains once the level is taken out. evidence: log marginal likelihood, of the readings
    that were left out too. used: degrees of freedom that the fit consumed. rest, level: of each reading, shape (n,).
    """

    period_s: float
    series: Series
    u: Floats
    knots: Floats
    keep: Bools
    path: Floats
    coefficients: NDArray[np.complex128]
    residual: float
    walk: float
    explained: float
    evidence: float
    design: Floats
    posterior: Floats
    used: float
    rest: Floats
    level: Floats

    @property
    def phase(self) -> Floats:
        """Cycles done at each reading."""
        return self.phase_at(self.u)

    def phase_at(self, u: Floats) -> Floats:
        return _phase_at(u, self.knots, self.path)

    def waveform(self, phase: Floats) -> Floats:
        """f at some phases, shape (n,)."""
        waves = fourier(phase, len(self.coefficients))
        return np.asarray(waves @ np.concatenate((self.coefficients.real, self.coefficients.imag)))

    def slope(self, phase: Floats) -> Floats:
        """Of f at some phases, per cycle, shape (n,)."""
        waves = fourier(phase, len(self.coefficients))
        return _slope(waves, self.coefficients.real, self.coefficients.imag)

    def parts(self, share: float) -> list[int]:
        """Of how many parts alike the cycle may be made: the numbers whose multiples, among the harmonics, have more
        than this share of the waveform's power that is no noise."""
        noise = 4.0 * self.residual**2 / max(int(self.keep.sum()), 1)  # of a harmonic's power: cosine and sine
        power = np.maximum(np.abs(self.coefficients) ** 2 - _CLEAR * noise, 0.0)
        return [n for n in range(2, len(power) + 1) if power[n - 1 :: n].sum() > share * power.sum()]

    @property
    def is_folded(self) -> bool:
        """Whether most of the waveform's power is in harmonics that take less than two readings. These show in the
        readings as something slower, so that as a whole they may be another pattern's, of that."""
        return self.share_of(2 * self.series.step_s) < MOST_SEEN

    def share_of(self, slower_s: float) -> float:
        """The share of the waveform's power in harmonics that take so long or longer."""
        power = np.abs(self.coefficients) ** 2
        return float(power[: int(self.period_s / slower_s)].sum() / max(float(power.sum()), 1e-24))

    def time_s(self, u: Floats) -> Floats:
        """When each of some nominal phases was reached, on the readings' own clock; shape (n,)."""
        return self.series.clock_s(float(self.series.busy_s[0]) + self.period_s * u)

    def cycles_between(self, spans_u: list[tuple[float, float]]) -> tuple[float, float]:
        """Cycles in some spans (in nominal cycles) together, and their standard error."""
        contrast = np.zeros(len(self.knots) + 1)
        for start, end in spans_u:
            ends = hats(np.array([start, end]), self.knots)
            contrast[:-1] += ends[1] - ends[0]
            contrast[-1] += end - start
        total = sum(end - start for start, end in spans_u)
        cycles = total + float(contrast @ self.path)
        covariance = self.posterior[: len(contrast), : len(contrast)]
        return cycles, math.sqrt(max(float(contrast @ covariance @ contrast), 0.0))


def knots_for(cycles: float, readings: int) -> Floats:
    """Places of the knots in cycles: one per cycle unless there are too many, or too few readings."""
    most = max(2, min(_KNOTS, readings // _READINGS_PER_KNOT))
    every = max(1, math.ceil(cycles / most))
    return np.arange(math.ceil(cycles / every) + 1, dtype=np.float64) * every


def hats(u: Floats, knots: Floats) -> Floats:
    """Weights that interpolate linearly between the knots, shape (n, knots)."""
    place = between(u, knots)
    part = u / (knots[1] - knots[0]) - place
    weights = np.zeros((len(u), len(knots)))
    rows = np.arange(len(u))
    weights[rows, place] = 1.0 - part
    weights[rows, place + 1] = part
    return weights


def fit(series: Series, period_s: float, knots: Floats, way: Path, *, walk: float, harmonics: int, steps: int) -> Fit:
    """Fit the pattern by `steps` Gauss-Newton steps from the phase that was tracked.

    walk: standard deviation of the phase per cycle, to begin with.
    """
    problem = _Problem(series, period_s, knots, way, walk, harmonics)
    for _ in range(steps):
        problem.step()
    return problem.result()


class _Problem:
    """The state of one fit, and its variances. parameters: theta (m), slope, level (l), cosines (k), sines (k). Its
    arrays hold the readings that belong to the pattern; every_u, of all readings, is for `result` alone."""

    def __init__(self, series: Series, period_s: float, knots: Floats, way: Path, walk: float, harmonics: int) -> None:
        self.series, self.period_s, self.knots, self.blocks = series, period_s, knots, way.blocks
        self.every = float(knots[1] - knots[0])
        self.linear_at = len(knots) + 1  # where level and waveform begin among the parameters
        self.harmonics, self.walk = harmonics, walk
        self.every_u = (series.busy_s - series.busy_s[0]) / period_s
        cycles = float(self.every_u[-1])
        self.level_knots = np.linspace(0.0, cycles + 1e-9, int(np.clip(cycles / _CYCLES_PER_LEVEL, 2, _LEVELS)))
        self.keep = way.blocks[between(self.every_u, knots)]
        self.u, self.y = self.every_u[self.keep], series.y[self.keep]
        self.moves = np.concatenate((hats(self.u, knots), self.u[:, None]), axis=1)
        self.levels = hats(self.u, self.level_knots)
        self.fixed_prior, self.unit_steps = self._priors(cycles)
        self.parameters = np.zeros(len(self.fixed_prior))
        self.parameters[: len(knots)] = way.theta
        self._solve_linear()
        self.now = self._linearised()

    def _waves(self) -> Floats:
        return fourier(self.u + self.moves @ self.parameters[: self.linear_at], self.harmonics)

    def _priors(self, cycles: float) -> tuple[Floats, Floats]:
        """Precision matrix of all parameters but for the steps of the phase, and that of steps of unit variance. The
        mean of all is 0; the harmonics are expected to fall off as those of steps do."""
        m, levels = len(self.knots), len(self.level_knots)
        spread = 2.0 / np.arange(1, self.harmonics + 1)
        diagonal = np.concatenate(
            (np.zeros(m), [1 / (0.5 / max(cycles, 1.0)) ** 2], np.full(levels, 0.25), np.tile(1 / spread**2, 2))
        )
        precision = np.diag(diagonal)
        change = np.diff(np.eye(m), axis=0)
        precision[:m, :m] = change[~self.blocks].T @ change[~self.blocks] / _FREE
        precision[:m, :m] += 1.0 / (m * _OFFSET) ** 2
        return precision, change[self.blocks].T @ change[self.blocks]

    def _prior(self) -> Floats:
        """Precision matrix of all parameters."""
        m = len(self.knots)
        precision = self.fixed_prior.copy()
        precision[:m, :m] += self.unit_steps / (self.every * self.walk**2)
        return precision

    def _precision(self, prior: Floats) -> Floats:
        """Of all parameters as linearised, given the readings; symmetric and positive definite."""
        design = self.now[0]
        return design.T @ design / self.variance + prior

    def _solve_linear(self) -> None:
        """Level and waveform along the phase as it stands."""
        design = np.concatenate((self.levels, self._waves()), axis=1)
        inner = self._prior()[self.linear_at :, self.linear_at :] * 0.1
        solution = np.linalg.solve(design.T @ design + inner, design.T @ self.y)
        self.parameters[self.linear_at :] = solution
        rest = self.y - design @ solution
        self.variance = max(float(rest @ rest) / len(rest), 1e-8)

    def _linearised(self) -> tuple[Floats, Floats, Floats]:
        """Design matrix and target of the linearised problem, and what the fit as it stands leaves of the readings."""
        level, amplitudes = self._level_and_waveform()
        waves = self._waves()
        steepness = _slope(waves, amplitudes[: self.harmonics], amplitudes[self.harmonics :])
        rest = self.y - self.levels @ level - waves @ amplitudes
        moves = self.moves * steepness[:, None]
        design = np.concatenate((moves, self.levels, waves), axis=1)
        target = self.y + moves @ self.parameters[: self.linear_at]
        return design, target, rest

    def _level_and_waveform(self) -> tuple[Floats, Floats]:
        waveform_at = self.linear_at + len(self.level_knots)
        return self.parameters[self.linear_at : waveform_at], self.parameters[waveform_at:]

    def step(self) -> None:
        """One Gauss-Newton step of all parameters, shortened while it makes things worse; then both variances."""
        design, target, _ = self.now
        prior = self._prior()
        covariance = _inverse(self._precision(prior))
        solution = covariance @ (design.T @ target / self.variance)
        before, cost = self.parameters, self._cost(prior)
        for share in (1.0, 0.5, 0.2):
            self.parameters = before + share * (solution - before)
            self.now = self._linearised()
            if self._cost(prior) <= cost:
                break
        self._vary(covariance, prior)

    def _cost(self, prior: Floats) -> float:
        """Minus twice the log posterior, but for a constant."""
        rest = self.now[2]
        return float(rest @ rest / self.variance + self.parameters @ prior @ self.parameters)

    def _vary(self, covariance: Floats, prior: Floats) -> None:
        """Both variances anew, from what the parameters leave."""
        rest = self.now[2]
        used = len(prior) - float(np.sum(covariance * prior))
        self.variance = max(float(rest @ rest) / max(len(rest) - used, 0.1 * len(rest)), 1e-8)
        m = len(self.knots)
        changes = np.diff(self.parameters[:m])[self.blocks]
        inner = covariance[:m, :m]
        diagonal = np.diag(inner)
        doubts = (diagonal[1:] + diagonal[:-1] - 2 * np.diag(inner, 1))[self.blocks]
        known = max(float(np.sum(1 - doubts / (self.every * self.walk**2))), 0.05 * len(changes), 0.5)
        square = float(changes @ changes) / self.every
        self.walk = float(np.clip(np.sqrt(square / known), *_WALK))

    def result(self) -> Fit:
        """The fit as it stands, over all readings."""
        prior, rest = self._prior(), self.now[2]
        precision = self._precision(prior)
        covariance = _inverse(precision)
        evidence = -0.5 * (
            len(rest) * np.log(2 * np.pi * self.variance)
            + float(rest @ rest) / self.variance
            + float(self.parameters @ prior @ self.parameters)
            - (_log_determinant(prior) - _log_determinant(precision))
        )
        at_knots, amplitudes = self._level_and_waveform()
        path = self.parameters[: self.linear_at]
        u = self.every_u
        level = np.interp(u, self.level_knots, at_knots)
        flat = self.series.y - level
        return Fit(
            period_s=self.period_s,
            series=self.series,
            u=u,
            knots=self.knots,
            keep=self.keep,
            path=path,
            coefficients=amplitudes[: self.harmonics] + 1j * amplitudes[self.harmonics :],
            residual=float(np.sqrt(self.variance)),
            walk=self.walk,
            explained=1.0 - self.variance / max(float(np.var(flat[self.keep])), 1e-12),
            evidence=float(evidence) - _OUTSIDE * int(np.sum(~self.keep)),
            design=self.now[0],
            posterior=covariance,
            used=len(prior) - float(np.sum(covariance * prior)),
            rest=flat - fourier(_phase_at(u, self.knots, path), self.harmonics) @ amplitudes,
            level=level,
        )


def _slope(waves: Floats, cosines: Floats, sines: Floats) -> Floats:
    orders = 2 * np.pi * np.arange(1, len(cosines) + 1)
    return np.asarray(waves @ np.concatenate((orders * sines, -orders * cosines)))


def _phase_at(u: Floats, knots: Floats, path: Floats) -> Floats:
    return np.asarray(u * (1.0 + path[-1]) + np.interp(u, knots, path[:-1]))


def _inverse(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.inv(matrix), dtype=np.float64)


def _log_determinant(matrix: Floats) -> float:
    """Of a positive definite matrix. Raises LinAlgError for any other."""
    return 2 * float(np.sum(np.log(np.diag(np.linalg.cholesky(matrix)))))
