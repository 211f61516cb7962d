"""Readings that no sensor gave, for all that looks for a period in them."""

import numpy as np
from numpy.typing import NDArray

from autocap.progress.period import PeriodEstimate, Verdict, count, detect, lock, ratio
from autocap.progress.period.repetition import glimpse

Floats = NDArray[np.float64]

_LENGTHS = (0, 1, 2, 3, 5, 23, 24, 25, 30, 40, 60, 90, 150)


def play(seed: int) -> None:
    """One set of readings through detector, glimpse, lock, ratio and count. Raises whatever any of them does, and where
    numpy warns."""
    rng = np.random.default_rng(seed)
    t_s, power_w, step_s, period_s = readings(rng)
    update_s = float(rng.choice([step_s, step_s, 0.1, 1e-9, 1e9, 0.0]))
    window_s = float(rng.choice([0.0, step_s, 0.1, 1e9]))
    witnesses = [(t_s, power_w)] if rng.random() < 0.3 else []
    estimate = detect(t_s, power_w, update_s=update_s, window_s=window_s, witnesses=witnesses)
    glimpse(t_s, power_w, update_s=update_s, window_s=window_s)
    if estimate.period_s is None:  # what a caller may believe all the same
        estimate = PeriodEstimate(
            start_s=0.0, end_s=1.0, verdict=Verdict.PERIODIC, period_s=period_s, rel_stderr=0.01, reason="believed"
        )
    count(estimate, t_s, power_w, update_s=update_s, window_s=window_s)
    template = lock(t_s, power_w, estimate, update_s=update_s, window_s=window_s)
    if template is not None:
        others = (t_s, power_w) if rng.random() < 0.5 else readings(rng)[:2]
        ratio(template, *others, slowest=4.5)
        count(template, *others, update_s=update_s, window_s=window_s)


def readings(rng: np.random.Generator) -> tuple[Floats, Floats, float, float]:
    """Stamps and watts, shape (n,), and the step and the period that they began from, seconds."""
    size, step_s = int(rng.choice(_LENGTHS)), float(10.0 ** rng.uniform(-3, 2))
    period_s = step_s * float(rng.uniform(1.5, 12.0))
    with np.errstate(all="ignore"):
        t_s = _stamps(rng, size, step_s)
        power_w = _watts(rng, t_s, period_s)
        for _ in range(int(rng.integers(0, 4))):
            t_s, power_w = _spoilt(rng, t_s, power_w)
        if rng.random() < 0.2:
            t_s = t_s + rng.choice([1.7e9, -1e6, 1e15])
    return t_s, power_w, step_s, period_s


def _stamps(rng: np.random.Generator, size: int, step_s: float) -> Floats:
    even_s = np.arange(size) * step_s
    kinds = (
        even_s,
        np.cumsum(rng.exponential(step_s, size)),
        rng.uniform(0.0, size * step_s, size),  # in no order
        np.repeat(even_s, 3)[:size],
        np.cumsum(np.where(rng.random(size) < 0.1, 100 * step_s, step_s)),
        np.cumsum(10.0 ** rng.uniform(-9, 6, size)),
    )
    return np.asarray(kinds[int(rng.integers(len(kinds)))])


def _watts(rng: np.random.Generator, t_s: Floats, period_s: float) -> Floats:
    size, wave = len(t_s), np.sin(2 * np.pi * t_s / period_s)
    square_w = 200.0 + 50.0 * np.sign(wave)
    kinds = (
        square_w,
        np.full(size, rng.choice([0.0, 1.0, 250.0, 1e-300, 1e300])),
        rng.choice([100.0, 200.0], size),
        rng.normal(200.0, 20.0, size),
        np.cumsum(rng.normal(0.0, 5.0, size)) + 200.0,
        10.0 ** rng.uniform(-300, 300, size),
        200.0 + 50.0 * wave + rng.normal(0.0, 5.0, size),
        np.where(t_s % (20 * period_s) < 8 * period_s, 75.0, square_w),
    )
    return np.asarray(kinds[int(rng.integers(len(kinds)))])


def _spoilt(rng: np.random.Generator, t_s: Floats, power_w: Floats) -> tuple[Floats, Floats]:
    """With some of them replaced, or all of them scaled beyond reason."""
    here = rng.random(len(t_s)) < rng.choice([0.02, 0.2, 0.9])
    scale = 10.0 ** rng.uniform(-300, 300)
    odd_w = float(rng.choice([np.nan, np.inf, -np.inf, 0.0, -5.0, 1e300, 1e-300, 5e-324]))
    odd_s = float(rng.choice([np.nan, np.inf, -np.inf, 1e300, -1e300, 0.0]))
    kinds = (
        (t_s, np.where(here, odd_w, power_w)),
        (t_s, np.where(here, odd_w, power_w)),
        (np.where(here, odd_s, t_s), power_w),
        (t_s * scale, power_w),
        (t_s, power_w * scale),
    )
    return kinds[int(rng.integers(len(kinds)))]
