"""The phase of a known waveform, followed through readings that come now and then."""

import numpy as np

from autocap.progress.period.estimate import Floats, Template
from autocap.progress.period.phase import PhaseTracker

SHAPE = np.array([40.0 + 0j, 15.0, 12.0, 0.0, 6.0])
PATTERN = Template(
    period_s=0.5, rel_stderr=1e-4, cycles=40.0, coefficients=SHAPE, level_w=200.0, noise_w=2.0, jitter=0.01,
    unseen=0.01, update_s=0.02, window_s=0.01,
)  # fmt: skip


def readings(t_s: Floats, iterations: Floats, shape: Floats = SHAPE.real) -> Floats:
    """Watts at a phase each."""
    turns = np.outer(np.arange(1, len(shape) + 1), iterations)
    return 200.0 + shape @ np.cos(2 * np.pi * turns) + np.random.default_rng(1).normal(0.0, 2.0, len(t_s))


def stamps(start_s: float, end_s: float, every_s: float) -> Floats:
    spans_s = every_s * (0.8 + 0.2 * np.random.default_rng(2).random(int((end_s - start_s) / (0.8 * every_s))))
    t_s = start_s + np.cumsum(spans_s)
    return t_s[t_s < end_s]


def locked() -> PhaseTracker:
    """On a job of 0.5 s, by 10 s of all readings."""
    tracker, t_s = PhaseTracker(PATTERN), np.arange(0.0, 10.0, 0.02)
    tracker.take(t_s, readings(t_s, t_s / 0.5))
    return tracker


def test_readings_now_and_then_count_every_iteration_of_a_pace_that_moves() -> None:
    tracker = locked()
    (begun_s, count), t_s = tracker.knots[-1], stamps(10.0, 610.0, 0.4)
    done = np.cumsum(np.diff(t_s, prepend=10.0) / (0.5 * (1 + 0.01 * np.sin(t_s / 100)))) + 20.0
    tracker.take(t_s, readings(t_s, done), seldom=True)
    last_s, counted = tracker.knots[-1]
    expected = float(np.interp(last_s, t_s, done)) - begun_s / 0.5
    assert abs(counted - count - expected) < 0.2
    assert tracker.follows
    assert tracker.spare_s(0.4) == 0.4


def test_another_period_is_not_followed_by_the_old_waveform() -> None:
    for times in (0.5, 0.8, 1.3, 2.0):
        tracker, t_s = locked(), stamps(10.0, 30.0, 0.4)
        tracker.take(t_s, readings(t_s, 20.0 + (t_s - 10.0) / (0.5 * times)), seldom=True)
        assert not tracker.follows, times
        assert tracker.spare_s(0.4) == 0.0


def test_another_waveform_of_the_same_period_and_much_like_the_old_one_is_not_followed_for_long() -> None:
    """Correlation 0.98: each reading may be of the old one, all of them are not."""
    for every_s, seldom in ((0.4, True), (0.02, False)):
        for shape, expected in ((SHAPE.real, True), (np.array([40.0, 15.0, 12.0, -8.0, 6.0]), False)):
            tracker, t_s = locked(), stamps(10.0, 60.0, every_s)
            tracker.take(t_s, readings(t_s, t_s / 0.5, shape), seldom=seldom)
            assert tracker.follows is expected


def test_the_count_stands_still_in_a_pause() -> None:
    tracker = locked()
    before = tracker.count
    t_s = np.arange(10.0, 30.0, 0.02)
    idle = (t_s >= 12.0) & (t_s < 20.0)
    done = np.where(t_s < 12.0, t_s, np.maximum(t_s - 8.0, 12.0)) / 0.5
    tracker.take(t_s, np.where(idle, 60.0, readings(t_s, done)))
    assert abs(tracker.count - before - (done[-1] - 20.0)) < 1.0
