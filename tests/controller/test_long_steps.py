"""Iterations that last from seconds to a minute: a trial always fits what it needs, and the search says how long.

A pause of more than 5 s in a search, in virtual time: no cap that is not kept yet slows down what goes on there.
"""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from autocap import events
from autocap.config import PERIOD_WITHIN_SECONDS, TuneConfig
from autocap.controller.context import SetCaps, StepContext
from autocap.devices.model import profiles
from autocap.devices.model.sensor import SensorModel
from autocap.events import State
from autocap.metrics import Metric
from autocap.progress import BestProgress, SpeedProgress, StepProgress
from autocap.progress.period.progress import PeriodProgress
from autocap.records import TrialState
from autocap.testing.simulated.job import Episode, SimulatedJob
from autocap.testing.simulated.node import SimulatedNode
from bench.simulation.jobs import Outcome, regret_pct, tune
from tests.doubles.logs import announced, caps_set, held_at, states, warnings

RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
EDS = Metric(name="eds", k=2.0)
SLOW_NODE = SimulatedNode(sensor=SensorModel(update_s=2.0, window_s=0.5))  # few samples, so that hours pass quickly


def job(step_s: float, **settings: object) -> SimulatedJob:
    profile = replace(RESNET50, default_time_s=step_s)
    return replace(SimulatedJob(profile=profile), **settings)  # type: ignore[arg-type]


def tuned(of: SimulatedJob, config: TuneConfig, **settings: object) -> Outcome:
    return tune(of, config, "model", node=SLOW_NODE, stop_when_held=True, **settings)  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.parametrize("step_s", [7.0, 60.0])
def test_a_job_of_long_steps_is_tuned_like_any_other(step_s: float) -> None:
    outcome = tuned(job(step_s), TuneConfig(metric=EDS))
    assert states(outcome)[:4] == [State.WAITING, State.BASELINE, State.SEARCHING, State.CONFIRMING]
    assert outcome.decided.confirmed
    assert regret_pct(RESNET50, EDS, outcome.grid, outcome.final_cap_w, 260.0) < 1.0
    assert all(event.trial.state is not TrialState.FAILED for event in outcome.trials)
    assert outcome.wall_s < 13 * 11 * step_s + 600


@pytest.mark.slow
def test_a_search_that_takes_long_says_so_once_before_it_begins() -> None:
    outcome = tuned(job(20.0, jitter=0.0), TuneConfig(metric=EDS))
    said = (
        "8 iterations of 20 s do not fit into the 60 s of a trial, so a trial takes about 3 min and the search up to "
    )
    assert warnings(outcome) == [said + "about 44 min"]
    log = outcome.log.events
    kinds = [type(one) for one in log]
    assert kinds.index(events.Warned) < kinds.index(events.TrialStarted)


@pytest.mark.slow
def test_what_a_cap_per_gpu_takes_is_said_with_it_where_there_are_several() -> None:
    config, several = TuneConfig(metric=EDS, per_gpu=True), replace(SLOW_NODE, gpus=2)
    for node, more in ((several, "; a cap per GPU takes about 97 min more, 6.3 h at most"), (SLOW_NODE, "")):
        outcome = tune(job(20.0, jitter=0.0), config, "model", node=node, end_s=400.0)
        (said,) = warnings(outcome)
        assert said.endswith(f"the search up to about 44 min{more}")


@pytest.mark.parametrize("step_s", [0.25, 4.0])
def test_a_search_of_usual_length_says_nothing(step_s: float) -> None:
    assert warnings(tuned(job(step_s), TuneConfig(metric=EDS))) == []


def test_a_time_limit_that_is_too_short_for_eight_iterations_is_stretched_and_that_is_said_once() -> None:
    outcome = tuned(job(2.0), TuneConfig(metric=EDS, trial_s=6.0))
    assert outcome.decided.confirmed
    assert len(warnings(outcome)) == 1
    assert "do not fit into the 6 s of a trial, so a trial takes about 21 s" in warnings(outcome)[0]
    reasons = {event.trial.reason for event in outcome.trials if event.trial.state is TrialState.COMPLETE}
    assert reasons <= {None, "time limit of 6 s, stretched to 8 iterations"}


def test_a_search_that_would_outlast_the_job_is_not_begun_and_says_why() -> None:
    outcome = tuned(job(30.0, jitter=0.0, iterations=90), TuneConfig(metric=EDS, iterations=90))
    assert states(outcome)[-2:] == [State.BASELINE, State.DONE]
    assert caps_set(outcome) == []
    assert warnings(outcome) == [
        "about 2610 s of the job are left and a search takes about 3913 s, so it would hardly pay back; nothing is "
        "tuned (leave out --iterations to search all the same)"
    ]


@pytest.mark.slow
def test_a_long_job_is_searched_where_its_length_is_known() -> None:
    outcome = tuned(job(8.0, iterations=200), TuneConfig(metric=EDS, iterations=200))
    assert outcome.decided.confirmed


@pytest.mark.slow
def test_no_more_is_waited_for_steadiness_than_a_job_of_such_steps_needs() -> None:
    stalling = job(30.0, stall_chance=1.0, stall_s=30.0)
    outcome = tune(stalling, TuneConfig(metric=EDS), "model", node=SLOW_NODE, end_s=1e3)
    entered = [event.t_s for event in announced(outcome, events.StateEntered)]
    ends_s = outcome.device.true_ends_s()
    assert 8 * 30.0 < entered[1] < ends_s[0] + 16 * float(np.diff(ends_s).mean())  # as stalls make them


@pytest.mark.slow
def test_a_first_step_that_takes_longer_than_the_wait_is_waited_for_while_the_device_computes() -> None:
    slow_start = job(10.0, start_s=40.0, warm_up_iterations=4, warm_up_factor=10.0)
    outcome = tuned(slow_start, TuneConfig(metric=EDS, wait_s=60.0))
    assert outcome.device.true_ends_s()[0] > 120.0
    assert outcome.decided.confirmed


@pytest.mark.slow
def test_a_job_that_computes_and_counts_nothing_is_left_alone_at_last() -> None:
    outcome = tuned(job(1000.0), TuneConfig(metric=EDS, wait_s=60.0))
    assert states(outcome) == [State.WAITING, State.DONE]
    assert outcome.wall_s == pytest.approx(300.0, abs=2.0)
    said = "no optimiser step was seen within 300 s, so nothing is tuned; pass a larger"
    assert warnings(outcome)[0].startswith(said)


@pytest.mark.slow
def test_a_long_step_is_no_pause_and_a_validation_pass_of_ten_such_is() -> None:
    episodes = (Episode(every=40, duration_s=150.0, power=0.3),)
    outcome = tuned(job(15.0, episodes=episodes), TuneConfig(metric=EDS))
    assert outcome.decided.confirmed
    assert states(outcome).count(State.PAUSED) == (int(outcome.device.true_ends_s().size) - 1) // 40


BRISK_NODE = SimulatedNode(sensor=SensorModel(update_s=0.25, window_s=0.1))


@pytest.mark.slow
def test_attach_waits_for_a_long_cycle_that_shows_and_says_how_long() -> None:
    progress = BestProgress(PeriodProgress(BRISK_NODE.sensor.info()), SpeedProgress(), PERIOD_WITHIN_SECONDS)  # type: ignore[union-attr]
    config = TuneConfig(metric=EDS, wait_s=60.0)
    outcome = tune(job(9.0, jitter=0.001), config, "model", node=BRISK_NODE, progress=progress, end_s=450.0)
    assert warnings(outcome)[0] == (
        "a period of about 9 s shows in the power; 12 cycles are needed to count by it, about 55 s more, which are "
        "waited for (600 s at most)"
    )
    found = announced(outcome, events.ProgressFound)
    assert [(event.kind, event.confidence) for event in found] == [("period", "high")]
    assert found[0].t_s < 13 * 9.0
    measured = [event.measurement for event in announced(outcome, events.BaselineMeasured)]
    assert measured[0].period_s == pytest.approx(9.0, rel=0.01)
    assert outcome.trials
    assert all(event.trial.state is not TrialState.FAILED for event in outcome.trials)


class Periodic(SpeedProgress):
    """Stands in for a period inside the step: marks from the first second on."""

    kind, confidence = "period", "high"


@pytest.mark.slow
def test_steps_that_come_late_take_the_place_of_the_period_and_all_begins_anew() -> None:
    progress = BestProgress(StepProgress(), Periodic(), within_s=5.0, late=True)
    outcome = tuned(job(10.0), TuneConfig(metric=EDS), progress=progress)
    said = "iterations are counted by steps from now on, not by period any more, so all begins anew"
    assert warnings(outcome)[0] == said
    found = [event.kind for event in announced(outcome, events.ProgressFound)]
    assert found == ["period", "steps"]
    baselines = [event.measurement for event in announced(outcome, events.BaselineMeasured)]
    assert baselines[-1].period_s == pytest.approx(10.0, rel=0.05)
    assert outcome.decided.confirmed
    assert regret_pct(RESNET50, EDS, outcome.grid, outcome.final_cap_w, 260.0) < 1.0
    tally = announced(outcome, events.Tally)[-1]
    assert tally.iterations == pytest.approx(outcome.device.true_iterations(tally.since_s, tally.t_s), abs=2)


HALF_A_SECOND = profiles.load("quadro-rtx-6000/resnet50")  # an iteration takes 0.5 s at 260 W
ARRIVAL_W = 260.0


def with_pauses(*episodes: Episode, iterations: int = 300, config: TuneConfig | None = None) -> Outcome:
    job = SimulatedJob(profile=HALF_A_SECOND, iterations=iterations, episodes=episodes)
    return tune(job, config or TuneConfig(metric=EDS), "model")


def pause(iteration: int, duration_s: float = 30.0, power: float = 0.0) -> Episode:
    return Episode(every=iteration, duration_s=duration_s, power=power, once=True)


def pauses(outcome: Outcome) -> list[tuple[float, float]]:
    """When the job was shown as pausing, from and to, seconds."""
    shown = announced(outcome, events.StateEntered)
    return [(one.t_s, after.t_s) for one, after in pairwise(shown) if one.state is State.PAUSED]


def measured_pauses(outcome: Outcome, state: State) -> list[tuple[float, float]]:
    """Those that end in a state."""
    ends = {event.t_s for event in announced(outcome, events.StateEntered) if event.state is state}
    return [one for one in pauses(outcome) if one[1] in ends]


# Iterations 12 to 40 fall into the trials of this job, 48 and 57 into the windows that confirm the cap. What the job
# draws meanwhile: as little as an idle card, or as much as in a validation pass.
@pytest.mark.slow
@pytest.mark.parametrize(("iteration", "power"), [(12, 0.0), (22, 0.9), (40, 0.0), (48, 0.0), (57, 0.9)])
def test_a_pause_in_a_search_has_the_arrival_limit_within_six_seconds_and_the_cap_again_after_it(
    iteration: int, power: float
) -> None:
    outcome = with_pauses(pause(iteration, power=power))
    ((_, ended_s),) = pauses(outcome)
    began_s = ended_s - 30.5  # the iteration after it has ended as well
    on_trial_w = held_at(outcome, began_s)
    assert held_at(outcome, began_s + 6.0) == ARRIVAL_W
    assert held_at(outcome, ended_s - 0.1) == ARRIVAL_W
    assert held_at(outcome, ended_s + 0.2) == on_trial_w
    assert regret_pct(HALF_A_SECOND, EDS, outcome.grid, outcome.final_cap_w, ARRIVAL_W) < 1.0


@pytest.mark.slow
def test_a_short_pause_leaves_the_cap_on_trial_where_it_is() -> None:
    outcome = with_pauses(pause(25, duration_s=4.0))
    ((began_s, ended_s),) = pauses(outcome)
    assert held_at(outcome, began_s) == held_at(outcome, ended_s) < ARRIVAL_W
    assert not [event for event in announced(outcome, events.CapSet) if began_s <= event.t_s <= ended_s]


@pytest.mark.slow
def test_a_training_that_fails_without_a_word_leaves_no_cap_on_trial() -> None:
    job = SimulatedJob(profile=HALF_A_SECOND, episodes=(pause(25, duration_s=1e6),))
    outcome = tune(job, TuneConfig(metric=EDS), "model", end_s=900.0)
    assert held_at(outcome, 60.0) == held_at(outcome, 899.0) == ARRIVAL_W


@pytest.mark.slow
def test_a_held_cap_stays_in_a_pause() -> None:
    outcome = with_pauses(pause(200, duration_s=60.0), iterations=400)
    ((began_s, ended_s),) = measured_pauses(outcome, State.HOLDING)
    assert held_at(outcome, began_s + 30.0) == held_at(outcome, ended_s) == outcome.final_cap_w < ARRIVAL_W


@pytest.mark.slow
def test_a_held_cap_that_is_only_checked_stays_in_a_pause() -> None:
    plain = with_pauses(iterations=2500)
    checked_s = [event.t_s for event in announced(plain, events.StateEntered) if event.state is State.CONFIRMING][-1]
    assert checked_s > 900.0
    iteration = int(plain.device.true_iterations(0.0, checked_s)) + 4
    outcome = with_pauses(pause(iteration), iterations=2500)
    ((began_s, ended_s),) = measured_pauses(outcome, State.CONFIRMING)
    assert began_s > checked_s
    assert held_at(outcome, began_s + 20.0) == held_at(outcome, ended_s) == plain.final_cap_w < ARRIVAL_W


@pytest.mark.slow
def test_validation_passes_every_few_seconds_are_not_slowed_and_the_search_ends_all_the_same() -> None:
    outcome = with_pauses(Episode(every=20, duration_s=20.0, power=0.9), iterations=600)
    searched = measured_pauses(outcome, State.SEARCHING) + measured_pauses(outcome, State.CONFIRMING)
    assert searched
    assert all(held_at(outcome, ended_s - 10.0) == ARRIVAL_W for _, ended_s in searched)
    assert regret_pct(HALF_A_SECOND, EDS, outcome.grid, outcome.final_cap_w, ARRIVAL_W) < 1.0
    for ended in outcome.trials:
        found = ended.trial.measurement
        assert found.period_s == pytest.approx(HALF_A_SECOND.time_s(found.setting[0]), rel=0.01)
        assert found.energy_per_iteration_j == pytest.approx(HALF_A_SECOND.energy_j(found.setting[0]), rel=0.02)


def test_nothing_that_is_asked_for_meanwhile_sets_a_cap_before_the_job_trains_again() -> None:
    out = StepContext((260.0,))
    out.open(1.0)
    out.set((150.0,))
    out.step_aside()
    assert out.actions == [SetCaps(settings=(150.0,)), SetCaps(settings=(260.0,))]
    out.open(2.0)
    out.set_again()
    out.set((140.0,))
    assert out.actions == []
    assert (out.settings, out.decided_w, out.is_aside) == ((260.0,), (140.0,), True)
    out.come_back()
    assert out.actions == [SetCaps(settings=(140.0,))]
