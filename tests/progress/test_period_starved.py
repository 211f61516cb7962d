"""Readings that come late, in bursts, or hardly at all: the detector says what it can, and never fails."""

import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from autocap.progress.period import Cycles, PeriodEstimate, Verdict, count, detect, lock, ratio
from autocap.progress.period.progress import PeriodProgress
from autocap.progress.period.series import prepare
from autocap.records import Reading, Sample, SensorInfo
from bench.period.signals import SENSORS, WAVEFORMS, Load, Signal, record
from tests.doubles.odd_readings import play
from tests.doubles.starved import KINDS, starved

SEEDS = st.integers(0, 2**32 - 1)


def heard(rng: np.random.Generator) -> Signal:
    load = Load(
        waveform=WAVEFORMS[str(rng.choice(["cnn", "accumulate4", "shallow"]))],
        period_s=float(np.exp(rng.uniform(np.log(0.3), np.log(6.0)))),
        jitter=float(rng.choice([0.0, 0.03, 0.1])),
        disturbance=str(rng.choice(["none", "stalls", "validation"])),
    )
    return record(load, SENSORS["100/25"], float(rng.uniform(4.0, 60.0)), rng)


def sound(found: PeriodEstimate) -> None:
    assert found.reason
    assert math.isfinite(found.cycles)
    assert 0 <= found.confidence <= 1
    assert (found.period_s is None) == (found.rel_stderr is None)
    if found.period_s is not None and found.rel_stderr is not None:
        assert 0 < found.period_s < math.inf
        assert 0 <= found.rel_stderr < math.inf
    assert found.verdict is not Verdict.PERIODIC or found.cycles >= 8


def countable_cycles(found: Cycles | None) -> None:
    if found is None:
        return
    assert np.isfinite(found.t_s).all()
    assert np.isfinite(found.count).all()
    assert (np.diff(found.t_s) >= 0).all()
    assert (np.diff(found.count) >= 0).all()
    assert 0 < found.period_s < math.inf
    assert 0 <= found.rel_stderr < math.inf


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=3)
@given(seed=SEEDS, window_s=st.sampled_from([0.0, 0.025, 1.0]), update_s=st.sampled_from([0.02, 0.1, 1.0]))
def test_whatever_is_left_of_the_readings_there_is_a_verdict(kind, seed, window_s, update_s) -> None:
    rng = np.random.default_rng(seed)
    signal = heard(rng)
    t_s, power_w = starved(signal.t_s, signal.power_w, kind, rng)
    estimate = detect(t_s, power_w, update_s=update_s, window_s=window_s, witnesses=[(t_s, power_w)])
    sound(estimate)
    if estimate.period_s is None:
        return
    countable_cycles(count(estimate, t_s, power_w, update_s=update_s, window_s=window_s))
    template = lock(t_s, power_w, estimate, update_s=update_s, window_s=window_s)
    if template is None:
        return
    again_s, again_w = starved(signal.t_s, signal.power_w, str(rng.choice(KINDS)), rng)
    found = ratio(template, again_s, again_w, slowest=4.5)
    assert found.ratio is None or 0 < found.ratio < math.inf
    assert not found.ok or found.cycles >= 8
    countable_cycles(count(template, again_s, again_w, update_s=update_s, window_s=window_s))


@settings(max_examples=20)
@given(seed=SEEDS)
@example(7)  # powers whose squares are no numbers any more
@example(28)  # a sensor without an update interval
@example(140)  # a witness whose squares are 0
@example(308)  # stamps as far apart as that
@example(406)  # a period of which no integer number fits into the readings
def test_whatever_the_readings_are_there_is_a_verdict(seed: int) -> None:
    play(seed)


def test_a_pattern_that_is_followed_through_no_two_neighbouring_readings_is_lost() -> None:
    """As in an attach on a machine with fourteen jobs on two cores: there was no span to count cycles in."""
    t_s = 0.1 * np.arange(600)
    power_w = 200 + 60 * np.sign(np.sin(2 * np.pi * t_s / 0.9)) + np.random.default_rng(0).normal(0, 3, 600)
    estimate = detect(t_s, power_w, update_s=0.1, window_s=0.025)
    template = lock(t_s, power_w, estimate, update_s=0.1, window_s=0.025)
    for seed in (121, 184, 247, 301):
        few_s, few_w = starved(t_s, power_w, "every-nth", np.random.default_rng(seed))
        assert not ratio(template, few_s, few_w, slowest=4.5).ok
        assert count(template, few_s, few_w, update_s=0.1, window_s=0.025) is None


def test_blocks_that_hold_no_reading_are_no_pattern() -> None:
    """A few readings, a gap, many readings: most blocks of the fit were followed, and empty."""
    for seed in (42, 18, 3):
        rng = np.random.default_rng(seed)
        rng.uniform()  # of the period that a job would have had
        walk_w = np.abs(np.cumsum(rng.normal(0, 3, 900)) + 200)
        t_s, power_w = starved(0.1 * np.arange(900), walk_w, "island", rng)
        sound(detect(t_s, power_w, update_s=0.02, window_s=0.1))


def test_readings_at_the_same_time_are_one_and_a_grid_is_no_finer_than_they_are_many() -> None:
    t_s = np.repeat(np.arange(60.0), 3) + np.tile([0.0, 0.0, 1e-9], 60)
    series = prepare(t_s, 200.0 + np.arange(180) % 7, update_s=0.1, window_s=0.1)
    assert (np.diff(series.t_s) > 0).all()
    assert len(series.t_s) == 120
    assert series.step_s == pytest.approx(59.0 / 8 / 120, rel=1e-3)


def test_a_day_without_a_reading_costs_no_more_than_an_hour_of_them() -> None:
    t_s = np.concatenate((np.arange(0.0, 30.0, 0.1), 86_400.0 + np.arange(0.0, 30.0, 0.1)))
    watts = 200 + 60 * np.sign(np.sin(2 * np.pi * t_s / 0.9))
    sound(detect(t_s, watts, update_s=0.1))


def test_a_cycle_that_is_sampled_too_seldom_is_not_called_found() -> None:
    """A job of 0.6 s seen every 0.5 to 5 s: nothing that is found may be taken for its period."""
    rng = np.random.default_rng(5)
    for _ in range(6):
        signal = record(Load(waveform=WAVEFORMS["cnn"], period_s=0.6, jitter=0.01), SENSORS["100/25"], 120.0, rng)
        places = np.searchsorted(signal.t_s, signal.t_s[0] + np.cumsum(rng.uniform(0.5, 5.0, 43)), side="right") - 1
        estimate = detect(signal.t_s[places], signal.power_w[places], update_s=0.1, window_s=0.025)
        assert estimate.verdict is not Verdict.PERIODIC


def fed(progress: PeriodProgress, rng: np.random.Generator, samples: int) -> None:
    """Samples of a machine that is short of CPU: readings may be missing, stand still or fall, and stamps repeat."""
    t_s, energy_j, done, cap_w = 0.0, 0.0, -1.0, 250.0
    last_s, period_s = -math.inf, float(rng.uniform(0.3, 3.0))
    for _ in range(samples):
        t_s += float(rng.choice([0.0, 1e-9, 0.02, 0.05, 0.1, 0.3, 5.0], p=[0.05, 0.05, 0.2, 0.4, 0.2, 0.05, 0.05]))
        power_w = 200.0 + 60.0 * math.copysign(1.0, math.sin(2 * math.pi * t_s / period_s)) + float(rng.normal())
        energy_j += float(rng.choice([0.0, 5.0, 20.0, -50.0], p=[0.3, 0.3, 0.3, 0.1]))
        cap_w = float(rng.choice([150.0, 250.0])) if rng.random() < 0.002 else cap_w
        reading = Reading(
            t_s=t_s - float(rng.choice([0.0, 0.05, 6.0], p=[0.6, 0.3, 0.1])),
            power_w=None if rng.random() < 0.02 else power_w,
            energy_j=energy_j if rng.random() < 0.9 else None,
            requested_w=cap_w,
            sm_clock_hz=1e9,
            utilisation=float(rng.choice([0.0, 1.0])),
        )
        for mark in progress.marks(Sample(t_s=t_s, readings=(reading,))):
            assert mark.iterations >= done
            assert last_s <= mark.t_s <= t_s
            done, last_s = mark.iterations, mark.t_s


@settings(max_examples=4)
@given(seed=SEEDS, samples=st.sampled_from([1, 30, 400]), window_s=st.sampled_from([0.025, 1.0]))
def test_marks_never_go_back_nor_ahead_on_a_machine_without_time(seed: int, samples: int, window_s: float) -> None:
    fed(PeriodProgress(SensorInfo(update_s=0.1, window_s=window_s, settle_s=0.5)), np.random.default_rng(seed), samples)
