"""What a whole run cost by a metric.

With E and T the run's energy and time, where a metric of one iteration has those of an iteration:

    energy  E                                     joules
    edp     E T                                   joule seconds
    ed2p    E T²                                  joule square seconds
    eds     ((k-1)/k) E + (1/k) P T               joules; P is the sum of the devices' largest limits,
                                                  so that for k = 1/(1-η) it is Zeus's cost
                                                  ηE + (1-η)PT (You et al. 2023, section 3)
    cost    E · energy price + T · devices · hour price
"""

import math
from dataclasses import dataclass, replace

from autocap.errors import UsageError
from autocap.metrics import DEFAULT_K, Metric

UNITS = {"energy": "J", "eds": "J", "edp": "J·s", "ed2p": "J·s²", "cost": "of money"}
_J_PER_KWH, _S_PER_HOUR = 3.6e6, 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSpent:
    """What the search for a cap took of a run, beyond what the same iterations take with what it came to."""

    energy_j: float
    time_s: float
    energy_stderr_j: float
    time_stderr_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a run has used. energy_stderr_j: for what of it had to be estimated. devices, most_w: how many there are,
    and the sum of their largest limits. searched: whether it searched for a cap. search: what that took of it, `None`
    where that is not known."""

    energy_j: float
    time_s: float
    devices: int
    most_w: float
    energy_stderr_j: float = 0.0
    searched: bool = False
    search: SearchSpent | None = None


def require_metric(metric: Metric) -> None:
    """Raises UsageError for a metric that has no sum over a run, or by which runs at other times cannot be compared."""
    if metric.name not in UNITS:
        raise UsageError(f"the metric {metric.name} has no sum over a run; choose {', '.join(UNITS)}")
    if metric.moving:
        raise UsageError(
            "runs at other times have other prices, so they are not compared by a price that moves; give "
            "--energy-price a number, or choose another metric"
        )


def cost(spent: Spent, metric: Metric) -> float:
    """The metric of a whole run, in UNITS."""
    energy_j, time_s = spent.energy_j, spent.time_s
    match metric.name:
        case "edp":
            return energy_j * time_s
        case "ed2p":
            return energy_j * time_s**2
        case "eds":
            k = metric.k or DEFAULT_K
            return ((k - 1) * energy_j + spent.most_w * time_s) / k
        case "cost":
            money = energy_j / _J_PER_KWH * (metric.energy_price or 0.0)
            return money + time_s / _S_PER_HOUR * spent.devices * (metric.hour_price or 0.0)
    return energy_j


def search_cost(spent: Spent, metric: Metric) -> float | None:
    """What of it the search for a cap took; `None` where there was one and that is not known."""
    if spent.search is None:
        return None if spent.searched else 0.0
    return cost(spent, metric) - cost(_less(spent, spent.search.energy_j, spent.search.time_s), metric)


def cost_stderr(spent: Spent, metric: Metric) -> float:
    """The standard error of the cost without the search: of the energy that had to be estimated, and of the search."""
    there = cost(spent, metric)
    of_energy = cost(_less(spent, -spent.energy_stderr_j, 0.0), metric) - there
    if spent.search is None:
        return of_energy
    found = spent.search
    return math.hypot(of_energy, cost(_less(spent, -found.energy_stderr_j, -found.time_stderr_s), metric) - there)


def _less(spent: Spent, energy_j: float, time_s: float) -> Spent:
    return replace(spent, energy_j=spent.energy_j - energy_j, time_s=spent.time_s - time_s)
