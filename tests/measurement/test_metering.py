"""Validation passes, checkpoints, stalls and disturbed readings: cut out, announced, and no slowdown."""

from dataclasses import replace

import numpy as np
import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.events import State
from autocap.measurement.metering import IdleWatch, PauseWatch, far_longer
from autocap.metrics import Metric
from autocap.progress import Mark, Progress, StepProgress
from autocap.progress.period.progress import PeriodProgress
from autocap.records import NodeReading, Reading, Sample, SensorInfo, StepReading, TrialState
from autocap.testing.simulated.job import Episode, SimulatedJob
from autocap.testing.simulated.node import SimulatedNode, Spell
from bench.simulation.jobs import Outcome, regret_pct, tune
from tests.doubles.feeds import Meter, samples
from tests.doubles.logs import announced

RESNET50 = profiles.load("quadro-rtx-6000/resnet50")
EDS = Metric(name="eds", k=2.0)
VALIDATION = Episode(every=120, duration_s=20.0, power=0.7)
CHECKPOINT = Episode(every=170, duration_s=15.0)


def spans(outcome: Outcome) -> list[tuple[State, float, float]]:
    entered = announced(outcome, events.StateEntered)
    ends_s = [*(event.t_s for event in entered[1:]), outcome.wall_s]
    return [(event.state, event.t_s, end_s) for event, end_s in zip(entered, ends_s, strict=True)]


@pytest.mark.slow
def test_validation_and_checkpoints_are_announced_as_pauses_and_never_measured() -> None:
    job = SimulatedJob(profile=RESNET50, iterations=800, episodes=(VALIDATION, CHECKPOINT))
    outcome = tune(job, TuneConfig(metric=EDS), "golden", seed=3)
    paused = [end_s - start_s for state, start_s, end_s in spans(outcome) if state is State.PAUSED]
    assert len(paused) == 6 + 4
    assert sum(paused) == pytest.approx(6 * 20 + 4 * 15, rel=0.1)
    for event in outcome.trials:
        found = event.trial.measurement
        assert event.trial.state is not TrialState.FAILED, event.trial.reason
        assert abs(found.period_s / RESNET50.time_s(found.setting[0]) - 1) < 4 * found.period_rel_stderr + 0.003
    assert outcome.decided.confirmed
    assert regret_pct(RESNET50, EDS, outcome.grid, outcome.final_cap_w, 260.0) < 1.0


def test_pauses_are_left_out_of_what_the_run_came_to() -> None:
    job = SimulatedJob(profile=RESNET50, iterations=500, episodes=(VALIDATION,))
    outcome = tune(job, TuneConfig(metric=EDS, observe=True), "golden", seed=1)
    tally = announced(outcome, events.Tally)[-1]
    assert tally.paused_s == pytest.approx(4 * 20 + tally.paused_iterations * RESNET50.time_s(260.0), rel=0.02)
    per_iteration_s = (tally.counted_s - tally.paused_s) / (tally.iterations - tally.paused_iterations)
    assert per_iteration_s == pytest.approx(RESNET50.time_s(260.0), rel=0.005)


@pytest.mark.slow
def test_a_checkpoint_longer_than_the_limit_of_a_trial_does_not_end_it() -> None:
    job = SimulatedJob(profile=RESNET50, episodes=(Episode(every=60, duration_s=50.0, once=True),))
    outcome = tune(job, TuneConfig(metric=EDS, trial_s=30.0), "golden", stop_when_held=True)
    assert State.PAUSED in [state for state, _, _ in spans(outcome)]
    assert {event.trial.state for event in outcome.trials} <= {TrialState.COMPLETE, TrialState.PRUNED}


@pytest.mark.slow
@pytest.mark.parametrize("what", ["hot", "silent"])
def test_a_window_with_a_disturbance_is_taken_again(what: str) -> None:
    spell = (Spell(start_s=30.0, end_s=33.0),)
    node = SimulatedNode(hot=spell) if what == "hot" else SimulatedNode(silent=spell)
    outcome = tune(SimulatedJob(profile=RESNET50), TuneConfig(metric=EDS), "golden", node=node, stop_when_held=True)
    assert TrialState.FAILED not in {event.trial.state for event in outcome.trials}
    for event in outcome.trials:
        found = event.trial.measurement
        assert abs(found.period_s / RESNET50.time_s(found.setting[0]) - 1) < 4 * found.period_rel_stderr + 0.003
    assert outcome.decided.confirmed


def test_a_stretch_far_longer_than_the_rest_is_told_from_jitter_and_from_how_the_job_goes() -> None:
    seconds = np.exp(0.1 * np.random.default_rng(1).standard_normal(400))
    assert not far_longer(seconds, np.ones(400)).any()
    seconds[[50, 200]] = 2.5, 30.0
    assert list(np.flatnonzero(far_longer(seconds, np.ones(400)))) == [50, 200]
    many = np.tile([1.0, 1.0, 1.0, 3.0], 25)
    assert not far_longer(many, np.ones(100)).any()


def test_a_draw_that_stays_low_for_longer_than_an_iteration_is_a_pause_before_one_is_overdue() -> None:
    watch, progress = PauseWatch(), StepProgress()
    seen_s = None
    for tick in range(400):
        t_s = tick * 0.1
        trains = t_s < 30.0
        steps = StepReading(count=1 + int(min(t_s, 30.0)), t_s=float(int(min(t_s, 30.0))))  # one a second
        reading = Reading(t_s=t_s, power_w=200.0 if trains else 80.0)
        sample = Sample(t_s=t_s, readings=(reading,), steps=steps)
        watch.add(sample, progress.marks(sample), progress.kind, (260.0,))
        if watch.paused and seen_s is None:
            seen_s = t_s
    assert 31.2 <= seen_s < 31.5


def test_of_a_stretch_of_many_iterations_a_pause_makes_one_long() -> None:
    """Samples seconds apart: one stretch in four holds a validation pass, of which every fortieth iteration is one."""
    iterations = np.full(20, 10.0)
    seconds = np.where(np.arange(20) % 4 == 3, 25.0, 5.0) + 0.1 * (np.arange(20) % 3)
    assert far_longer(seconds, iterations).tolist() == (np.arange(20) % 4 == 3).tolist()
    assert not far_longer(seconds, np.ones(20)).any()  # that many single ones are how the job goes


@pytest.mark.parametrize(("period_s", "long_s"), [(0.1, 5.0), (1.0, 5.0), (8.0, 24.0)])
def test_a_long_pause_is_one_of_five_seconds_and_of_three_usual_iterations(period_s: float, long_s: float) -> None:
    watch = PauseWatch()
    for number in range(1, 12):
        watch.add(reading(number * period_s), (Mark(t_s=number * period_s, iterations=number),), "steps", (200.0,))
        assert not watch.is_long
    ended_s = 11 * period_s
    for since_s in (long_s - 0.1, long_s + 0.1):
        watch.add(reading(ended_s + since_s), (), "steps", (200.0,))
        assert watch.is_long is (since_s > long_s)
    watch.add(reading(ended_s + 30.0), (Mark(t_s=ended_s + 30.0, iterations=12.0),), "steps", (200.0,))
    assert not watch.is_long


def reading(t_s: float) -> Sample:
    return Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=200.0),))


def test_a_job_that_gets_slower_is_seen_in_the_second_of_two_stretches_of_many_iterations() -> None:
    watch, t_s, count, ended = PauseWatch(), 0.0, 0, []
    for stretch in range(24):
        slower = 1.8 if stretch >= 20 else 1.0
        t_s, count = t_s + 16 * 0.05 * slower, count + 16
        watch.add(reading(t_s), (Mark(t_s=t_s, iterations=float(count)),), "steps", (200.0,))
        ended.append(watch.ended)
    assert ended == [*20 * [False], True, *3 * [False]]


def estimate(progress: Progress, *, whole: bool = True) -> tuple[float | None, float]:
    """What is told at the first iteration, which ends at 20.5 s, and how long was looked at."""
    rng, watch, meter = np.random.default_rng(1), IdleWatch(), Meter()
    for sample in samples(seconds=20.0, power_w=50.0):
        node = NodeReading(t_s=sample.t_s, power_w=rng.uniform(400, 500), whole=whole)
        watch.add(meter.of(replace(sample, steps=None, node=node)), progress.kind)
    for sample in samples(start_s=20.0, seconds=2.0):
        sample = replace(sample, node=NodeReading(t_s=0.0, power_w=700.0, whole=whole))
        found = watch.add(meter.of(sample, progress.marks(sample)), progress.kind)
        if found is not None:
            return found, watch.seen_s
    return None, watch.seen_s


def test_it_is_the_second_percentile_of_what_was_seen_before_the_first_iteration() -> None:
    found, seen_s = estimate(StepProgress())
    assert found == pytest.approx(402.0, abs=6.0)
    assert seen_s == pytest.approx(20.5, abs=0.2)


def test_the_gpus_count_where_the_source_is_of_the_rest_alone() -> None:
    whole, _ = estimate(StepProgress())
    beside, _ = estimate(StepProgress(), whole=False)
    assert beside == pytest.approx(whole + 50.0, abs=5.0)


def test_nothing_is_known_where_iterations_are_recognised_only_afterwards() -> None:
    found, _ = estimate(PeriodProgress(SensorInfo(update_s=0.1, window_s=0.1, settle_s=1.0)))
    assert found is None


def test_nothing_is_known_of_a_job_that_was_never_seen_at_rest() -> None:
    watch, progress, meter = IdleWatch(), StepProgress(), Meter()
    for sample in samples(count_from=100):
        sample = replace(sample, node=NodeReading(t_s=0.0, power_w=700.0, whole=True))
        assert watch.add(meter.of(sample, progress.marks(sample)), progress.kind) is None


def test_a_meter_of_the_whole_machine_tells_of_it_before_the_gpus_are_known() -> None:
    watch, progress, meter = IdleWatch(), StepProgress(), Meter()
    for second in range(5):
        watch.before(float(second), NodeReading(t_s=float(second), power_w=300.0, whole=True))
        watch.before(float(second), NodeReading(t_s=float(second), power_w=90.0, whole=False))  # theirs is missing
    for sample in samples(start_s=5.0, seconds=1.0):
        sample = replace(sample, node=NodeReading(t_s=5.0, power_w=700.0, whole=True))
        found = watch.add(meter.of(sample, progress.marks(sample)), progress.kind)
        if found is not None:
            break
    assert found == 300.0
