"""Windows on a machine that others use as well: bursts inside of one, windows that lie in one, and slow wandering."""

import re
from dataclasses import replace

import numpy as np
import pytest

from autocap.config import TuneConfig
from autocap.controller.search_baseline import Revisits
from autocap.measurement.batches import compared, undisturbed
from autocap.measurement.metering import Metered
from autocap.measurement.probe import Probe, ProbeRules
from autocap.measurement.prober import Prober, Wander
from autocap.measurement.window import Window, slower
from autocap.metrics import Metric
from autocap.progress import Mark
from autocap.records import Cost, Measurement, Reading, Sample, SensorInfo
from tests.doubles.feeds import Meter, measurement

RNG = np.random.default_rng(38)


def jittered(count: int, jitter: float) -> np.ndarray:
    return np.exp(jitter * RNG.standard_normal(count))


@pytest.mark.parametrize("jitter", [0.01, 0.1, 0.4])
def test_scatter_alone_is_no_burst(jitter: float) -> None:
    assert sum(slower(jittered(48, jitter)).any() for _ in range(100)) <= 1


def test_bursts_are_found_as_long_as_most_of_what_is_usual_is_left() -> None:
    times = jittered(48, 0.05)
    times[5:12] *= 1.8
    times[30:40] *= 1.4
    found = slower(times)
    assert found[5:12].all()
    assert found[30:40].all()
    assert not found[[*range(5), *range(12, 30), *range(40, 48)]].any()


def test_long_and_short_iterations_in_turn_are_how_the_job_goes() -> None:
    assert not slower(np.tile([1.0, 1.6], 24) * jittered(48, 0.02)).any()
    assert not slower(jittered(15, 0.01) * np.repeat([1.0, 2.0, 1.0], 5)).any(), "too few to tell"


def at(meter: Meter, t_s: float, power_w: float, count: int) -> Metered:
    """The end of an iteration, and a reading."""
    sample = Sample(t_s=t_s, readings=(Reading(t_s=t_s, power_w=power_w),))
    return meter.of(sample, [Mark(t_s=t_s, iterations=count)])


def in_burst(until: int, factor: float) -> tuple[Measurement, float]:
    """A window of 120 iterations of 0.5 s at 200 W, the first of them in a burst."""
    window, meter, t_s = Window((200.0,)), Meter(), 0.0
    for count in range(121):
        window.add(at(meter, t_s, 200.0 / (factor if 0 < count <= until else 1.0), count))
        t_s += 0.5 * (factor if count < until else 1.0) * float(jittered(1, 0.01)[0])
    found = window.measure()
    assert found is not None
    return found, window.burst_s


def test_a_window_says_what_the_job_does_outside_of_a_burst_and_how_long_that_was() -> None:
    found, burst_s = in_burst(40, 1.8)
    assert found.period_s == pytest.approx(0.5, rel=0.01)
    assert found.energy_per_iteration_j == pytest.approx(100.0, rel=0.02)
    assert found.period_rel_stderr < 0.01
    assert burst_s == pytest.approx(36.0, rel=0.1)
    quiet, none_s = in_burst(0, 1.0)
    assert (quiet.iterations, none_s) == (120, 0.0)


def test_a_trial_says_how_much_of_it_was_left_out() -> None:
    rules = ProbeRules(settle_s=0.0, target_stderr=0.0, limit_s=60.0, min_batches=8)
    said = []
    for factor in (1.8, 1.0):
        probe = Probe((200.0,), rules, lambda found: Cost(value=1.0, stderr=0.1))
        meter, t_s, result = Meter(), 0.0, None
        for count in range(140):
            result = result or probe.add(at(meter, t_s, 200.0, count))
            t_s += 0.5 * (factor if count < 40 else 1.0) * float(jittered(1, 0.01)[0])
        said.append(result.reason)
    assert said[1] == "time limit of 60 s"
    left_out = r"time limit of 60 s; 5\d % of it left out, as other work made iterations longer"
    assert re.fullmatch(left_out, said[0] or "")


def near(period_s: float, cap_w: float = 200.0, error: float = 0.01) -> Measurement:
    return measurement(100.0 * period_s, period_s, cap_w=cap_w, energy_error=error, period_error=error, corr=0.0)


def test_a_window_in_a_burst_is_left_out_beside_two_that_agree() -> None:
    assert undisturbed([near(1.0), near(1.9), near(1.02)]) == [True, False, True]
    assert undisturbed([near(1.0), near(1.9)]) == [True, True], "which of two nobody can tell"
    assert undisturbed([near(1.0), near(1.02), near(1.03)]) == [True] * 3
    assert undisturbed([near(1.0), near(1.01), near(1.02), near(1.9), near(2.2)]) == [True, True, True, False, False]
    assert undisturbed([near(1.0), near(1.01), near(1.9), near(2.2)]) == [True] * 4, "nor of half of them"


def test_slow_wandering_is_not_in_a_ratio_of_neighbours() -> None:
    levels = (1.0, 1.1, 1.2, 1.3, 1.2, 1.1, 1.0)
    outer, inner = [near(1.2 * one) for one in levels[::2]], [near(one, 260.0) for one in levels[1::2]]
    cap, base = compared(outer, inner)
    ratio, error = cap.period_s / base.period_s, np.hypot(cap.period_rel_stderr, base.period_rel_stderr)
    assert abs(ratio / 1.2 - 1) < 2 * error
    assert error < 0.06
    wild = (1.0, 1.3, 1.0, 1.0, 1.3, 0.9, 1.2)
    outer, inner = [near(1.2 * one) for one in wild[::2]], [near(one, 260.0) for one in wild[1::2]]
    cap, base = compared(outer, inner)
    assert np.hypot(cap.period_rel_stderr, base.period_rel_stderr) > 0.08, "what scatters from window to window stays"


def test_what_windows_wander_by_is_an_error_of_each_and_a_burst_or_a_change_is_not() -> None:
    wander = Wander()
    for period_s in (1.0, 1.0, 2.0, 1.01, 1.0, 1.01):
        wander.add(near(period_s))
    assert wander.widened(near(1.0)).period_rel_stderr < 0.02
    assert wander.burst_s == near(2.0).duration_s
    wander = Wander()
    for period_s in np.exp(0.1 * np.random.default_rng(1).standard_normal(40)):
        wander.add(near(float(period_s)))
    wide = wander.widened(near(1.0))
    assert wide.period_rel_stderr == pytest.approx(0.1, rel=0.5)
    assert wide.time_energy_corr > 0.8, "other work makes iterations longer and dearer at once"
    assert wide.power_rel_stderr < 0.05


def test_one_repeat_says_nothing_of_wandering_yet() -> None:
    wander = Wander()
    for period_s in (1.0, 1.5):
        wander.add(near(period_s))
    assert wander.widened(near(1.0)) == near(1.0)


def test_windows_become_twice_as_long_as_the_bursts_that_were_seen_but_no_longer_than_half_of_what_they_may() -> None:
    prober = Prober(TuneConfig(metric=Metric(name="energy")), SensorInfo(update_s=0.1, window_s=0.1, settle_s=1.0))
    assert (prober.rules.least_s, prober.is_quiet) == (1.0, True)
    energy = Metric(name="energy")
    prober.start((200.0,), lambda found: energy.cost(found, near(0.2)), prober.rules)
    meter, t_s, count = Meter(), 0.0, 0
    result = None
    while result is None:
        slow = 1.7 if 20 <= count < 40 else 1.0
        result = prober.add(at(meter, t_s, 200.0 / slow, count))
        t_s, count = t_s + 0.2 * slow * float(jittered(1, 0.05)[0]), count + 1
    assert result.measurement.period_s == pytest.approx(0.2, rel=0.03)
    assert not prober.is_quiet
    assert prober.rules.least_s == pytest.approx(2 * 20 * 0.2 * 1.7, rel=0.3)


def test_a_baseline_that_moves_is_looked_at_before_each_trial_until_it_stays() -> None:
    revisits = Revisits(1.0, 0.0)
    revisits.made(10.0, moved=0.2)
    revisits.tried()
    assert revisits.due(11.0)
    for _ in range(2):
        revisits.made(11.0, moved=0.001)
    revisits.tried()
    assert not revisits.due(12.0)


def test_the_baseline_of_a_machine_that_may_wander_is_looked_at_before_each_of_the_first_trials() -> None:
    revisits = Revisits(1.0, 0.0)
    for _ in range(3):
        revisits.tried(may_wander=True)
        assert revisits.due(1.0)
        revisits.made(1.0, moved=0.03)
    revisits.tried(may_wander=True)
    assert not revisits.due(1.0), "how far it is from itself is known"


@pytest.mark.parametrize(
    ("max_slowdown", "trial_s", "at_first_s", "then_s"),
    [(None, 60.0, 20.0, 8.0), (0.05, 60.0, np.inf, np.inf), (None, 8.0, np.inf, np.inf)],
)
def test_windows_are_short_while_a_job_is_young_and_shorter_where_they_are_mostly_rough(
    max_slowdown: float | None, trial_s: float, at_first_s: float, then_s: float
) -> None:
    metric = Metric(name="energy", max_slowdown=max_slowdown)
    prober = Prober(TuneConfig(metric=metric, trial_s=trial_s), SensorInfo(update_s=0.1, window_s=0.1, settle_s=1.0))
    for jitter in (0.0, 0.3, 0.3):
        assert prober.paced(80.0).pace_s == at_first_s, "a single rough window may be a job that changed in its middle"
        rules = replace(prober.rules, target_stderr=1e-9 if jitter else 1.0, pace_s=5.0)
        is_rough, t_s = window_of(prober, metric, rules, 0.2, jitter)
        assert is_rough == bool(jitter)
        assert t_s < 8
    assert prober.paced(80.0).pace_s == then_s


@pytest.mark.parametrize(("iteration_s", "jitter", "wanders"), [(1.0, 0.025, False), (0.2, 0.3, True)])
def test_a_window_of_few_iterations_that_hardly_scatter_is_rough_but_shows_no_other_work(
    iteration_s: float, jitter: float, wanders: bool
) -> None:
    metric = Metric(name="energy")
    prober = Prober(TuneConfig(metric=metric), SensorInfo(update_s=0.02, window_s=0.02, settle_s=1.0))
    rough = [
        window_of(prober, metric, replace(prober.rules, target_stderr=1e-9, pace_s=8.0), iteration_s, jitter)[0]
        for _ in range(8)
    ]
    assert sum(rough) >= 4
    assert prober.may_wander == wanders


def window_of(
    prober: Prober, metric: Metric, rules: ProbeRules, iteration_s: float, jitter: float
) -> tuple[bool, float]:
    """Whether one at 200 W ends roughly, and when."""
    prober.start((200.0,), lambda found: metric.cost(found, near(iteration_s)), rules)
    meter, t_s, count, result = Meter(), 0.0, 0, None
    while result is None:
        result = prober.add(at(meter, t_s, 200.0, count))
        t_s, count = t_s + iteration_s * float(jittered(1, jitter)[0]), count + 1
    return result.is_rough, t_s
