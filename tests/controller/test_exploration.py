"""From a baseline to a decision: drift, changes and refusals on the way, in whole simulated jobs.

What windows in turn at a cap and at the baseline say of the cap.

What was decided is decided again once what it rests on is known better, and one look that is off costs itself.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.comparison import Comparison, Judgement, Ruling, between, judge
from autocap.controller.search import Search
from autocap.devices.model import profiles
from autocap.events import State
from autocap.measurement.probe import ProbeRules
from autocap.metrics import Metric
from autocap.records import Measurement, Trial, TrialState
from autocap.strategies.base import StrategyLike
from autocap.strategies.grid import CapGrid
from autocap.testing.simulated.job import SimulatedJob, WorkloadChange
from autocap.testing.simulated.node import SimulatedNode, Spell
from bench.simulation.jobs import Outcome, exact, regret_pct, tune
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_baseline_that_could_not_be_measured_is_tried_again() -> None:
    node = SimulatedNode(silent=(Spell(start_s=14.0, end_s=90.0),))
    job = SimulatedJob(profile=RESNET50, iterations=1200, jitter=0.03)
    outcome = tune(job, TuneConfig(metric=replace(EDS, max_slowdown=0.5)), "model", node=node)
    assert any(text.endswith("waiting for steady activity again") for text in warnings(outcome))
    assert outcome.decided.confirmed


@pytest.mark.slow
@pytest.mark.parametrize(("iterations", "tried"), [(90, False), (4000, True)])
def test_the_length_of_the_job_decides_whether_it_is_tuned(iterations: int, tried: bool) -> None:
    job = SimulatedJob(profile=RESNET50, iterations=iterations)
    outcome = tune(job, TuneConfig(metric=EDS, iterations=iterations), "golden", end_s=300.0)
    assert bool(outcome.trials) is tried
    said: Sequence[str] = [text for text in warnings(outcome) if "would hardly pay back" in text]
    assert bool(said) is not tried


@pytest.mark.slow
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


BASELINE = measurement(energy_j=100.0, period_s=0.5)


def judgements(
    energy_j: float, period_s: float = 0.5, *, error: float = 0.005, metric: Metric = ENERGY
) -> list[Judgement]:
    """The judgement on a cap that costs so much, as many times as windows were needed for it."""
    comparison = Comparison((200.0,), (260.0,))
    cap = measurement(energy_j, period_s, cap_w=200.0, energy_error=error, period_error=error)
    for windows in range(1, 30):
        comparison.add(BASELINE if comparison.inner_next else cap)
        judgement = judge(comparison, metric)
        if judgement is not None:
            return [judgement] * windows
    raise AssertionError("there is no judgement")


def test_the_baseline_lies_between_two_windows_of_the_cap() -> None:
    comparison = Comparison((200.0,), (260.0,))
    turns = []
    for _ in range(5):
        turns.append(comparison.next_w)
        comparison.add(BASELINE)
    assert turns == [(200.0,), (260.0,), (200.0,), (260.0,), (200.0,)]


def test_a_cap_that_is_surely_better_is_confirmed_after_the_first_round() -> None:
    found = judgements(90.0)
    assert (found[0].ruling, len(found)) == (Ruling.BETTER, 3)
    assert found[0].reason.startswith("energy 0.9000 ± 0.00")
    assert found[0].measurement.iterations == 200


@pytest.mark.parametrize(
    ("energy_j", "rounds", "said"),
    [
        (99.8, 7, "not better beyond its error: energy 0.9980"),  # twelve rounds would not show it either
        (110.0, 3, "worse than the baseline: energy 1.1000"),
    ],
)
def test_a_cap_that_is_worse_is_refused_after_the_first_round_and_a_doubtful_one_after_more(
    energy_j, rounds, said
) -> None:
    found = judgements(energy_j)
    assert (found[0].ruling, len(found)) == (Ruling.NOT_BETTER, rounds)
    assert found[0].reason.startswith(said)


def test_a_cap_that_more_rounds_would_show_to_be_better_is_measured_until_they_do() -> None:
    """They lose next to nothing: each second of them is spent at the cap, or as without one."""
    found = judgements(99.5)
    assert found[0].ruling is Ruling.BETTER
    assert 7 < len(found) <= 25


@pytest.mark.parametrize(
    ("period_s", "windows", "reason"),
    [
        (0.55, 3, "too slow: +10.00 ± 0.65 % time, 5 % allowed"),
        (0.524, 7, "not surely within the slowdown limit: +4.80 ± 0.35 % time, 5 % allowed"),
    ],
)
def test_a_cap_that_is_not_surely_fast_enough_is_refused_whatever_it_saves(period_s, windows, reason) -> None:
    found = judgements(70.0, period_s, metric=Metric(name="energy", max_slowdown=0.05))
    assert (found[0].ruling, len(found)) == (Ruling.TOO_SLOW, windows)
    assert found[0].reason == reason


def test_a_window_of_the_baseline_is_as_exact_as_the_verdict_needs() -> None:
    usual = ProbeRules(settle_s=1.0, target_stderr=0.005, limit_s=60.0, min_batches=8)
    comparison = Comparison((200.0,), (260.0,), measurement(91.0, cap_w=200.0))
    rules = between(usual, comparison, BASELINE, ENERGY)
    assert rules.min_batches == 4
    assert rules.target(1.4) == 0.005
    assert rules.target(1.5) == pytest.approx(0.03)  # a third of the 9 % that the cap saves
    much = Comparison((200.0,), (260.0,), measurement(70.0, cap_w=200.0))
    assert between(usual, much, BASELINE, ENERGY).target(3.0) == 0.04
    assert between(usual, Comparison((200.0,), (260.0,), BASELINE), BASELINE, ENERGY).target(3.0) == 0.005
    limited = Metric(name="energy", max_slowdown=0.05)
    assert between(usual, comparison, BASELINE, limited).target(3.0) == 0.005


@pytest.mark.parametrize(("period_error", "fewest"), [(0.0001, 2), (0.0011, 3), (0.01, 4)])
def test_a_window_of_the_baseline_has_as_few_iterations_as_their_scatter_allows(period_error, fewest) -> None:
    usual = ProbeRules(settle_s=1.0, target_stderr=0.005, limit_s=60.0, min_batches=8)
    cap = measurement(70.0, cap_w=200.0, period_error=period_error)
    assert cap.iterations == 100  # so that they scatter by ten times that
    rules = between(usual, Comparison((200.0,), (260.0,), cap), BASELINE, ENERGY)
    assert rules.min_batches == fewest
    limited = Metric(name="energy", max_slowdown=0.05)
    assert between(usual, Comparison((200.0,), (260.0,), cap), BASELINE, limited).min_batches == 4


def test_no_cap_is_confirmed_whose_cost_in_time_is_not_known_to_within_ten_points() -> None:
    comparison = Comparison((200.0,), (260.0,))
    cap = measurement(60.0, 0.5, cap_w=200.0, energy_error=0.01, period_error=0.2)
    found = None
    while found is None:
        comparison.add(BASELINE if comparison.inner_next else cap)
        found = judge(comparison, ENERGY)
    assert (found.ruling, comparison.rounds) == (Ruling.NOT_BETTER, 6), "it is measured for longer before"
    unknown = "what it costs in time is not known to within 10 points: +0.00 ± 9.46 % time"
    assert found.reason == f"200 W (energy -40 ± 0 %) is not confirmed, as {unknown}"
    exact = judgements(60.0, error=0.01)
    assert (exact[0].ruling, len(exact)) == (Ruling.BETTER, 3)


def test_a_cap_that_seems_faster_than_no_cap_is_measured_on_and_never_said_to_save_what_others_took() -> None:
    """Other work may fall into each window of the baseline, and then the cap seems to save most of its time."""
    found = judgements(80.0, 0.3)
    assert (found[0].ruling, len(found)) == (Ruling.NOT_BETTER, 25)
    assert found[0].reason == (
        "not better for sure: an iteration at 200 W takes 0.60 times as long as at 260 W, which no card does: "
        "other work has held the baseline up"
    )
    assert judgements(80.0, 0.49)[0].ruling is Ruling.BETTER, "by its error"


def test_windows_that_disagree_widen_the_judgement() -> None:
    comparison = Comparison((200.0,), (260.0,))
    for window in (measurement(63.5, 0.5, cap_w=200.0), BASELINE, measurement(85.5, 0.5, cap_w=200.0)):
        comparison.add(window)
    assert ENERGY.versus(comparison.outer, comparison.inner).stderr == pytest.approx(0.11, rel=0.02)


class Second:
    """Tries 180 W by a rough baseline, and 130 W only by one that is known well, which it is then told anew."""

    def __init__(self, *, baseline: Measurement, **_: Any) -> None:
        self._caps_w = [180.0, 130.0] if baseline.period_rel_stderr < 0.02 else [180.0]
        self._costs: dict[float, float] = {}

    def ask(self) -> float | None:
        return next((cap_w for cap_w in self._caps_w if cap_w not in self._costs), None)

    def tell(self, trial: Trial) -> None:
        if trial.cost is not None:
            self._costs[trial.setting] = trial.cost

    def recommend(self) -> float | None:
        return min(self._costs, key=lambda cap_w: self._costs[cap_w], default=None)


def test_a_search_that_a_rough_baseline_had_ended_goes_on_once_it_is_known() -> None:
    job = SimulatedJob(profile=RESNET50, jitter=0.01)
    outcome = tune(job, TuneConfig(metric=ENERGY), f"{__name__}:Second", stop_when_held=True)
    entered = states(outcome)
    searched = entered[entered.index(State.SEARCHING) :]
    assert searched[:4] == [State.SEARCHING, State.CONFIRMING, State.SEARCHING, State.CONFIRMING]
    assert (outcome.decided.setting, outcome.decided.confirmed) == (130.0, True)
    assert [one.trial.setting for one in outcome.trials] == [180.0, 180.0, 130.0], "what the confirmation showed counts"


@pytest.mark.slow
def test_a_baseline_that_was_off_once_does_not_begin_all_anew() -> None:
    """Other work holds the job up while the baseline is measured again, and is gone when it is looked at once more."""
    burst = WorkloadChange(at=336, until=356, time=1.5, power=0.8)
    job = SimulatedJob(profile=RESNET50, jitter=0.01, bursts=(burst,))
    patient = [("patience", "0")]
    outcome = tune(job, TuneConfig(metric=ENERGY), "linear", options=patient, seed=1, end_s=600.0, stop_when_held=True)
    assert not [text for text in warnings(outcome) if text.startswith("tuning anew")]
    assert regret_pct(RESNET50, ENERGY, outcome.grid, outcome.final_cap_w, 260.0) < 0.5


@pytest.mark.slow
def test_a_workload_that_did_change_is_searched_anew_after_a_second_look() -> None:
    change = WorkloadChange(at=336, time=1.5, power=0.8)
    job = SimulatedJob(profile=RESNET50, jitter=0.01, change=change)
    patient = [("patience", "0")]
    outcome = tune(job, TuneConfig(metric=ENERGY), "linear", options=patient, seed=1, end_s=420.0, stop_when_held=True)
    assert [text for text in warnings(outcome) if text.startswith("tuning anew: at the limit found on arrival")]


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["linear", "golden"])
def test_no_trial_fails_for_want_of_savings(strategy: str) -> None:
    """The job has lost time while it warmed up, and its steps scatter by a fifth."""
    job = SimulatedJob(profile=RESNET50, jitter=0.2, iterations=900, warm_up_iterations=30, warm_up_factor=2.0)
    limited = TuneConfig(metric=Metric(name="energy", max_slowdown=0.05))
    outcome = tune(job, limited, strategy, end_s=400.0, stop_when_held=True)
    assert not [one for one in outcome.trials if one.trial.state is TrialState.FAILED]
    assert not [text for text in warnings(outcome) if "the search ends early" in text]
