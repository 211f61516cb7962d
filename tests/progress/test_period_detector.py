"""What the detector says about signals whose iterations are known, and about signals that have none."""

import numpy as np
import pytest

from autocap.progress.period import PeriodEstimate, Verdict, detect
from autocap.progress.period.detect import Witness
from bench.period.signals import NULLS, SENSORS, WAVEFORMS, Load, Signal, record, record_noise


def signal(
    waveform: str,
    sensor: str,
    period_s: float,
    *,
    jitter: float = 0.01,
    disturbance: str = "none",
    span_s: float = 20.0,
    seed: int = 0,
) -> Signal:
    load = Load(waveform=WAVEFORMS[waveform], period_s=period_s, jitter=jitter, disturbance=disturbance)
    return record(load, SENSORS[sensor], max(span_s, 12.3 * period_s), np.random.default_rng(seed))


def found(heard: Signal, sensor: str, *witnesses: Witness) -> PeriodEstimate:
    case = SENSORS[sensor]
    return detect(heard.t_s, heard.power_w, update_s=case.update_s, window_s=case.window_s, witnesses=witnesses)


def relative_error(estimate: PeriodEstimate, heard: Signal) -> float:
    """Against the nearest multiple: a constant multiple of the iteration ranks caps exactly as the iteration does."""
    true_s = heard.mean_iteration_s(estimate.start_s, estimate.end_s)
    return estimate.period_s / (max(1, round(estimate.period_s / true_s)) * true_s) - 1


@pytest.mark.parametrize("sensor", SENSORS)
@pytest.mark.parametrize("waveform", ["cnn", "accumulate4"])
def test_the_period_is_the_mean_iteration_time_of_its_window(waveform: str, sensor: str) -> None:
    heard = signal(waveform, sensor, 2.3)
    estimate = found(heard, sensor)
    assert estimate.verdict is Verdict.PERIODIC
    assert abs(relative_error(estimate, heard)) < 0.005


def test_a_waveform_of_the_size_of_the_noise_is_found_where_readings_are_many_and_may_be_a_beat() -> None:
    heard = signal("near-flat", "20/10", 0.83)
    estimate = found(heard, "20/10")
    assert estimate.reason.startswith("it may be a beat")
    assert abs(relative_error(estimate, heard)) < 0.01


def test_gradient_accumulation_is_one_period_not_four_and_without_parts_alike_there_are_no_multiples() -> None:
    estimate = found(signal("accumulate4", "20/10", 1.7), "20/10")
    assert (estimate.period_s, estimate.multiples) == (pytest.approx(1.7, rel=0.02), (2, 4))
    assert found(signal("cnn", "20/10", 0.83), "20/10").multiples == ()


def test_the_realised_mean_is_followed_through_jitter() -> None:
    errors = []
    for seed in range(6):
        heard = signal("cnn", "100/25", 0.9, jitter=0.03, seed=seed)
        errors.append(abs(relative_error(found(heard, "100/25"), heard)))
    assert float(np.median(errors)) < 0.002


def test_the_stated_error_covers_the_truth() -> None:
    inside = 0
    for seed in range(20):
        heard = signal("shallow", "100/100", 0.9, jitter=0.01, seed=seed)
        estimate = found(heard, "100/100")
        inside += abs(relative_error(estimate, heard)) <= 2 * estimate.rel_stderr
    assert inside >= 16


@pytest.mark.parametrize("kind", NULLS)
def test_what_repeats_nothing_is_not_called_periodic(kind: str) -> None:
    verdicts = []
    for seed, sensor in enumerate(("100/25", "20/10", "counter")):
        heard = record_noise(kind, SENSORS[sensor], 20.0, np.random.default_rng([seed, 5]))
        verdicts.append(found(heard, sensor).verdict)
    assert Verdict.PERIODIC not in verdicts


def test_a_constant_without_noise_has_no_period() -> None:
    t_s = np.arange(0.0, 20.0, 0.1)
    estimate = detect(t_s, np.full(len(t_s), 250.0), update_s=0.1)
    assert estimate.verdict is Verdict.APERIODIC
    assert estimate.period_s is None
    assert "constant" in estimate.reason


def test_too_few_readings_are_no_period() -> None:
    t_s = np.arange(10) * 0.1
    assert detect(t_s, 200 + 50 * np.sin(t_s), update_s=0.1).verdict is not Verdict.PERIODIC


def test_what_no_fast_load_can_look_like_is_verified_by_itself() -> None:
    estimate = found(signal("cnn", "20/10", 0.5), "20/10")
    assert estimate.verdict is Verdict.PERIODIC
    assert (estimate.verified, estimate.open) == (True, False)


@pytest.mark.parametrize("sensor", ["100/100", "counter"])
def test_a_short_cycle_that_hardly_swings_may_be_a_beat_and_it_is_said_what_would_decide_it(sensor: str) -> None:
    estimate = found(signal("shallow", sensor, 0.83), sensor)
    assert estimate.verdict is Verdict.AMBIGUOUS
    assert (estimate.verified, estimate.open) == (False, True)
    assert estimate.reason.startswith("it may be a beat")
    assert estimate.reason.endswith("; an energy counter, or one trial at another cap would decide it")


def test_a_period_under_three_updates_is_never_verified() -> None:
    heard = signal("cnn", "100/25", 0.257, jitter=0.0)
    other = signal("cnn", "20/10", 0.257, jitter=0.0)
    estimate = found(heard, "100/25", (other.t_s, other.power_w))
    assert not estimate.verified


@pytest.mark.parametrize("span_s", [14.4, 40.0])
def test_several_cycles_of_three_updates_are_seen_no_better_than_one_of_them(span_s: float) -> None:
    heard = signal("cnn", "100/25", 0.3, jitter=0.02, span_s=span_s, seed=3)  # had been two and three iterations in one
    estimate = found(heard, "100/25")
    assert estimate.verdict is Verdict.UNRESOLVABLE
    assert not estimate.open


@pytest.mark.parametrize("disturbance", ["stalls", "validation", "drift", "checkpoint"])
def test_disturbances_leave_the_period_right(disturbance: str) -> None:
    heard = signal("cnn", "20/10", 0.8, disturbance=disturbance, span_s=40.0, seed=2)
    estimate = found(heard, "20/10")
    assert estimate.verdict is Verdict.PERIODIC
    assert estimate.period_s == pytest.approx(heard.mean_iteration_s(estimate.start_s, estimate.end_s), rel=0.01)


def test_zero_and_missing_readings_are_gaps() -> None:
    heard = signal("cnn", "20/10", 0.8)
    power_w = heard.power_w.copy()
    power_w[100:110], power_w[400:405] = 0.0, np.nan
    estimate = detect(heard.t_s, power_w, update_s=0.02, window_s=0.01)
    assert abs(relative_error(estimate, heard)) < 0.005


def test_a_periodic_estimate_needs_a_period() -> None:
    with pytest.raises(ValueError, match="has a period and its error"):
        PeriodEstimate(
            start_s=0.0,
            end_s=1.0,
            verdict=Verdict.PERIODIC,
            period_s=None,
            rel_stderr=None,
            cycles=0.0,
            confidence=0.0,
            verified=False,
            reason="",
        )
