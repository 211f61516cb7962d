"""From a baseline to a decision: drift, changes and refusals on the way, in whole simulated jobs."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.search import Search
from autocap.devices.model import profiles
from autocap.events import State
from autocap.metrics import Metric
from autocap.records import Measurement, TrialState
from autocap.strategies.base import StrategyLike
from autocap.strategies.grid import CapGrid
from autocap.testing.simulated.job import SimulatedJob, WorkloadChange
from autocap.testing.simulated.node import SimulatedNode, Spell
from bench.simulation.jobs import Outcome, exact, tune
from tests.controller.test_doubts import Noting
from tests.doubles.feeds import measurement, trial_of
from tests.doubles.logs import announced, states, warnings

RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
EDS = Metric(name="eds", k=2.0)
ENERGY = Metric(name="energy")
GRID = CapGrid(settings=(100.0, 150.0, 200.0, 230.0, 260.0))


def measured_baselines(outcome: Outcome) -> list[Measurement]:
    return [event.measurement for event in announced(outcome, events.BaselineMeasured, events.BaselineRefined)]


def search(metric: Metric, baseline: Measurement, told: StrategyLike | None = None) -> Search:
    return Search(lambda *_: told or Noting(), GRID, metric, baseline, 3.0)


def test_a_card_that_warms_up_during_the_search_does_not_bend_the_curve() -> None:
    node = SimulatedNode(leakage=0.05)
    job = SimulatedJob(profile=RESNET50, jitter=0.0)
    outcome = tune(job, TuneConfig(metric=ENERGY), "linear", node=node, stop_when_held=True)
    assert len(measured_baselines(outcome)) >= 4
    assert states(outcome).count(State.BASELINE) == 1
    base = exact(RESNET50, 260.0)
    for one in outcome.trials:
        if one.trial.state is TrialState.COMPLETE and one.trial.setting >= 200.0:
            true = ENERGY.cost(exact(RESNET50, one.trial.setting), base).value
            assert one.trial.cost == pytest.approx(true, rel=0.02)


def test_a_strategy_is_told_of_every_trial_as_it_would_have_been_at_the_first_baseline() -> None:
    told = Noting()
    found = search(ENERGY, measurement(energy_j=100.0, period_s=0.5), told)
    found.rebase(measurement(energy_j=104.0, period_s=0.51))
    found.tell(trial_of(measurement(period_s=0.612, cap_w=150.0), 0.8, 0.001))
    assert found.ask() is None
    (heard,) = told.told
    assert heard.measurement.period_s == pytest.approx(0.6)
    assert heard.measurement.energy_per_iteration_j == pytest.approx(100.0 / 1.04)
    assert heard.cost == 0.8
    assert found.cost(measurement(energy_j=78.0, period_s=0.6)).value == pytest.approx(0.75)


def test_a_workload_that_changes_during_the_search_is_searched_anew() -> None:
    job = SimulatedJob(profile=RESNET50, iterations=1500, change=WorkloadChange(at=120, time=1.4))
    outcome = tune(job, TuneConfig(metric=EDS), "linear", stop_when_held=True)
    (anew, *_) = [text for text in warnings(outcome) if text.startswith("tuning anew")]
    found = re.search(r"at the limit found on arrival the job has changed during the search: \+(\d+) % time", anew)
    assert found
    assert float(found[1]) == pytest.approx(40, abs=4)
    assert states(outcome).count(State.BASELINE) == 2
    assert measured_baselines(outcome)[-1].period_s == pytest.approx(1.4 * RESNET50.default_time_s, rel=0.02)


def test_after_a_cap_that_was_too_slow_the_best_of_those_above_it_follows() -> None:
    slow = Metric(name="energy", max_slowdown=0.05)
    found = search(slow, measurement(energy_j=100.0, period_s=0.5, energy_error=0.001, period_error=0.001))
    for one in (
        trial_of(measurement(period_s=0.52, cap_w=150.0), 0.7, 0.001),
        trial_of(measurement(period_s=0.515, cap_w=200.0), 0.8, 0.001),
        trial_of(measurement(period_s=0.505, cap_w=230.0), 0.9, 0.001),
        trial_of(measurement(period_s=0.5, cap_w=260.0), 1.0, 0.001),
    ):
        found.tell(one)
    assert found.runner_up({150.0}) == 200.0
    assert found.runner_up({150.0, 200.0}) == 230.0
    assert found.runner_up({230.0}) is None


def test_a_baseline_that_could_not_be_measured_is_tried_again() -> None:
    node = SimulatedNode(silent=(Spell(start_s=14.0, end_s=90.0),))
    job = SimulatedJob(profile=RESNET50, iterations=1200, jitter=0.03)
    outcome = tune(job, TuneConfig(metric=replace(EDS, max_slowdown=0.5)), "model", node=node)
    assert any(text.endswith("waiting for steady activity again") for text in warnings(outcome))
    assert outcome.decided.confirmed


@pytest.mark.parametrize(("iterations", "tried"), [(90, False), (4000, True)])
def test_the_length_of_the_job_decides_whether_it_is_tuned(iterations: int, tried: bool) -> None:
    job = SimulatedJob(profile=RESNET50, iterations=iterations)
    outcome = tune(job, TuneConfig(metric=EDS, iterations=iterations), "golden", end_s=300.0)
    assert bool(outcome.trials) is tried
    said: Sequence[str] = [text for text in warnings(outcome) if "would hardly pay back" in text]
    assert bool(said) is not tried


def test_a_trial_that_has_used_up_the_slowdown_allowed_so_far_is_ended() -> None:
    job = SimulatedJob(profile=RESNET50, jitter=0.2)  # so much that its slowdown is not sure for long
    slow = TuneConfig(metric=Metric(name="energy", max_slowdown=0.05), prune_sigmas=math.inf)
    outcome = tune(job, slow, "fixed", options=[("cap", "140")], stop_when_held=True)
    (ended,) = outcome.trials
    assert ended.trial.reason == "the slowdown that --max-slowdown allows so far is used up"
    assert ended.trial.state is TrialState.PRUNED


def test_after_three_baselines_in_a_row_that_cannot_be_measured_the_job_is_left_alone() -> None:
    gaps = tuple(Spell(start_s=start_s, end_s=start_s + 0.3) for start_s in np.arange(3.0, 300.0, 5.4))
    config = TuneConfig(metric=replace(EDS, max_slowdown=0.5), min_batches=12)  # a limit that needs the baseline first
    job = SimulatedJob(profile=RESNET50, iterations=600, jitter=0.0)
    outcome = tune(job, config, "golden", node=SimulatedNode(hot=gaps), end_s=120.0)
    assert states(outcome).count(State.BASELINE) == 3
    assert states(outcome).count(State.SEARCHING) == 0
    last = warnings(outcome)[-1]
    broken = "4 windows in a row: the device slowed itself down (thermal or hardware)"
    assert last == f"the baseline could not be measured: {broken}"
    done_s = next(event.t_s for event in outcome.log.events if getattr(event, "state", None) is State.DONE)
    assert done_s < outcome.wall_s - 1
