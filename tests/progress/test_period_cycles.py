"""Counting iterations by their phase: right to a fraction of one, around what is none."""

import numpy as np
import pytest

from autocap.progress.period import Cycles, detect, lock
from autocap.progress.period.locate import count
from bench.period.signals import SENSORS, WAVEFORMS, Load, Signal, record

SENSOR = SENSORS["20/10"]


def heard(span_s: float, *, disturbance: str = "none", jitter: float = 0.01, seed: int = 0) -> Signal:
    load = Load(waveform=WAVEFORMS["cnn"], period_s=0.6, jitter=jitter, disturbance=disturbance)
    return record(load, SENSOR, span_s, np.random.default_rng([seed, 6]))


def counted(signal: Signal) -> Cycles:
    before = heard(20.0, seed=99)
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
    signal = heard(span_s)
    cycles = counted(signal)
    _, done = realised(signal, cycles)
    assert cycles.count[-1] - cycles.count[0] == pytest.approx(done, abs=0.05)


def test_the_error_falls_with_the_cycles_counted() -> None:
    assert counted(heard(80.0)).rel_stderr < 0.5 * counted(heard(12.0)).rel_stderr


def test_boundaries_ascend_by_one_cycle() -> None:
    cycles = counted(heard(20.0))
    assert np.all(np.diff(cycles.t_s) >= 0)
    assert np.allclose(np.diff(cycles.count)[1:-1], 1.0)


@pytest.mark.parametrize("disturbance", ["validation", "checkpoint", "stalls"])
def test_what_is_no_iteration_is_cut_out(disturbance: str) -> None:
    signal = heard(60.0, disturbance=disturbance, seed=3)
    cycles = counted(signal)
    seconds, done = realised(signal, cycles)
    assert any(end - start > 0.5 for start, end in cycles.excluded)
    assert cycles.period_s == pytest.approx(seconds / done, rel=0.003)
    assert cycles.period_s == pytest.approx(signal.mean_iteration_s(signal.t_s[0], signal.t_s[-1]), rel=0.01)


def test_a_signal_without_the_pattern_cannot_be_counted() -> None:
    before = heard(20.0)
    estimate = detect(before.t_s, before.power_w, update_s=0.02, window_s=0.01)
    t_s = np.arange(0.0, 20.0, 0.02)
    assert count(estimate, t_s, np.full(len(t_s), 90.0), update_s=0.02, window_s=0.01) is None
