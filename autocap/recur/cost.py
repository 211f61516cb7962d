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

from dataclasses import dataclass

from autocap.errors import UsageError
from autocap.metrics import DEFAULT_K, Metric

UNITS = {"energy": "J", "eds": "J", "edp": "J·s", "ed2p": "J·s²", "cost": "of money"}
_J_PER_KWH, _S_PER_HOUR = 3.6e6, 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What a run has used. energy_stderr_j: for what of it had to be estimated. devices, most_w: how many there are,
    and the sum of their largest limits."""

    energy_j: float
    time_s: float
    devices: int
    most_w: float
    energy_stderr_j: float = 0.0


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


def cost_stderr(spent: Spent, metric: Metric) -> float:
    """Its standard error, which comes from the energy alone: every metric is linear in it."""
    more = Spent(
        energy_j=spent.energy_j + spent.energy_stderr_j, time_s=spent.time_s, devices=spent.devices, most_w=spent.most_w
    )
    return cost(more, metric) - cost(spent, metric)
