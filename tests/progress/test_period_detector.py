"""What the detector says about signals whose iterations are known, and about signals that have none.

Windows that hold checkpoints: the detector cuts them out, and what is left is one pattern.
"""

import numpy as np
import pytest

from autocap.progress.period import PeriodEstimate, Verdict, count, detect
from autocap.progress.period.detect import Witness
from autocap.progress.period.estimate import Floats
from autocap.progress.period.series import pauses
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_the_stated_error_covers_the_truth() -> None:
    inside = 0
    for seed in range(20):
        heard = signal("shallow", "100/100", 0.9, jitter=0.01, seed=seed)
        estimate = found(heard, "100/100")
        inside += abs(relative_error(estimate, heard)) <= 2 * estimate.rel_stderr
    assert inside >= 16


@pytest.mark.slow
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


STEP_S, READ_S = 0.42, 0.105
LOW, HIGH = (96.0, 74.0), (235.0, 232.0)


def interrupted(
    gaps_s: dict[int, float], levels_w: tuple[float, float], span_s: float, seed: int
) -> tuple[Floats, Floats, Floats]:
    """Steps of four readings each, their time scattering by 5 % and their dips in depth, and before some of them a
    checkpoint of two levels; when each step began, and the readings with their stamps."""
    rng = np.random.default_rng(seed)
    steps = int(span_s / STEP_S) + 20
    lengths_s = STEP_S * np.exp(0.05 * rng.standard_normal(steps))
    stood_s = np.array([gaps_s.get(number, 0.0) for number in range(steps)])
    begun_s = np.cumsum(np.concatenate(([0.0], lengths_s[:-1]))) + np.cumsum(stood_s)
    edges_s = np.column_stack((begun_s - stood_s, begun_s - stood_s / 2, begun_s, begun_s + 0.7 * lengths_s)).ravel()
    dips_w = 225 - rng.uniform(60, 120, steps)
    watts = np.column_stack((*np.broadcast_arrays(*levels_w, 225.0, dips_w),)).ravel()
    fine_s = np.arange(0.0, span_s, 0.005)
    fine_w = watts[np.searchsorted(edges_s, fine_s, side="right") - 1]
    t_s = np.arange(0.2, span_s, READ_S) + rng.normal(0, 0.002, len(np.arange(0.2, span_s, READ_S)))
    energy = np.concatenate(([0.0], np.cumsum(fine_w)))
    passed = np.append(fine_s, span_s)
    means_w = (np.interp(t_s, passed, energy) - np.interp(t_s - 0.1, passed, energy)) / (0.1 / 0.005)
    return begun_s, t_s, means_w + rng.normal(0, 0.5, len(t_s))


@pytest.mark.parametrize("levels_w", [LOW, HIGH])
@pytest.mark.parametrize("gaps_s", [{22: 8.0}, {12: 6.0, 34: 7.0, 58: 6.5}])
def test_a_checkpoint_hides_no_steps_whatever_it_draws(gaps_s: dict[int, float], levels_w: tuple[float, float]) -> None:
    begun_s, t_s, power_w = interrupted(gaps_s, levels_w, 10.0 + sum(gaps_s.values()) * 2, seed=1)
    estimate = detect(t_s, power_w, update_s=READ_S)
    assert estimate.verdict is Verdict.PERIODIC
    multiple = round(estimate.period_s / STEP_S)
    assert multiple in (1, 2)
    inside = begun_s[(begun_s > estimate.start_s) & (begun_s < estimate.end_s)]
    stood_s = sum(gap_s for number, gap_s in gaps_s.items() if inside[0] < begun_s[number] < inside[-1])
    realised_s = (inside[-1] - inside[0] - stood_s) / (len(inside) - 1)
    assert estimate.period_s / multiple == pytest.approx(realised_s, rel=0.02)
    cycles = count(estimate, t_s, power_w, update_s=READ_S, window_s=0.0)
    for number, gap_s in gaps_s.items():
        middle_s = begun_s[number] - gap_s / 2
        assert any(start_s < middle_s < end_s for start_s, end_s in cycles.excluded) or middle_s > t_s[-1]
    counted_s = float(np.ptp(cycles.t_s)) - sum(end_s - start_s for start_s, end_s in cycles.excluded)
    assert float(cycles.count[-1]) * multiple * realised_s == pytest.approx(counted_s, rel=0.1)


@pytest.mark.slow
def test_checkpoints_that_come_regularly_are_not_the_iteration() -> None:
    for seed in range(2):
        gaps_s = dict.fromkeys(range(8, 400, 12), 4.0)
        _, t_s, power_w = interrupted(gaps_s, LOW, 90.0, seed)
        estimate = detect(t_s, power_w, update_s=READ_S)
        assert estimate.verdict is not Verdict.PERIODIC or (estimate.period_s or 0.0) < 3 * STEP_S


def test_the_phases_of_an_iteration_are_no_interruptions() -> None:
    t_s = np.arange(0.0, 130.0, 0.1)
    power_w = np.select([t_s % 9.0 < 3.0, t_s % 9.0 < 4.0], [90.0, 150.0], 200.0)
    assert not pauses(t_s, power_w).within.any()
    assert not pauses(t_s[:300], power_w[:300]).within.any()  # too few cycles to be seen, all the same


@pytest.mark.slow
def test_an_iteration_that_waits_for_long_is_one() -> None:
    """Its wait outlasts whatever else it does, and comes so often that it may be a part of it."""
    t_s = np.arange(0.0, 130.0, 0.1)
    rng = np.random.default_rng(3)
    done = 200 + 40 * np.sign(np.sin(2 * np.pi * np.cumsum(rng.uniform(0.5, 2.0, 60)) / 4))
    power_w = np.where(t_s % 9.0 < 3.0, 90.0, done[(t_s % 9.0 / 0.15).astype(int)]) + rng.normal(0, 0.5, len(t_s))
    assert not pauses(t_s, power_w).few
    estimate = detect(t_s, power_w, update_s=0.1)
    assert estimate.period_s == pytest.approx(9.0, rel=0.01)


@pytest.mark.parametrize("values", [[100.0], [100.0, 200.0], [100.0] * 50, [1.0, 2.0] * 40])
def test_few_or_still_readings_are_no_interruption(values: list[float]) -> None:
    assert not pauses(np.arange(len(values)) * 0.1, np.array(values)).within.any()
