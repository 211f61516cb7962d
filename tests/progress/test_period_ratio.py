"""The period at another cap against the baseline's: precise, the same multiple, or "cannot tell".

Counting iterations by their phase: right to a fraction of one, around what is none.

The phase of a known waveform, followed through readings that come now and then.
"""

from functools import cache

import numpy as np
import pytest

from autocap.progress.period import Cycles, Template, Verdict, detect, lock, ratio
from autocap.progress.period.estimate import Floats
from autocap.progress.period.locate import count
from autocap.progress.period.phase import PhaseTracker
from bench.period.signals import SENSORS, WAVEFORMS, Load, Signal, record, record_noise


@cache
def heard(waveform: str, sensor: str, slowdown: float, *, period_s: float = 0.93, seed: int = 0) -> Signal:
    load = Load(
        waveform=WAVEFORMS[waveform],
        period_s=period_s,
        jitter=0.01,
        slowdown=slowdown,
        flatten=1.0 if slowdown == 1.0 else 0.85,
    )
    return record(load, SENSORS[sensor], max(20.0, 12.3 * period_s * slowdown), np.random.default_rng([seed, 8]))


@cache
def locked(waveform: str, sensor: str) -> Template:
    """What is known of a job at the limit found on arrival."""
    before, case = heard(waveform, sensor, 1.0), SENSORS[sensor]
    estimate = detect(before.t_s, before.power_w, update_s=case.update_s, window_s=case.window_s)
    assert estimate.verdict is Verdict.PERIODIC
    template = lock(before.t_s, before.power_w, estimate, update_s=case.update_s, window_s=case.window_s)
    assert template is not None
    return template


@pytest.mark.parametrize("slowdown", [1.02, 1.05, 1.10, 1.30, 2.00])
@pytest.mark.parametrize(("waveform", "sensor"), [("cnn", "100/25"), ("accumulate4", "20/10"), ("cnn", "counter")])
def test_the_ratio_of_two_caps_is_the_realised_one(waveform: str, sensor: str, slowdown: float) -> None:
    before, after = heard(waveform, sensor, 1.0), heard(waveform, sensor, slowdown, seed=1)
    found = ratio(locked(waveform, sensor), after.t_s, after.power_w, slowest=2.3)
    ends = [float(signal.t_s[place]) for signal in (before, after) for place in (0, -1)]
    true = after.mean_iteration_s(*ends[2:]) / before.mean_iteration_s(*ends[:2])
    assert found.ok, found.reason
    assert found.ratio == pytest.approx(true, rel=0.006)
    assert 0 < found.rel_stderr < 0.01


def test_the_same_cap_has_ratio_one() -> None:
    template = locked("cnn", "20/10")
    again = heard("cnn", "20/10", 1.0, seed=4)
    found = ratio(template, again.t_s, again.power_w, slowest=2.0)
    assert found.ok
    assert found.ratio == pytest.approx(1.0, abs=0.01)


def test_neither_noise_nor_a_constant_nor_another_waveform_has_a_ratio() -> None:
    noise = record_noise("telegraph", SENSORS["20/10"], 20.0, np.random.default_rng(1))
    assert not ratio(locked("cnn", "20/10"), noise.t_s, noise.power_w, slowest=2.0).ok
    t_s = np.arange(0.0, 20.0, 0.02)
    still = ratio(locked("cnn", "20/10"), t_s, np.full(len(t_s), 120.0), slowest=2.0)
    assert (still.ok, still.ratio) == (False, None)
    assert "constant" in still.reason
    other = heard("cnn", "20/10", 1.0, period_s=1.3, seed=5)
    found = ratio(locked("accumulate4", "20/10"), other.t_s, other.power_w, slowest=2.0)
    assert not found.ok
    assert "waveform" in found.reason


def test_a_baseline_that_does_not_repeat_cannot_be_locked() -> None:
    before = heard("cnn", "20/10", 1.0)
    estimate = detect(before.t_s, before.power_w, update_s=0.02, window_s=0.01)
    t_s = np.arange(0.0, 20.0, 0.02)
    assert lock(t_s, np.full(len(t_s), 200.0), estimate, update_s=0.02) is None


SENSOR = SENSORS["20/10"]


def disturbed(span_s: float, *, disturbance: str = "none", jitter: float = 0.01, seed: int = 0) -> Signal:
    load = Load(waveform=WAVEFORMS["cnn"], period_s=0.6, jitter=jitter, disturbance=disturbance)
    return record(load, SENSOR, span_s, np.random.default_rng([seed, 6]))


def counted(signal: Signal) -> Cycles:
    before = disturbed(20.0, seed=99)
    estimate = detect(before.t_s, before.power_w, update_s=0.02, window_s=0.01)
    template = lock(before.t_s, before.power_w, estimate, update_s=0.02, window_s=0.01)
    cycles = count(template, signal.t_s, signal.power_w, update_s=0.02, window_s=0.01)
    assert cycles is not None
    return cycles


def realised(signal: Signal, cycles: Cycles) -> tuple[float, float]:
    """Seconds and iterations outside of what was left out."""
    inner = [span for span in cycles.excluded if cycles.t_s[0] < span[0] and span[1] < cycles.t_s[-1]]
    edges = [float(cycles.t_s[0]), *(edge for span in inner for edge in span), float(cycles.t_s[-1])]
    starts, ends = np.array(edges[::2]), np.array(edges[1::2])
    done = [np.interp(at, signal.progress_t_s, signal.progress) for at in (starts, ends)]
    return float(np.sum(ends - starts)), float(np.sum(done[1] - done[0]))


@pytest.mark.parametrize("span_s", [15.0, 60.0])
def test_the_count_is_right_to_a_twentieth_of_an_iteration(span_s: float) -> None:
    signal = disturbed(span_s)
    cycles = counted(signal)
    _, done = realised(signal, cycles)
    assert cycles.count[-1] - cycles.count[0] == pytest.approx(done, abs=0.05)


def test_the_error_falls_with_the_cycles_counted() -> None:
    assert counted(disturbed(80.0)).rel_stderr < 0.5 * counted(disturbed(12.0)).rel_stderr


def test_boundaries_ascend_by_one_cycle() -> None:
    cycles = counted(disturbed(20.0))
    assert np.all(np.diff(cycles.t_s) >= 0)
    assert np.allclose(np.diff(cycles.count)[1:-1], 1.0)


@pytest.mark.parametrize("disturbance", ["validation", "checkpoint", "stalls"])
def test_what_is_no_iteration_is_cut_out(disturbance: str) -> None:
    signal = disturbed(60.0, disturbance=disturbance, seed=3)
    cycles = counted(signal)
    seconds, done = realised(signal, cycles)
    assert any(end - start > 0.5 for start, end in cycles.excluded)
    assert cycles.period_s == pytest.approx(seconds / done, rel=0.003)
    assert cycles.period_s == pytest.approx(signal.mean_iteration_s(signal.t_s[0], signal.t_s[-1]), rel=0.01)


def test_a_signal_without_the_pattern_cannot_be_counted() -> None:
    before = disturbed(20.0)
    estimate = detect(before.t_s, before.power_w, update_s=0.02, window_s=0.01)
    t_s = np.arange(0.0, 20.0, 0.02)
    assert count(estimate, t_s, np.full(len(t_s), 90.0), update_s=0.02, window_s=0.01) is None


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


def followed() -> PhaseTracker:
    """On a job of 0.5 s, by 10 s of all readings."""
    tracker, t_s = PhaseTracker(PATTERN), np.arange(0.0, 10.0, 0.02)
    tracker.take(t_s, readings(t_s, t_s / 0.5))
    return tracker


def test_readings_now_and_then_count_every_iteration_of_a_pace_that_moves() -> None:
    tracker = followed()
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
        tracker, t_s = followed(), stamps(10.0, 30.0, 0.4)
        tracker.take(t_s, readings(t_s, 20.0 + (t_s - 10.0) / (0.5 * times)), seldom=True)
        assert not tracker.follows, times
        assert tracker.spare_s(0.4) == 0.0


def test_another_waveform_of_the_same_period_and_much_like_the_old_one_is_not_followed_for_long() -> None:
    """Correlation 0.98: each reading may be of the old one, all of them are not."""
    for every_s, seldom in ((0.4, True), (0.02, False)):
        for shape, expected in ((SHAPE.real, True), (np.array([40.0, 15.0, 12.0, -8.0, 6.0]), False)):
            tracker, t_s = followed(), stamps(10.0, 60.0, every_s)
            tracker.take(t_s, readings(t_s, t_s / 0.5, shape), seldom=seldom)
            assert tracker.follows is expected


def test_the_count_stands_still_in_a_pause() -> None:
    tracker = followed()
    before = tracker.count
    t_s = np.arange(10.0, 30.0, 0.02)
    idle = (t_s >= 12.0) & (t_s < 20.0)
    done = np.where(t_s < 12.0, t_s, np.maximum(t_s - 8.0, 12.0)) / 0.5
    tracker.take(t_s, np.where(idle, 60.0, readings(t_s, done)))
    assert abs(tracker.count - before - (done[-1] - 20.0)) < 1.0
