"""What the SM clock tells of the time per iteration: a range, which holds the truth however much of the job waits for
something else than the clock.
"""

from collections.abc import Iterator

import pytest

from autocap import events
from autocap.config import TuneConfig
from autocap.devices.model import profile_names, profiles
from autocap.devices.model.profiles import Profile
from autocap.measurement.batches import pool
from autocap.measurement.prober import beside
from autocap.metrics import Metric, slowdown
from autocap.progress import BestProgress, Mark, SpeedProgress, StepProgress
from autocap.records import Measurement, Reading, Sample, Trial, TrialState
from autocap.strategies.findings import find_out
from autocap.testing.simulated.job import Episode, SimulatedJob
from bench.simulation.jobs import Outcome, true_costs, tune
from tests.doubles.feeds import measurement, samples
from tests.doubles.logs import announced

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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


def at_clocks(t_s: float, *clocks_hz: float | None) -> Sample:
    readings = tuple(Reading(t_s=t_s, power_w=200.0, sm_clock_hz=clock) for clock in clocks_hz)
    return Sample(t_s=t_s, readings=readings)


def test_steps_give_a_mark_for_each_new_count_at_the_time_of_the_step_or_of_the_sample_before_it() -> None:
    progress = StepProgress()
    assert progress.trouble == "no optimiser step was seen"
    marks = [mark for sample in samples(seconds=2.0, period_s=0.5) for mark in progress.marks(sample)]
    assert marks == [Mark(t_s=0.5 * i, iterations=float(i)) for i in range(1, 5)]
    assert progress.trouble is None
    (sample,) = samples(start_s=5.0, seconds=0.0, count_from=3)
    from_the_future = Sample(t_s=4.9, readings=sample.readings, steps=sample.steps)
    assert StepProgress().marks(from_the_future) == (Mark(t_s=4.9, iterations=3.0),)


def test_speed_follows_the_clock_of_the_slowest_device_and_is_of_low_confidence() -> None:
    progress = SpeedProgress()
    for i in range(101):
        progress.marks(at_clocks(0.1 * i, 1.5e9, 1.6e9))
    for i in range(101, 202):
        marks = progress.marks(at_clocks(0.1 * i, 0.75e9, 1.6e9))
        if marks:
            last = marks[-1]
    assert progress.confidence == "low"
    assert 15.6 < last.iterations <= 16.8  # 10 s at full clock, and 10 s at half, where an iteration takes 1 to 2 s


class Periodic(SpeedProgress):
    """Stands in for the period: marks from the first second on."""

    kind = "period"


def test_auto_takes_the_steps_when_they_come_in_time() -> None:
    progress = BestProgress(StepProgress(), Periodic(), within_s=20.0)
    for i in range(100):
        assert progress.marks(at_clocks(0.1 * i, 1e9)) == ()
    assert progress.trouble is not None
    marks = [mark for sample in samples(start_s=10.0, seconds=5.0) for mark in progress.marks(sample)]
    assert len(marks) == 10
    assert progress.kind == "steps"


def test_auto_steps_down_to_the_period_when_no_step_comes() -> None:
    progress = BestProgress(StepProgress(), Periodic(), within_s=20.0)
    first = next(i for i in range(1000) if progress.marks(at_clocks(0.1 * i, 1e9)))
    assert first >= 200
    assert progress.kind == "period"
    for sample in samples(start_s=100.0, seconds=5.0):
        progress.marks(sample)
    assert progress.kind == "period"


def test_auto_returns_to_the_steps_where_they_only_take_long() -> None:
    progress = BestProgress(StepProgress(), Periodic(), within_s=20.0, late=True)
    kinds = []
    for sample in samples(seconds=300.0, period_s=60.0):
        marks = progress.marks(at_clocks(sample.t_s, 1e9) if sample.steps is None else _clocked(sample))
        kinds += [progress.kind] * bool(marks)
    assert kinds[0] == "period"
    assert kinds[-3:] == ["steps"] * 3  # from the third on, once only
    assert kinds == sorted(kinds)


def test_auto_stays_with_the_period_where_something_stepped_once_on_the_way() -> None:
    progress = BestProgress(StepProgress(), Periodic(), within_s=20.0, late=True)
    for i in range(1000):
        (sample,) = samples(start_s=0.1 * i, seconds=0.0, count_from=int(i > 500))
        progress.marks(_clocked(sample))
    assert progress.kind == "period"


class LatePeriod(Periodic):
    """A period that is proven after some time: marks from then on. begins_s: when."""

    follows_power = True

    def __init__(self, begins_s: float) -> None:
        super().__init__()
        self._begins_s = begins_s

    def marks(self, sample: Sample) -> tuple[Mark, ...]:
        marks = super().marks(sample)
        return marks if sample.t_s >= self._begins_s else ()


def test_the_speed_gives_way_to_a_period_that_is_proven_later() -> None:
    progress = BestProgress(LatePeriod(150.0), SpeedProgress(), within_s=60.0, late=True)
    kinds = {}
    for i in range(2000):
        if progress.marks(at_clocks(0.1 * i, 1e9)):
            kinds.setdefault(progress.kind, 0.1 * i)
        assert progress.follows_power  # each reading of the power says something until then
    assert list(kinds) == ["speed", "period"]
    assert (kinds["speed"], kinds["period"]) == (pytest.approx(60.0, abs=1.0), pytest.approx(150.0, abs=1.0))


def test_a_period_is_listened_for_ten_minutes_and_the_power_no_longer_followed_then() -> None:
    progress = BestProgress(LatePeriod(700.0), SpeedProgress(), within_s=60.0, late=True)
    for i in range(1600):
        progress.marks(at_clocks(0.5 * i, 1e9))
    assert progress.kind == "speed"
    assert not progress.follows_power


def _clocked(sample: Sample) -> Sample:
    return Sample(t_s=sample.t_s, readings=at_clocks(sample.t_s, 1e9).readings, steps=sample.steps)
