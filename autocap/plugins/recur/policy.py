"""Which batch size the next recurrence of a job takes: exploration with pruning, then Gaussian Thompson sampling.

As in Zeus (You et al., NSDI 2023, section 4): each batch size is an arm, what it costs is the cost of training to the
target, runs that cost too much are stopped, and what has failed is not tried again. Otherwise than there

- exploration goes from the default to both sides as long as what it passes may still be the best: the cost is taken to
  have one valley, as their curves have, and nothing is tried that lies behind a batch size surely worse than the best;
- each batch size is tried once, as the scatter from run to run is taken to be the same share of the cost for all of
  them; two runs of each, from which Zeus takes a variance of its own, may agree by chance;
- a target missed now and then counts as what was spent for each one reached;
- what the search for a cap took is left out of what batch sizes are compared by, as it comes once;
- a run that crashed or was killed says nothing of its batch size but that it had cost so much by then. It is tried
  again; after more in a row than the losses of others explain, in ever longer intervals. Running out of memory, which
  a larger batch size does as well, closes both when it came twice, for intervals that grow in the same way;
- with a window, what is old counts less and is less sure, so that what was given up is looked at again.

Pure: what happened so far goes in, a choice comes out; nothing is kept between calls.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from autocap.plugins.recur.arms import Arm, arms_of, best_of
from autocap.plugins.recur.history import Outcome, Recurrence, Rules

# Chosen on the tables of `python -m bench recurring`.
# Of the runs' scatter, when drawing: jobs recur tens of times, and not for ever. What a search took may be off by
# more than runs scatter, and one more run ends that.
_BOLD, _BOLD_MOVING = 0.5, 0.7


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """The batch size to run with next.

    `most_cost`: what the run may cost before it is to be stopped, in the metric's unit; `None`: no limit is known yet.
    `phase`: "exploring" or "sampling"; `why`: the reason, in words for people.
    """

    batch_size: int
    most_cost: float | None
    phase: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Belief:
    """What is thought of the cost to target with one batch size, in the metric's unit.

    `mean` is `None` before the first run that reached the target; `n` counts those runs. `stderr` is `None` before two
    runs with one of the batch sizes did, which show how runs scatter.
    `pruned`: the reason in words why it is not tried (for now), else `None`.
    """

    batch_size: int
    mean: float | None
    stderr: float | None
    n: int
    pruned: str | None


def choose(past: Sequence[Recurrence], rules: Rules, rng: np.random.Generator) -> Choice:
    """The batch size of the next recurrence, given all earlier ones, those that still run among them.

    While a batch size is being tried for the first time, others get the best known so far, as in Zeus.
    Draws from `rng` while sampling only.
    """
    arms = arms_of(past, rules)
    best = best_of(arms)
    tried = {arm.batch_size for arm in arms if arm.tried}
    trying = [one.batch_size for one in past if one.outcome is Outcome.RUNNING and one.batch_size not in tried]
    if best is None:
        return _first(arms, rules, trying)
    most = rules.threshold * best.cost if best.cost > 0 else None
    untried = _untried(arms, best)
    if untried and trying:
        why = f"the best so far, while {trying[0]} is being tried"
        return Choice(batch_size=best.batch_size, most_cost=most, phase="exploring", why=why)
    if untried:
        beside, size = min(untried)[1:]
        why = f"not tried yet, and {beside} beside it may be the best"
        return Choice(batch_size=size, most_cost=most, phase="exploring", why=why)
    known = [arm for arm in arms if arm.n or (rules.window is not None and arm.mean is not None and not arm.failed)]
    drawn_from = [arm for arm in known if arm.may_run] or known
    errors, scattered = np.array([(arm.stderr, arm.scattered) for arm in drawn_from]).T
    bold = _BOLD if rules.window is None else _BOLD_MOVING
    drawn = rng.normal([arm.cost for arm in drawn_from], np.sqrt(errors**2 - (1 - bold**2) * scattered**2))
    size = drawn_from[int(np.argmin(drawn))].batch_size
    return Choice(batch_size=size, most_cost=most, phase="sampling", why="the lowest of the costs drawn")


def belief(past: Sequence[Recurrence], rules: Rules) -> tuple[Belief, ...]:
    """What is thought of each of `rules.batch_sizes`, in their order."""
    arms = arms_of(past, rules)
    best = best_of(arms)
    scatters = any(arm.n > 1 for arm in arms)  # else how runs scatter is only taken to be so
    open_to = {size for _, _, size in _untried(arms, best)} if best else {arm.batch_size for arm in arms}
    return tuple(
        Belief(
            batch_size=arm.batch_size,
            mean=arm.mean if arm.n else None,
            stderr=arm.stderr if arm.n and scatters else None,
            n=arm.n,
            pruned=_reason(arm, arm.batch_size in open_to),
        )
        for arm in arms
    )


def _reason(arm: Arm, may_be_tried: bool) -> str | None:
    if 0 < arm.closed_by < arm.batch_size:
        return f"not tried: batch size {arm.closed_by} ran out of memory"
    if arm.wait:
        when = "after the next recurrence" if arm.wait == 1 else f"after {arm.wait} more recurrences"
        why = "memory ran out more than once" if arm.closed_by else f"its last {arm.lost} runs were lost"
        return f"{why}; it is tried again {when}"
    if arm.n:
        return None
    if arm.failed:
        return "its runs ended without the target"
    if arm.mean is not None:
        return "a run had cost too much when it was lost" if arm.was_lost else "a run cost too much and was stopped"
    return None if may_be_tried else "not tried: what lies before it costs too much"


def _first(arms: Sequence[Arm], rules: Rules, trying: Sequence[int]) -> Choice:
    """Before any target was reached: the default, and where that has failed the others, nearest first."""
    place = rules.batch_sizes.index(rules.default)
    near = sorted(range(len(arms)), key=lambda other: (abs(other - place), other))
    left = [arms[other].batch_size for other in near if not arms[other].tried and arms[other].may_run]
    first = rules.default in left
    size = rules.default if first else next((size for size in left if size not in trying), rules.default)
    why = "the default comes first" if first else "none has reached the target so far"
    return Choice(batch_size=size, most_cost=None, phase="exploring", why=why)


def _untried(arms: Sequence[Arm], best: Arm) -> list[tuple[float, int, int]]:
    """The nearest one on each side of the best that was not tried, if none before it is surely worse.

    Of each the cost of its neighbour, that neighbour, and itself. One that waits, as its runs were lost, hides nothing.
    """
    found = []
    at = arms.index(best)
    for way in (arms[at::-1], arms[at:]):
        near = best
        for far in way[1:]:
            if near.worse(best) or far.closed_by:
                break
            if far.tried:
                near = far
            elif far.may_run:
                found.append((near.cost, near.batch_size, far.batch_size))
                break
    return found


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
