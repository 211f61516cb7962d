"""A pause of more than 5 s in a search, in virtual time: no cap that is not kept yet slows down what goes on there."""

from itertools import pairwise

import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.controller.context import SetCaps, StepContext
from autocap.devices.model import profiles
from autocap.devices.simulated.job import Episode, SimulatedJob
from autocap.events import State
from autocap.metrics import Metric
from bench.simulation.jobs import Outcome, regret_pct, tune
from tests.doubles.outcomes import announced, held_at

RESNET50 = profiles.load("quadro-rtx-6000/resnet50")  # an iteration takes 0.5 s at 260 W
EDS = Metric(name="eds", k=2.0)
ARRIVAL_W = 260.0


def tuned(*episodes: Episode, iterations: int = 300, config: TuneConfig | None = None) -> Outcome:
    job = SimulatedJob(profile=RESNET50, iterations=iterations, episodes=episodes)
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


# Iterations 12 to 40 fall into the trials of this job, 52 and 64 into the windows that confirm the cap. What the job
# draws meanwhile: as little as an idle card, or as much as in a validation pass.
@pytest.mark.parametrize(("iteration", "power"), [(12, 0.0), (25, 0.9), (40, 0.0), (52, 0.0), (64, 0.9)])
def test_a_pause_in_a_search_has_the_arrival_limit_within_six_seconds_and_the_cap_again_after_it(
    iteration: int, power: float
) -> None:
    outcome = tuned(pause(iteration, power=power))
    ((_, ended_s),) = pauses(outcome)
    began_s = ended_s - 30.5  # the iteration after it has ended as well
    on_trial_w = held_at(outcome, began_s)
    assert held_at(outcome, began_s + 6.0) == ARRIVAL_W
    assert held_at(outcome, ended_s - 0.1) == ARRIVAL_W
    assert held_at(outcome, ended_s + 0.2) == on_trial_w
    assert regret_pct(RESNET50, EDS, outcome.grid, outcome.final_cap_w, ARRIVAL_W) < 1.0


def test_a_short_pause_leaves_the_cap_on_trial_where_it_is() -> None:
    outcome = tuned(pause(25, duration_s=4.0))
    ((began_s, ended_s),) = pauses(outcome)
    assert held_at(outcome, began_s) == held_at(outcome, ended_s) < ARRIVAL_W
    assert not [event for event in announced(outcome, events.CapSet) if began_s <= event.t_s <= ended_s]


def test_a_training_that_fails_without_a_word_leaves_no_cap_on_trial() -> None:
    job = SimulatedJob(profile=RESNET50, episodes=(pause(25, duration_s=1e6),))
    outcome = tune(job, TuneConfig(metric=EDS), "model", end_s=900.0)
    assert held_at(outcome, 60.0) == held_at(outcome, 899.0) == ARRIVAL_W


def test_a_held_cap_stays_in_a_pause() -> None:
    outcome = tuned(pause(200, duration_s=60.0), iterations=400)
    ((began_s, ended_s),) = measured_pauses(outcome, State.HOLDING)
    assert held_at(outcome, began_s + 30.0) == held_at(outcome, ended_s) == outcome.final_cap_w < ARRIVAL_W


def test_a_held_cap_that_is_only_checked_stays_in_a_pause() -> None:
    plain = tuned(iterations=2500)
    checked_s = [event.t_s for event in announced(plain, events.StateEntered) if event.state is State.CONFIRMING][-1]
    assert checked_s > 900.0
    iteration = int(plain.device.true_iterations(0.0, checked_s)) + 4
    outcome = tuned(pause(iteration), iterations=2500)
    ((began_s, ended_s),) = measured_pauses(outcome, State.CONFIRMING)
    assert began_s > checked_s
    assert held_at(outcome, began_s + 20.0) == held_at(outcome, ended_s) == plain.final_cap_w < ARRIVAL_W


def test_validation_passes_every_few_seconds_are_not_slowed_and_the_search_ends_all_the_same() -> None:
    outcome = tuned(Episode(every=20, duration_s=20.0, power=0.9), iterations=600)
    searched = measured_pauses(outcome, State.SEARCHING) + measured_pauses(outcome, State.CONFIRMING)
    assert searched
    assert all(held_at(outcome, ended_s - 10.0) == ARRIVAL_W for _, ended_s in searched)
    assert regret_pct(RESNET50, EDS, outcome.grid, outcome.final_cap_w, ARRIVAL_W) < 1.0
    for ended in outcome.trials:
        found = ended.trial.measurement
        assert found.period_s == pytest.approx(RESNET50.time_s(found.setting[0]), rel=0.01)
        assert found.energy_per_iteration_j == pytest.approx(RESNET50.energy_j(found.setting[0]), rel=0.02)


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
