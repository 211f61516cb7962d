import math
from dataclasses import replace
from typing import Any

import pytest

from autocap.measurement.probe import Probe, ProbeResult, ProbeRules
from autocap.measurement.steadiness import SteadinessWatch
from autocap.measurement.window import Window
from autocap.metrics import Metric
from autocap.progress import Mark, StepProgress
from autocap.records import Cost, Measurement, NodeReading, Reading, Sample, TrialLength, TrialState
from tests.doubles.feeds import Meter, metered, samples

RULES = ProbeRules(settle_s=2.0, target_stderr=0.005, limit_s=60.0, min_batches=8)


def own_cost(found: Measurement) -> Cost:
    return Metric(name="energy").cost(found, found)


def drive(rules: ProbeRules, feed: list[Sample], *given: Any, **named: Any) -> tuple[ProbeResult | None, float]:
    """A probe's result and the time at which it came. given, named: what else the probe is made with."""
    probe = Probe((200.0,), rules, *(given or (own_cost,)), **named)
    for one in metered(feed, StepProgress()):
        result = probe.add(one)
        if result is not None:
            return result, one.t_s
    return None, feed[-1].t_s


def test_what_is_read_while_the_cap_settles_is_discarded() -> None:
    early = list(samples(seconds=2.0, power_w=500.0))
    late = list(samples(start_s=2.0, seconds=30.0, power_w=200.0, count_from=4))[1:]
    result, _ = drive(RULES, early + late)
    assert result.measurement.power_w == pytest.approx(200.0)
    assert result.measurement.start_s >= 2.5  # settling, and one iteration more


def test_a_probe_ends_as_soon_as_its_error_reaches_the_target() -> None:
    result, ended_s = drive(RULES, list(samples(seconds=60.0)))
    assert result.state is TrialState.COMPLETE
    assert ended_s == pytest.approx(2.0 + 0.5 + 8 * 0.5, abs=0.6)


def test_too_few_iterations_within_the_time_limit_are_a_failure_that_says_so() -> None:
    rules = ProbeRules(settle_s=1.0, target_stderr=0.005, limit_s=10.0, min_batches=8)
    result, ended_s = drive(rules, list(samples(seconds=30.0, period_s=2.0)))
    assert result.state is TrialState.FAILED
    assert result.measurement is None
    assert result.reason == "only 3 iterations within 10 s, 8 are needed; pass a larger --trial-seconds"
    assert ended_s == pytest.approx(10.0)


@pytest.mark.parametrize(("coarse", "expected_s"), [(0.1, 10.0), (0.01, 60.0)])
def test_a_probe_that_has_been_patient_makes_do_with_a_larger_error(coarse: float, expected_s: float) -> None:
    rules = replace(RULES, patience_s=10.0, coarse_stderr=coarse)
    result, ended_s = drive(rules, list(samples(seconds=70.0)), lambda found: Cost(value=1.0, stderr=0.05))
    assert result.state is TrialState.COMPLETE
    assert ended_s == pytest.approx(expected_s, abs=1.0)


def test_a_lost_trial_is_pruned_with_its_reason() -> None:
    result, _ = drive(RULES, list(samples(seconds=30.0)), hopeless=lambda found, cost: "worse than 160 W")
    assert (result.state, result.reason) == (TrialState.PRUNED, "worse than 160 W")
    assert result.measurement is not None


def test_a_trial_with_a_length_of_its_own_has_it_whatever_its_error() -> None:
    rules = RULES.lasting(TrialLength(settle_s=4.0, warm_up=10, iterations=40))
    result, ended_s = drive(rules, list(samples(seconds=60.0)))
    assert (result.state, result.reason) == (TrialState.COMPLETE, None)
    assert result.measurement.iterations == 40
    assert ended_s == pytest.approx(4.0 + (10 + 40) * 0.5, abs=0.6)


def test_a_window_of_some_seconds_begins_with_the_change_and_has_two_whole_iterations_at_least() -> None:
    rules = RULES.lasting(TrialLength(seconds=1.2))
    for period_s, iterations, ends_s in [(0.25, 5, 1.5), (1.5, 2, 4.5)]:
        result, ended_s = drive(rules, list(samples(seconds=20.0, period_s=period_s)))
        assert result.measurement.iterations == iterations
        assert ended_s == pytest.approx(ends_s, abs=0.15)


def test_a_trial_with_a_length_of_its_own_ends_at_the_time_limit_all_the_same() -> None:
    rules = replace(RULES, limit_s=10.0).lasting(TrialLength(warm_up=10, iterations=40))
    result, ended_s = drive(rules, list(samples(seconds=60.0)))
    assert (result.state, result.reason) == (TrialState.COMPLETE, "time limit of 10 s")
    assert ended_s == pytest.approx(10.0)


@pytest.mark.parametrize("wrong", [{"iterations": 1}, {"settle_s": -1.0}])
def test_a_length_that_gives_no_error_or_ends_before_it_begins_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="a trial needs two iterations or more, and nothing negative"):
        TrialLength(**wrong)  # type: ignore[arg-type]  # one name at a time


def with_gap(seconds: float) -> list[Sample]:
    """An iteration takes 0.5 s; from 5.95 s on no power is read."""
    silent = list(samples(start_s=5.95, seconds=seconds, power_w=None, count_from=12))
    after_s = 6.0 + seconds
    return (
        list(samples(seconds=5.9)) + silent + list(samples(start_s=after_s, seconds=30.0, count_from=12 + 2 * seconds))
    )


def test_a_window_goes_on_after_a_short_gap_without_the_iterations_that_it_meets() -> None:
    plain, plain_s = drive(RULES, list(samples(seconds=30.0)))
    result, ended_s = drive(RULES, with_gap(1.0))
    assert result.state is TrialState.COMPLETE
    assert plain_s + 1.0 <= ended_s <= plain_s + 2.2
    assert result.measurement.period_s == pytest.approx(plain.measurement.period_s, rel=0.01)
    assert result.measurement.power_w == pytest.approx(plain.measurement.power_w, rel=0.01)


def test_a_broken_window_is_taken_again_and_after_a_few_in_a_row_the_trial_fails() -> None:
    result, ended_s = drive(RULES, with_gap(4.0))
    assert result.state is TrialState.COMPLETE
    assert ended_s > 12.0
    hot = (Reading(t_s=0.0, power_w=200.0, throttled=True),)
    often = [replace(one, readings=hot) if i % 60 == 59 else one for i, one in enumerate(samples(seconds=55.0))]
    result, _ = drive(RULES, often)
    assert result.state is TrialState.FAILED
    assert result.reason == "4 windows in a row: the device slowed itself down (thermal or hardware)"


def test_a_disturbance_that_lasts_is_waited_for_within_limits_and_does_not_use_up_the_trial() -> None:
    quiet = list(samples(start_s=40.0, seconds=20.0, count_from=80))
    hot = list(samples(seconds=39.9, throttled=True))
    result, ended_s = drive(RULES, hot + quiet)
    assert result.state is TrialState.COMPLETE
    assert ended_s > 44.0
    result, ended_s = drive(RULES, list(samples(seconds=90.0, throttled=True)))
    assert result.reason == f"for {RULES.limit_s:g} s: the device slowed itself down (thermal or hardware)"
    assert ended_s < RULES.limit_s + 1.0


def test_a_baseline_is_not_taken_while_the_job_gets_faster() -> None:
    level = replace(RULES, level=True)
    feed, count, t_s = [], 0, 0.0
    for period_s in (0.5 + 0.1 * max(0.0, 1 - number / 60) for number in range(200)):
        feed += list(samples(start_s=t_s, seconds=period_s - 0.05, period_s=1e9, count_from=count))
        t_s, count = t_s + period_s, count + 1
    result, _ = drive(RULES, feed)
    assert result.measurement.period_s > 0.55
    result, _ = drive(level, feed)
    assert result.measurement.period_s == pytest.approx(0.5, rel=0.02)


def steady(feed: list[Sample]) -> tuple[float, Window]:
    """When a job is recognised as steady, and by what."""
    watch = SteadinessWatch((260.0,))
    found = ((one.t_s, window) for one in metered(feed, StepProgress()) if (window := watch.add(one)) is not None)
    found_s, window = next(found)
    assert window.iterations >= 4
    return found_s, window


def test_a_job_that_begins_steady_is_recognised_within_two_short_spans() -> None:
    assert steady(list(samples(seconds=30.0, period_s=0.5)))[0] < 6.0


def test_slow_first_iterations_are_waited_for_and_none_of_them_reaches_the_baseline() -> None:
    slow = list(samples(seconds=8.0, period_s=2.0))
    then = list(samples(start_s=8.0, seconds=20.0, period_s=0.5, count_from=4))[1:]
    found_s, window = steady(slow + then)
    assert 10.0 < found_s < 14.0
    assert window.marks()[0][0] >= 8.0


def test_iterations_that_end_before_the_first_reading_are_passed_over() -> None:
    blind = list(samples(seconds=3.0, power_w=None))
    then = list(samples(start_s=3.0, seconds=20.0, count_from=6))[1:]
    assert steady(blind + then)[0] > 3.0


def test_power_that_still_climbs_is_not_steady() -> None:
    low = list(samples(seconds=5.0, power_w=60.0))
    high = list(samples(start_s=5.0, seconds=20.0, power_w=220.0, count_from=10))[1:]
    assert steady([sample for sample in low if sample.t_s < 4.0] + high)[0] > 8.0


def test_marks_that_are_found_afterwards_all_count_but_the_iteration_that_the_cap_change_cut() -> None:
    probe = Probe((200.0,), replace(RULES, target_stderr=0.5), own_cost)
    feed = list(samples(seconds=12.0))
    late = [Mark(t_s=0.5 * n, iterations=float(n)) for n in range(24)]  # all at once, as from the power signal
    meter = Meter()
    for sample in feed[:-1]:
        assert probe.add(meter.of(sample)) is None
    result = probe.add(meter.of(feed[-1], late))
    assert (result.measurement.start_s, result.measurement.iterations) == (pytest.approx(2.5), 23 - 5)


def with_node(feed: list[Sample], refresh_s: float, *, late_s: float = 0.0) -> list[Sample]:
    """The samples, with a meter of the whole node whose readings are means since the last one, and 500 W at first."""
    found = []
    for sample in feed:
        stamp_s = math.floor(sample.t_s / refresh_s + 1e-9) * refresh_s
        power_w = 500.0 if stamp_s < late_s else 700.0
        found.append(replace(sample, node=NodeReading(t_s=stamp_s, power_w=power_w, whole=True)))
    return found


def test_a_slow_meters_reading_that_averages_over_the_settling_is_discarded() -> None:
    feed = with_node(list(samples(seconds=60.0)), 3.0, late_s=4.0)  # the one at 3 s is of what was before 2 s as well
    result, _ = drive(RULES, feed)
    assert result.measurement.power_w == pytest.approx(700.0)
    assert result.measurement.start_s >= 6.0


def test_a_probe_waits_for_a_fresh_reading_of_the_node_in_every_batch() -> None:
    result, ended_s = drive(RULES, with_node(list(samples(seconds=60.0)), 2.0))
    assert result.state is TrialState.COMPLETE
    assert ended_s >= 4.0 + 8 * 2.0


@pytest.mark.parametrize("before_s", [1.0, 4.5], ids=["settling", "measuring"])
def test_a_probe_goes_on_after_a_pause_with_other_caps_once_its_own_have_settled_again(before_s: float) -> None:
    steps = int(before_s / 0.5)
    trains = list(samples(seconds=before_s, power_w=200.0))
    pauses = [replace(one, steps=trains[-1].steps) for one in samples(start_s=before_s, seconds=70.0, power_w=90.0)]
    settles = list(samples(start_s=before_s + 70.0, seconds=2.0, power_w=500.0, count_from=steps))
    again = list(samples(start_s=before_s + 72.0, seconds=30.0, power_w=200.0, count_from=steps + 4))
    probe, meter, progress = Probe((200.0,), RULES, own_cost), Meter(), StepProgress()
    result = None
    for part, feed in enumerate([trains, pauses[1:], settles[1:], again[1:]]):
        if part == 2:
            probe.resume()
        for sample in feed:
            one = meter.of(sample, progress.marks(sample))
            result = result or (None if part == 1 else probe.add(one))
        assert part == 3 or result is None
        assert part != 2 or not probe.collecting
    assert result.state is TrialState.COMPLETE
    assert (result.measurement.power_w, result.measurement.period_s) == (pytest.approx(200.0), pytest.approx(0.5))
    assert result.measurement.iterations == 8
