"""What an average lets through of a load faster than the sensor: nothing that such a load shows may be excluded."""

import numpy as np
import pytest

from autocap.progress.period.bound import Draw, Floats, Swing, may_pass, swing_of
from autocap.progress.period.estimate import Template
from autocap.progress.period.ratio import Tried, tried

DRAW = Draw(least_w=50.0, most_w=350.0)
PHASES = 128


def averaged(load_w: Floats, cycles: float) -> Floats:
    """A load's cycle, averaged over so many of its cycles, at 128 phases."""
    size = len(load_w)
    total = np.concatenate(([0.0], np.cumsum(np.tile(load_w, 2 + int(np.ceil(cycles)))))) / size
    ends = np.arange(PHASES) / PHASES + np.ceil(cycles)
    places = np.arange(len(total)) / size
    return (np.interp(ends, places, total) - np.interp(ends - cycles, places, total)) / cycles


def swing(values_w: Floats) -> Swing:
    mean_w = float(values_w.mean())
    return swing_of(values_w - mean_w, np.zeros((1, PHASES)), mean_w, 1)


@pytest.mark.parametrize("seed", range(40))
def test_what_a_fast_load_shows_through_an_average_is_never_excluded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    levels = rng.uniform(DRAW.least_w, DRAW.most_w, rng.integers(2, 6))
    load_w = np.repeat(levels, rng.integers(60, 400, len(levels)))
    for cycles in (*rng.uniform(0.55, 6.0, 20), 0.9, 1.0, 1.1, 2.04):
        assert may_pass(swing(averaged(load_w, cycles)), np.array([cycles]), 0.02, DRAW).all()


@pytest.mark.parametrize("duty", [0.06, 0.2, 0.5, 0.8, 0.94])
def test_nor_is_what_shows_of_one_with_two_levels_through_less_than_half_a_cycle(duty: float) -> None:
    load_w = np.where(np.arange(1000) < 1000 * duty, 320.0, 90.0)
    for cycles in (0.05, 0.2, 0.25, 0.45):
        assert may_pass(swing(averaged(load_w, cycles)), np.array([cycles]), 0.02, DRAW).all()


def test_a_swing_that_would_need_more_than_the_card_draws_is_excluded() -> None:
    """Ten updates a cycle, through an average of one update: nine tenths of a fast cycle, or eleven, are averaged."""
    values_w = 200.0 + 40.0 * np.sign(np.sin(2 * np.pi * np.arange(PHASES) / PHASES))
    assert not may_pass(swing(values_w), np.array([0.9, 1.1, 1.9, 2.1]), 0.01, DRAW).any()
    little_w = 200.0 + 4.0 * np.sin(2 * np.pi * np.arange(PHASES) / PHASES)
    assert may_pass(swing(little_w), np.array([0.9, 1.1]), 0.01, DRAW).all()


def test_an_edge_that_is_steeper_than_the_cards_whole_range_over_the_window_is_excluded() -> None:
    values_w = np.where(np.arange(PHASES) < PHASES // 2, 120.0, 280.0)
    assert not may_pass(swing(values_w), np.array([0.25, 0.5]), 0.05, DRAW).any()
    assert may_pass(swing(values_w), np.array([0.005]), 0.05, DRAW).all()


def test_a_swing_that_is_not_known_well_excludes_nothing() -> None:
    values_w = 40.0 * np.sign(np.sin(2 * np.pi * np.arange(PHASES) / PHASES))
    unsure = swing_of(values_w, np.full((1, PHASES), 15.0) * np.sign(values_w), 200.0, 1)
    assert may_pass(unsure, np.array([0.9]), 0.01, DRAW).all()


SHAPE = np.array([40.0 + 0j, 0.0, 12.0, 0.0, 6.0])
BEFORE = Template(
    period_s=0.5,
    rel_stderr=1e-4,
    cycles=40.0,
    coefficients=SHAPE,
    level_w=180.0,
    noise_w=1.0,
    jitter=0.01,
    unseen=0.01,
    update_s=0.02,
    window_s=0.01,
)


def at_cap(period_s: float) -> tuple[Floats, Floats]:
    """Twenty seconds of the waveform with another period."""
    t_s = np.arange(0.0, 20.0, 0.02)
    turns = np.outer(np.arange(1, len(SHAPE) + 1), t_s / period_s)
    noise = np.random.default_rng(0).normal(0.0, 1.0, len(t_s))
    return t_s, 180.0 + (SHAPE.real @ np.cos(2 * np.pi * turns)) + noise


@pytest.mark.parametrize(
    ("times", "clock", "says"),
    [
        (1.07, 0.90, Tried.PROVEN),
        (1.00, 0.90, Tried.UNCLEAR),  # nothing of it follows the clock
        (1.40, 0.90, Tried.REFUTED),  # more than the clock lost
        (0.80, 0.90, Tried.REFUTED),  # a cap makes nothing faster
        (1.07, 1.00, Tried.REFUTED),  # the clock is as it was
    ],
)
def test_a_trial_proves_what_lengthens_as_the_clock_says_and_refutes_what_goes_elsewhere(times, clock, says) -> None:
    found, ratio = tried(BEFORE, *at_cap(0.5 * times), clock_hz=clock * 1.7e9, before_hz=1.7e9)
    assert found is says
    assert ratio == pytest.approx(times, rel=0.01)


def test_a_pattern_that_is_gone_at_the_cap_decides_nothing() -> None:
    t_s = np.arange(0.0, 20.0, 0.02)
    noise_w = 180.0 + np.random.default_rng(1).normal(0.0, 5.0, len(t_s))
    assert tried(BEFORE, t_s, noise_w, clock_hz=1.5e9, before_hz=1.7e9)[0] is Tried.UNCLEAR
