"""--max-slowdown: a search spends only what the job has accrued of it."""

import math

import pytest

from autocap import events
from autocap.clock import VirtualClock
from autocap.config import TuneConfig
from autocap.controller.budget import SlowdownBudget
from autocap.devices.model import profiles
from autocap.measurement.totals import RunningTotals
from autocap.metrics import Metric
from autocap.records import Measurement
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import Episode, SimulatedJob
from bench.simulation.jobs import tune
from tests.doubles.feeds import measurement, trial_of

BASELINE = measurement(energy_j=100.0, period_s=0.5)  # 200 W at a limit of 260 W


def tally(iterations: float, seconds: float, paused_s: float = 0.0) -> events.Tally:
    return events.Tally(
        t_s=seconds, since_s=0.0, elapsed_s=seconds, energy_j=1.0, iterations=iterations, counted_s=seconds,
        counted_j=1.0, exploration_s=0.0, exploration_energy_j=0.0, exploration_iterations=0.0, paused_s=paused_s,
    )  # fmt: skip


class Totals(RunningTotals):
    """Those of a job that has come so far."""

    def __init__(self, now: events.Tally) -> None:
        super().__init__()
        self._at = now

    def tally(self, t_s: float) -> events.Tally:
        return self._at


def saved_s(
    max_slowdown: float | None, now: events.Tally, baseline: Measurement = BASELINE, since: events.Tally | None = None
) -> float:
    budget = SlowdownBudget(max_slowdown, Totals(now), baseline, settle_s=1.0, fewest=8, since=since)
    return budget.saved_s(now.t_s)


def test_under_a_ceiling_what_may_be_lost_is_of_the_time_at_the_limit_found() -> None:
    """So that points of a slowdown are those that are said: beside one of twice the time a second counts twice."""
    budget = SlowdownBudget(None, Totals(tally(100, 50.0)), BASELINE, settle_s=1.0, fewest=8)
    alike, twice = (budget.under_ceiling(measurement(energy_j=100.0, period_s=one), 50.0) for one in (0.5, 1.0))
    assert twice.saved_s(50.0) == pytest.approx(alike.saved_s(50.0) / 2)
    later = Totals(tally(220, 170.0))
    alike._totals = twice._totals = later
    assert alike.saved_s(170.0) - 0.6 == pytest.approx(120 * 0.5 * 1.01 - 120.0)
    assert twice.saved_s(170.0) - 0.3 == pytest.approx(120 * 1.0 * 1.005 - 120.0)
    for held_s in (60.0, 200.0, 1000.0):  # of a minute or more no more than two points
        assert 0.6 + 0.01 * held_s <= 0.02 * held_s


def test_every_iteration_earns_its_share_and_pauses_neither_earn_nor_cost() -> None:
    assert saved_s(0.05, tally(100, 50.0)) == pytest.approx(2.5)
    assert saved_s(0.05, tally(100, 55.0)) == pytest.approx(-2.5)
    assert saved_s(0.05, tally(100, 80.0, paused_s=30.0)) == pytest.approx(2.5)


def test_without_a_limit_any_time_may_be_lost() -> None:
    assert saved_s(None, tally(100, 80.0)) == math.inf


def test_after_a_change_of_the_workload_it_is_counted_anew() -> None:
    slower = measurement(period_s=1.0)
    before = tally(1000, 500.0)
    assert saved_s(0.05, tally(1000, 500.0), slower, since=before) == 0.0
    assert saved_s(0.05, tally(1100, 600.0), slower, since=before) == pytest.approx(5.0)


def test_the_expected_loss_grows_as_caps_fall_and_follows_what_was_measured() -> None:
    budget = SlowdownBudget(0.05, RunningTotals(), BASELINE, settle_s=1.0, fewest=8)
    assert budget.expected_loss_s(220.0) == 0.0  # above the draw
    assert budget.expected_loss_s(100.0) == pytest.approx((1.0 + 10 * 1.0) / 2)  # half the draw, so half the speed
    budget.learn(trial_of(measurement(period_s=0.6, cap_w=150.0)))
    assert budget.expected_loss_s(160.0) == pytest.approx((1.0 + 10 * 0.6) * (1 - 1 / 1.2))
    assert budget.expected_loss_s(100.0) == pytest.approx((1.0 + 10 * 0.9) * (1 - 1 / 1.8))


def test_a_trial_begins_only_with_what_it_will_cost_in_hand_with_its_error() -> None:
    rough = measurement(energy_j=100.0, period_s=0.5, period_error=0.1)
    budget, exact = (
        SlowdownBudget(0.05, Totals(tally(100, 52.5)), one, settle_s=1.0, fewest=8) for one in (rough, BASELINE)
    )
    assert budget.expected_loss_s(220.0) == 0.0
    assert budget.needed_s(220.0) > 1.0, "what a trial of 6 s may lose by chance"
    assert 0 < exact.needed_s(220.0) < budget.needed_s(220.0)
    assert budget.saved_s(0.0) == 0.0 < exact.needed_s(220.0)
    before = budget.needed_s(100.0)
    budget.cut(100.0)
    assert budget.needed_s(100.0) == 2 * before
    assert budget.needed_s(220.0) < before, "of that cap alone"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["quadro-rtx-6000/resnet50", "tesla-v100/vgg19"])
@pytest.mark.parametrize("iterations", [150, 400])
def test_a_whole_job_is_no_slower_than_allowed_wherever_it_ends(name: str, iterations: int) -> None:
    profile = profiles.load(name)
    job = SimulatedJob(profile=profile, iterations=iterations, episodes=(Episode(every=60, duration_s=10.0),))
    metric = Metric(name="energy", max_slowdown=0.05)
    outcome = tune(job, TuneConfig(metric=metric), "golden", seed=5)
    clock = VirtualClock()
    untouched = SimulatedDevice(clock, job, seed=5)
    while not untouched.job_ended:
        clock.wait_until(clock.now() + 0.05)
    assert outcome.wall_s <= 1.05 * clock.now() + 0.1
    assert len(outcome.trials) > 1
