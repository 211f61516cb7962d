"""What is kept of a recurring job: its settings as they were given last, and a record of each recurrence."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from autocap.events import MetricInfo
from autocap.metrics import Metric
from autocap.plugins.recur import cost
from autocap.plugins.recur.cost import Spent
from autocap.plugins.recur.history import Outcome, Recurrence, Rules
from autocap.reports.summary.summarise import metric_of


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
            cost=cost.cost(self.spent, metric),
            cost_stderr=cost.cost_stderr(self.spent, metric),
            search_cost=cost.search_cost(self.spent, metric),
        )


def past(kept: Sequence[KeptRecurrence], metric: Metric) -> tuple[Recurrence, ...]:
    """All recurrences, for the policy."""
    return tuple(one.as_past(metric) for one in kept)
