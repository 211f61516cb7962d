"""Rules that choose a cap on one card for a network that was measured on another, and what each choice costs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocap.metrics import Metric
from autocap.plugins.predict import rule
from autocap.plugins.predict.outlook import cost
from bench.transfer.cases import CapCase, cap_cases
from bench.transfer.fit import Pair, curve_of

Floats = NDArray[np.float64]
Choice = Callable[[Pair, Metric, Sequence[Pair]], float | None]
_GRID = np.linspace(0.2, 1.0, 161)  # shares of the limit
_RIDGE = 1.0


def _costs(case: CapCase, metric: Metric, share: Floats) -> Floats:
    log_power, log_time = rule.at(curve_of(case), share)
    return cost(metric, np.exp(log_power + log_time), np.exp(log_time))


def _within(case: CapCase) -> Floats:
    return np.asarray(_GRID[case.share[0] - 1e-9 <= _GRID])


def best_share(case: CapCase, metric: Metric) -> float:
    """Truly the best of those that were measured there."""
    where = _within(case)
    return float(where[np.argmin(_costs(case, metric, where))])


def regret_pct(case: CapCase, metric: Metric, share: float) -> float:
    """How much more than the best a share of the limit costs, percent; below what was measured, the lowest cap."""
    held = np.array([max(share, float(case.share[0]))])
    return 100 * float(_costs(case, metric, held)[0] / _costs(case, metric, _within(case)).min() - 1)


def default_cap(pair: Pair, metric: Metric, others: Sequence[Pair]) -> float:
    """No cap at all."""
    return 1.0


def same_share(pair: Pair, metric: Metric, others: Sequence[Pair]) -> float:
    """The best of the source, as share of the limit."""
    return best_share(pair[0], metric)


def median_of_card(pair: Pair, metric: Metric, others: Sequence[Pair]) -> float | None:
    """The median of what is best for other networks on the target; `None` where there are none."""
    known = [case for case in cap_cases() if case.card == pair[1].card and case.network != pair[1].network]
    return float(np.median([best_share(case, metric) for case in known])) if known else None


def ours(pair: Pair, metric: Metric, others: Sequence[Pair]) -> float:
    """As `autocap predict` chooses: the source's curve as far down as it can be carried; without it no cap."""
    lowest, _ = rule.carried_from(curve_of(pair[0]))
    where = np.append(_GRID[lowest <= _GRID], max(lowest, float(pair[0].share[0])))
    where = where[where >= pair[0].share[0] - 1e-9]
    return float(where[np.argmin(_costs(pair[0], metric, where))])


def ridge(pair: Pair, metric: Metric, others: Sequence[Pair]) -> float:
    """Ridge regression of ln P/P0 and ln t/t0 of the target at a share from the source's and both draws, as far as
    these are known, fitted to the other pairs."""
    rows, values = _learned_from(others)
    where = _within(pair[0])
    log_power, log_time = _fitted(rows, values, _features(pair[0], where)).T
    return float(where[np.argmin(cost(metric, np.exp(log_power + log_time), np.exp(log_time)))])


def _learned_from(others: Sequence[Pair]) -> tuple[Floats, Floats]:
    """Features of the sources, shape (points, features), and ln P/P0 and ln t/t0 of the targets, shape (points, 2)."""
    rows, values = [], []
    for one, other in others:
        where = _GRID[max(one.share[0], other.share[0]) <= _GRID][::4]
        rows.append(_features(one, where))
        values.append(np.column_stack(rule.at(curve_of(other), where)))
    return np.vstack(rows), np.vstack(values)


def _features(case: CapCase, share: Floats) -> Floats:
    log_power, log_time = rule.at(curve_of(case), share)
    below = 1 - share
    return np.column_stack([log_power, log_time, below, below**2, below * case.draw, log_time * below])


def _fitted(rows: Floats, values: Floats, at: Floats) -> Floats:
    scale = rows.std(axis=0)
    x = rows / scale
    weights = np.linalg.solve(x.T @ x + _RIDGE * np.eye(x.shape[1]), x.T @ values)
    return np.asarray(at / scale @ weights)


def network(pair: Pair, metric: Metric, others: Sequence[Pair]) -> float:
    """The same by a small multilayer perceptron. Raises ImportError without scikit-learn."""
    from sklearn.neural_network import MLPRegressor  # type: ignore[import-not-found,unused-ignore]

    rows, values = _learned_from(others)
    scale = rows.std(axis=0)
    made = MLPRegressor(hidden_layer_sizes=(16, 16), alpha=0.01, max_iter=2000, random_state=0)
    made.fit(rows / scale, values)
    where = _within(pair[0])
    log_power, log_time = made.predict(_features(pair[0], where) / scale).T
    return float(where[np.argmin(cost(metric, np.exp(log_power + log_time), np.exp(log_time)))])


RULES: dict[str, Choice] = {
    "default cap": default_cap,
    "same share of the limit": same_share,
    "median of the target card": median_of_card,
    "ridge regression": ridge,
    "multilayer perceptron": network,
    "autocap predict": ours,
}
METRICS = {"E": Metric(name="energy"), "EDP": Metric(name="edp"), "EDS(2)": Metric(name="eds", k=2.0)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Regrets:
    """Of one rule by one metric, over pairs, percent; count: of those for which it says something."""

    rule: str
    metric: str
    count: int
    mean: float
    p90: float
    worst: float


def regrets(name: str, metric: str, pairs: Sequence[Pair]) -> Regrets:
    """Each pair's network left out of what a rule learns from. Raises ImportError."""
    found = []
    for pair in pairs:
        others = [other for other in pairs if other[0].network != pair[0].network]
        share = RULES[name](pair, METRICS[metric], others)
        if share is not None:
            found.append(regret_pct(pair[1], METRICS[metric], share))
    return Regrets(
        rule=name,
        metric=metric,
        count=len(found),
        mean=float(np.mean(found)),
        p90=float(np.quantile(found, 0.9)),
        worst=max(found),
    )
