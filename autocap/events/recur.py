"""What is announced of a run that is a recurrence of a job: which batch size it took and why, and what it came to."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrenceStarted:
    """name: of the recurring job. number: of this recurrence, from 0. phase: exploring or sampling; why: a clause.

    most_cost: beyond which the job is ended early, in `unit`, `None` for no such limit.
    """

    t_s: float
    name: str
    number: int
    batch_size: int
    phase: str
    why: str
    most_cost: float | None
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecurrenceEnded:
    """What a recurrence came to, once, when that is known: where the target was reached, at that moment.

    outcome: as `recur.policy.Outcome` has it. cost: to the target, or what was spent without it; in `unit`, `None`
    where it is not known. search_cost: what of that the search for a cap took, `None` where nothing, or where that is
    not known. time_s, energy_j: what it is made of. reason: a clause, "" where the target was reached.
    energy_stderr_j: for what of the energy had to be estimated, `None` where all was measured.
    """

    t_s: float
    outcome: str
    reason: str
    cost: float | None
    unit: str
    time_s: float
    energy_j: float | None
    energy_stderr_j: float | None = None
    search_cost: float | None = None


RecurEvent = RecurrenceStarted | RecurrenceEnded
