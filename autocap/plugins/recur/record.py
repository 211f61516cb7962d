"""What is kept of a recurring job: its settings as they were given last, and a record of each recurrence, with what
it used, and what that costs by a metric."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from autocap.errors import UsageError
from autocap.events import MetricInfo
from autocap.metrics import SUMMED, Metric
from autocap.plugins.recur.policy import Outcome, Recurrence, Rules
from autocap.reports.summary.summarise import metric_of


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
    if metric.unit is None:
        raise UsageError(f"the metric {metric.name} has no sum over a run; choose {', '.join(SUMMED)}")
    if metric.moving:
        raise UsageError(
            "runs at other times have other prices, so they are not compared by a price that moves; give "
            "--energy-price a number, or choose another metric"
        )


def cost(spent: Spent, metric: Metric) -> float:
    """The metric of a whole run, in its unit."""
    return metric.total(spent.energy_j, spent.time_s, spent.devices, spent.most_w)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSettings:
    """Of a recurring job, from its last call. target: as given. command: with its placeholders."""

    target: str
    rules: Rules
    metric: MetricInfo
    command: tuple[str, ...]

    @property
    def measured_by(self) -> Metric:
        return metric_of(self.metric)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRecurrence:
    """One recurrence.

    started_at, ended_at: ISO 8601 with an offset; ended_at `None` while it runs. spent: `None` where the energy is not
    known, and where it says nothing here, as of other devices. reason: a clause, where the target was not reached.
    cap_w: the cap that was kept, watts, `None` for none. gpus: the models of its devices. run_dir: its run directory,
    "" before there is one.
    """

    number: int
    batch_size: int
    outcome: Outcome
    started_at: str
    ended_at: str | None = None
    spent: Spent | None = None
    reason: str = ""
    cap_w: float | None = None
    gpus: tuple[str, ...] = ()
    run_dir: str = ""

    def as_past(self, metric: Metric) -> Recurrence:
        """For the policy: its cost by that metric, whichever it was run with."""
        known = Recurrence(number=self.number, batch_size=self.batch_size, outcome=self.outcome)
        if self.spent is None or self.outcome is Outcome.RUNNING:
            return known
        return replace(
            known,
            cost=cost(self.spent, metric),
            cost_stderr=cost_stderr(self.spent, metric),
            search_cost=search_cost(self.spent, metric),
        )


def past(kept: Sequence[KeptRecurrence], metric: Metric) -> tuple[Recurrence, ...]:
    """All recurrences, for the policy."""
    return tuple(one.as_past(metric) for one in kept)
