"""The period at another cap against the baseline's: precise, the same multiple, or "cannot tell"."""

from functools import cache

import numpy as np
import pytest

from autocap.progress.period import Template, Verdict, detect, lock, ratio
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
