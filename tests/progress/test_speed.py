"""What the SM clock tells of the time per iteration: a range, which holds the truth however much of the job waits for
something else than the clock."""

from collections.abc import Iterator

import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.devices.model import profile_names, profiles
from autocap.devices.model.profiles import Profile
from autocap.devices.simulated.job import Episode, SimulatedJob
from autocap.measurement.batches import pool
from autocap.measurement.prober import beside
from autocap.metrics import Metric, slowdown
from autocap.progress import SpeedProgress
from autocap.records import Measurement, Reading, Sample, Trial, TrialState
from autocap.strategies.findings import find_out
from bench.simulation.jobs import Outcome, true_costs, tune
from tests.doubles.feeds import measurement
from tests.doubles.outcomes import announced

HOST_SHARES = (0.0, 0.1, 0.2, 0.27, 0.3, 0.4)  # of the time at the limit found on arrival
ENERGY = Metric(name="energy")
RESNET50 = profiles.load("quadro-rtx-6000/resnet50")


def at_clock(t_s: float, clock_hz: float, *, cap_w: float = 300.0) -> Sample:
    return Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=200.0, requested_w=cap_w, sm_clock_hz=clock_hz),))


def counted(progress: SpeedProgress, start_s: float, clock_hz: float, cap_w: float) -> float:
    """Seconds per iteration at a clock."""
    found = []
    for i in range(101):
        found += progress.marks(at_clock(start_s + 0.1 * i, clock_hz, cap_w=cap_w))
    return (found[-1].t_s - found[0].t_s) / (found[-1].iterations - found[0].iterations)


def seen(before_hz: float, now_hz: float) -> Measurement:
    """A cap at which the clock is another one."""
    progress = SpeedProgress()
    base = measurement(period_s=counted(progress, 0.0, before_hz, 300.0), cap_w=300.0, period_error=0.0)
    found = measurement(period_s=counted(progress, 20.0, now_hz, 200.0), cap_w=200.0, period_error=0.0)
    return beside(base, found)


def reported_hz(full_hz: float, slowed: float) -> float:
    """As cards report it: in steps of 15 MHz."""
    return 15e6 * int(full_hz / slowed / 15e6 + 1e-9)


def cases() -> Iterator[tuple[Profile, float, float]]:
    """Every profile, some of its caps, and the highest clock of some cards."""
    for name in profile_names():
        profile = profiles.load(name)
        low, high = profile.cap_range.min_w, profile.cap_range.default_w
        for step in range(8):
            for full_hz in (1.23e9, 1.77e9, 1.987e9):
                yield profile, low + step * (high - low) / 8, full_hz


def test_two_standard_errors_reach_the_truth_on_all_seed_profiles_whatever_the_host_takes() -> None:
    held = total = 0
    for profile, cap_w, full_hz in cases():
        of_clock = profile.slowdown(cap_w)
        found = seen(reported_hz(full_hz, 1.0), reported_hz(full_hz, of_clock))
        for host in HOST_SHARES:
            true = host + (1 - host) * of_clock
            total += 1
            held += abs(found.period_s / 1.0 - true) <= 2 * found.period_s * found.period_rel_stderr
    assert total > 1500
    assert held / total >= 0.95


def test_a_clock_that_falls_by_a_fifth_says_anything_from_nothing_to_a_quarter() -> None:
    found = seen(1.5e9, 1.2e9)
    assert found.period_s == pytest.approx(1.125, rel=0.002)
    assert found.period_s * (1 + 2 * found.period_rel_stderr) == pytest.approx(1.25, abs=0.005)
    assert found.period_s * (1 - 2 * found.period_rel_stderr) == pytest.approx(1.0, abs=0.005)
    assert found.time_energy_corr > 0.9


def test_a_card_that_idles_before_the_job_computes_does_not_make_caps_look_harmless() -> None:
    progress = SpeedProgress()
    counted(progress, 0.0, 0.21e9, 300.0)
    for i in range(300):
        progress.marks(at_clock(20.0 + 0.1 * i, 1.5e9))
    base = counted(progress, 60.0, 1.5e9, 300.0)
    assert counted(progress, 80.0, 1.2e9, 200.0) / base == pytest.approx(1.125, rel=0.005)


def test_windows_taken_together_share_the_error_of_the_clock() -> None:
    window = seen(1.5e9, 1.2e9)
    assert pool([window] * 9).period_rel_stderr == pytest.approx(window.period_rel_stderr, rel=0.01)
    assert pool([window] * 9).proxy_rel_stderr == window.proxy_rel_stderr


def test_nor_do_the_trials_of_a_strategy_lessen_it() -> None:
    base, window = measurement(period_s=1.0, cap_w=300.0, period_error=0.0), seen(1.5e9, 1.2e9)
    cost = ENERGY.cost(window, base)
    trial = Trial(
        setting=200.0, state=TrialState.COMPLETE, cost=cost.value, cost_stderr=cost.stderr, measurement=window
    )
    found = find_out([trial] * 9, Metric(name="energy", max_slowdown=0.2), base)
    assert found.stderr >= cost.shared
    assert not found.allowed
    assert not found.forbidden


def with_host(profile: Profile, share: float) -> SimulatedJob:
    """A job that waits for its host for that share of an iteration."""
    gap_s = profile.default_time_s * share / (1 - share)
    return SimulatedJob(profile=profile, jitter=0.01, episodes=(Episode(every=1, duration_s=gap_s, power=0.5),))


def truth(profile: Profile, share: float, cap_w: float) -> float:
    return share + (1 - share) * profile.slowdown(cap_w)


def windows(outcome: Outcome) -> list[Measurement]:
    return [event.trial.measurement for event in outcome.trials if event.trial.measurement is not None]


@pytest.mark.parametrize("share", [0.0, 0.27])
def test_in_whole_jobs_the_ranges_hold_and_a_kept_cap_is_within_the_limit_on_slowdown(share: float) -> None:
    metric = Metric(name="energy", max_slowdown=0.10)
    config = TuneConfig(metric=metric, caps_w=(180.0, 220.0))
    outcome = tune(with_host(RESNET50, share), config, "linear", progress=SpeedProgress(), stop_when_held=True)
    base = announced(outcome, events.BaselineMeasured)[0].measurement
    assert base.is_relative
    for found in windows(outcome):
        ratio, stderr = slowdown(found, base)
        assert abs(ratio - truth(RESNET50, share, found.setting[0])) <= 2 * stderr
    kept, beside_it = outcome.decided.measurement, outcome.decided.baseline
    ratio, stderr = slowdown(kept, beside_it)
    assert ratio + 2 * stderr <= 1.10
    assert truth(RESNET50, share, outcome.final_cap_w) <= 1.10


def test_where_the_cap_that_promises_most_is_too_uncertain_one_that_is_surely_better_is_kept() -> None:
    profile, metric = profiles.load("quadro-rtx-6000/inception4"), Metric(name="eds", k=2.0)
    config = TuneConfig(metric=metric, caps_w=(130.0, 180.0, 220.0))
    outcome = tune(with_host(profile, 0.0), config, "linear", progress=SpeedProgress(), stop_when_held=True)
    cost = {event.trial.setting: event.trial.cost or 0.0 for event in outcome.trials}
    error = {event.trial.setting: event.trial.cost_stderr or 0.0 for event in outcome.trials}
    assert cost[130.0] < cost[180.0]
    assert cost[130.0] + 2 * error[130.0] > 1 > cost[180.0] + 2 * error[180.0]
    assert outcome.final_cap_w == 180.0
    assert true_costs(profile, metric, [180.0], 260.0)[0] < 1
