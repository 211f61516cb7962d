"""What is known of the batch sizes against each other: which costs least, and what choosing it has saved."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from autocap.plugins.recur.history import Outcome, Recurrence
from autocap.plugins.recur.policy import Belief


def cheapest(thought: Sequence[Belief]) -> Belief | None:
    """The batch size with the lowest mean cost that is not pruned; `None` before one has reached the target."""
    known = [one for one in thought if one.mean is not None and one.pruned is None]
    return min(known, key=lambda one: one.mean or 0.0, default=None)


def more(one: Belief, than: Belief) -> tuple[float, float]:
    """What a batch size costs more than another, as a share of that, with its standard error; infinite where that is
    not known, as of what was run once."""
    assert one.mean is not None
    assert than.mean is not None
    error = math.hypot(*(math.inf if belief.stderr is None else belief.stderr for belief in (one, than)))
    return (one.mean - than.mean) / abs(than.mean or 1.0), error / abs(than.mean or 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What the choice of batch sizes has saved against the default one, in the metric's unit. so_far: over all
    recurrences that reached their target, with all that was spent in vain and in searches taken off; a_run: the share
    of the default's cost that a run with the cheapest one saves. Each with its standard error."""

    so_far: float
    so_far_stderr: float
    a_run: float
    a_run_stderr: float


def saved(costs: Sequence[Recurrence], thought: Sequence[Belief], default: int) -> Saved | None:
    """`None` where the default's cost is not known, or nothing else is."""
    best, usual = cheapest(thought), next(one for one in thought if one.batch_size == default)
    if best is None or usual.mean is None or best is usual or not usual.mean > 0:
        return None
    reached = sum(one.outcome is Outcome.REACHED for one in costs)
    spent = sum(one.cost or 0.0 for one in costs)
    extra, error = more(best, usual)
    return Saved(
        so_far=reached * usual.mean - spent,
        so_far_stderr=math.inf if usual.stderr is None else reached * usual.stderr,
        a_run=-extra,
        a_run_stderr=error,
    )
