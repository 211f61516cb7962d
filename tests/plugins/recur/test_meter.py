"""What a whole run costs by a metric, by which metrics runs are not compared, and what the search for a cap took of a
run, by the run's own totals."""

from collections.abc import Iterator

import pytest

from autocap import events
from autocap.errors import UsageError
from autocap.events import Event, State
from autocap.metrics import Metric
from autocap.plugins.recur.meter import Searching
from autocap.plugins.recur.record import Spent, cost, require_metric

ITERATION_S, ITERATION_J = 0.5, 50.0  # while a cap is held


def search_of(
    extra_j: float, held_from_s: int, until_s: int, extra_s: float = 0.0, wobble: float = 0.0
) -> Iterator[Event]:
    """A run with a search up to a moment that took so much more, and totals every five seconds."""
    yield events.ProgressFound(t_s=0.0, kind="steps", confidence="high")
    yield events.StateEntered(t_s=0.0, state=State.SEARCHING)
    yield events.TrialStarted(t_s=1.0, setting=150.0, expected=None)
    for t_s in range(0, until_s + 1, 5):
        if t_s == held_from_s:
            yield events.StateEntered(t_s=float(t_s), state=State.HOLDING)
        share = min(1.0, t_s / held_from_s)
        done = (t_s - share * extra_s) / ITERATION_S
        joules = done * ITERATION_J + share * extra_j + wobble * (t_s // 5 % 2)
        yield events.Tally(
            t_s=float(t_s),
            since_s=0.0,
            elapsed_s=float(t_s),
            energy_j=joules,
            iterations=done + 3.0,  # with a pause of three iterations, which counts for nothing
            counted_s=float(t_s) + 9.0,
            counted_j=joules + 500.0,
            exploration_s=0.0,
            exploration_energy_j=0.0,
            exploration_iterations=0.0,
            paused_s=9.0,
            paused_j=500.0,
            paused_iterations=3.0,
        )


def after(happened: Iterator[Event]) -> Searching:
    searching = Searching()
    for event in happened:
        searching.event(event)
    return searching


def test_what_the_search_took_is_what_its_iterations_cost_beyond_those_at_the_cap_that_is_held() -> None:
    spent = after(search_of(extra_j=800.0, extra_s=4.0, held_from_s=20, until_s=60)).spent
    assert (spent.energy_j, spent.time_s) == (pytest.approx(800.0), pytest.approx(4.0))
    assert spent.energy_stderr_j == pytest.approx(0.0, abs=1e-3)


def test_its_error_is_that_of_the_mean_of_what_was_held() -> None:
    calm = after(search_of(extra_j=800.0, held_from_s=20, until_s=120, wobble=5.0)).spent
    wild = after(search_of(extra_j=800.0, held_from_s=20, until_s=120, wobble=50.0)).spent
    assert abs(calm.energy_j - 800.0) < 3 * calm.energy_stderr_j
    assert wild.energy_stderr_j == pytest.approx(10 * calm.energy_stderr_j)


def test_a_job_that_ends_soon_after_the_search_does_not_tell() -> None:
    searching = after(search_of(extra_j=800.0, held_from_s=20, until_s=30))
    assert searching.searched
    assert searching.spent is None


def test_a_run_without_a_search_has_nothing_to_tell() -> None:
    searching = after(event for event in search_of(0.0, 5, 60) if not isinstance(event, events.TrialStarted))
    assert not searching.searched
    assert searching.spent is None


def test_where_a_proxy_stands_for_the_iterations_nobody_knows() -> None:
    searching = Searching()
    searching.event(events.ProgressFound(t_s=0.0, kind="speed", confidence="low"))
    for event in search_of(800.0, 20, 60):
        if not isinstance(event, events.ProgressFound):
            searching.event(event)
    assert searching.spent is None


def test_a_price_counts_by_the_whole_run_and_not_where_it_moves() -> None:
    fixed = Metric(name="cost", energy_price=0.36, hour_price=1.8)
    require_metric(fixed)
    assert cost(Spent(energy_j=1e6, time_s=1000.0, devices=2, most_w=500.0), fixed) == pytest.approx(0.1 + 1.0)
    with pytest.raises(UsageError, match="give --energy-price a number"):
        require_metric(Metric(name="cost", hour_price=1.8, moving=True))
    with pytest.raises(UsageError, match="has no sum over a run"):
        require_metric(Metric(name="carbon", carbon_price=100.0, hour_price=1.8, moving=True))
