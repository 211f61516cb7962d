"""A bandit on the caps: pulls the arm whose cost may be lowest, and goes on doing so while a cap is held.

GP-LCB (Srinivas et al., ICML 2010): neighbouring arms cost much the same, which a Gaussian process with a Matérn 5/2
kernel carries from the arms that were pulled to the others, on the logarithm of the cost. The next arm is the one
with the lowest confidence bound, and the search is over when no bound is lower than the best mean by more than `gain`.

A switch costs a settling time in which nothing is learned, so `gain` is asked of each, and of two arms with bounds
closer than that the one nearer to the last is pulled. Arms above the draw are one arm: where the driver says that a
trial's cap did not bind, none above it is pulled. Nothing is tried further than a quarter of the grid's width below the
lowest arm pulled, and nothing below one that is already worse than the best by two sigma: a cliff at the low end costs
more than all else.

Held caps: what is told after the search was over opens it again, and `ask` then names an arm that has come to look
better by more than `gain`, or `None` to stay. Trials made before then fade with those that follow.

A slowdown limit: an arm that breaks it, and all below, are pulled no more. An arm that fails twice or was given up is
not pulled again. Of a warm start's history only the cheapest cap is used, as the first arm.
"""

import math
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from autocap.records import Trial
from autocap.strategies.base import STRIDE, Strategy
from autocap.strategies.options import Option

Floats = NDArray[np.float64]

_LENGTHS = (0.15, 0.3, 0.6)  # the kernel's length, shares of the grid's width
_AMPLITUDES = (0.05, 0.15, 0.4)  # the kernel's standard deviation, of the cost's logarithm
_LEAST_ERROR = 1e-4  # no cost is known better than this, whatever was stated


class Bandit(Strategy):
    """Lower-confidence-bound search over correlated arms."""

    OPTIONS: ClassVar[tuple[Option, ...]] = (
        Option(
            name="confidence",
            kind=float,
            default=1.0,
            meaning="standard errors below its mean at which an arm is judged",
            minimum=0.0,
        ),
        Option(
            name="gain",
            kind=float,
            default=0.005,
            meaning="least gain that is worth a switch, as a share of the baseline's cost",
            minimum=0.0,
        ),
        Option(name="trials", kind=int, default=20, meaning="most trials of one search", minimum=1),
        Option(
            name="memory",
            kind=int,
            default=8,
            meaning="trials after which an earlier one counts half, once a cap is held; 0 forgets nothing",
            minimum=0,
        ),
    )

    def _set_up(self) -> None:
        self._since_over = 0  # trials since the last answer that the search is over
        self._searched: int | None = None  # how many trials the first search took
        self._arms = np.array(self.grid)
        self._width_w = max(self.grid[-1] - self.grid[0], 1.0)

    def ask(self) -> float | None:
        """The next arm, watts; `None` while the last best stands, until another trial is told."""
        setting = super().ask()
        if setting is None:
            self._since_over = 0
            if self._searched is None:
                self._searched = len(self._trials)
        return setting

    def tell(self, trial: Trial) -> None:
        """Take in a trial; one that is told while a cap is held opens the question again."""
        super().tell(trial)
        self._since_over += 1
        self._done = False

    def recommend(self) -> float | None:
        """The arm with the lowest expected cost of those that were measured to the end and are allowed."""
        return self._incumbent(self._posterior()[0])

    def _doubtful(self) -> float | None:
        return None  # what may still be the best has a low bound, and is pulled again for it

    def _next(self) -> float | None:
        if not self._trials:  # begin with the history's cheapest cap, or a stride below the draw
            before_w = self._cheapest_before()
            below_draw_w = max(self.grid[0], self._draw_w() - STRIDE * self._width_w)
            return self.grid.nearest(below_draw_w) if before_w is None else before_w
        open_arms = self._open()
        if not open_arms.any() or self._since_over >= self._whole("trials"):
            return None
        mean, error = self._posterior()
        incumbent_w = self._incumbent(mean)
        if incumbent_w is not None:
            # A challenger may change the answer, more of the same cannot.
            open_arms[self.grid.index(incumbent_w)] = False
        bound = np.where(open_arms, mean - self._number("confidence") * error, math.inf)
        gain = self._number("gain")
        if incumbent_w is not None and mean[self.grid.index(incumbent_w)] - bound.min() <= gain:
            return None
        # Of arms that promise as much, the one that takes the smallest change.
        near = np.flatnonzero(bound <= bound.min() + gain)
        last_w = self._trials[-1].setting
        return self.grid[min(near.tolist(), key=lambda place: (abs(self.grid[place] - last_w), bound[place]))]

    def _open(self) -> NDArray[np.bool_]:
        """Which arms may be pulled, shape (n,)."""
        lowest_w = min(trial.setting for trial in self._trials)
        reach_w = min(lowest_w, self._step_down(lowest_w))
        free = (one for one in self._trials if one.measurement is not None and one.measurement.cap_binding is False)
        free_w = min((trial.setting for trial in free), default=math.inf)  # whose cap did not hold the clocks down
        free_w = free_w if self.grid.knob.is_power_limit else math.inf
        return np.array(
            [
                max(reach_w, self._slow_w() + 1e-9) <= setting <= free_w
                and self.failures[setting] < (1 if setting in self.findings else 2)
                and (setting not in self.findings or self.findings[setting].complete)
                for setting in self.grid
            ]
        )

    def _incumbent(self, mean: Floats) -> float | None:
        """The arm to keep as things stand, watts."""
        keepable = [finding.setting for finding in self._keepable()]
        return min(keepable, key=lambda setting: mean[self.grid.index(setting)], default=None)

    def _posterior(self) -> tuple[Floats, Floats]:
        """Expected cost of every arm and its standard error, shape (n,) each.

        Of each combination of length and amplitude the likelihood says how far it is trusted (a discrete hierarchical
        prior; Rasmussen and Williams, Gaussian Processes for Machine Learning, 2006, eq. 2.25, 2.26 and 5.8).
        """
        settings, logs, variances = self._evidence()
        centre = float(np.average(logs, weights=1 / variances))
        residual = logs - centre
        means, errors, likelihoods = [], [], []
        for length in _LENGTHS:
            between = _matern(settings, settings, length * self._width_w)
            towards = _matern(self._arms, settings, length * self._width_w)
            for amplitude in _AMPLITUDES:
                factor = np.linalg.cholesky(amplitude**2 * between + np.diag(variances))
                white = np.linalg.solve(factor, residual)
                cross = np.linalg.solve(factor, amplitude**2 * towards.T)
                means.append(centre + cross.T @ white)
                errors.append(np.maximum(amplitude**2 - np.sum(cross**2, axis=0), 0.0))
                likelihoods.append(-0.5 * float(white @ white) - float(np.log(np.diag(factor)).sum()))
        weights = np.exp(np.array(likelihoods) - max(likelihoods))
        weights /= weights.sum()
        log_mean = weights @ np.array(means)
        spread = weights @ (np.array(errors) + (np.array(means) - log_mean) ** 2)
        mean = np.exp(log_mean)
        return mean, mean * np.sqrt(spread)

    def _evidence(self) -> tuple[Floats, Floats, Floats]:
        """Caps, watts, logarithms of their costs, and the variances of these, of all trials and the baseline."""
        memory = self._whole("memory")
        # The baseline costs 1 by definition, but its cap's true cost is as uncertain as its own measurement.
        rows = [(self.baseline.setting[0], 0.0, self.baseline.period_rel_stderr**2)]
        for age, trial in enumerate(reversed(self._trials)):
            if trial.cost is None or trial.cost_stderr is None:
                continue
            held = len(self._trials) - (self._searched or len(self._trials))  # those since a cap was first held
            faded = 2 ** (min(age, held) / memory) if memory else 1.0
            cost = max(trial.cost, _LEAST_ERROR)
            rows.append((trial.setting, math.log(cost), faded * (trial.cost_stderr / cost) ** 2))
        table = np.array(rows)
        return table[:, 0], table[:, 1], np.maximum(table[:, 2], _LEAST_ERROR**2)


def _matern(one_w: Floats, other_w: Floats, length_w: float) -> Floats:
    """Matérn 5/2 correlations, shape (len(one_w), len(other_w)) (Rasmussen and Williams, eq. 4.17)."""
    distance = math.sqrt(5) * np.abs(one_w[:, None] - other_w[None, :]) / length_w
    return np.asarray((1 + distance + distance**2 / 3) * np.exp(-distance))
