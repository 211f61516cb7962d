"""The cases of the period benchmark, and what each method makes of one.

Beside the detector there are three plain ways to find a period. Each gets the readings on a uniform grid and gives
seconds, or nothing; none says how sure it is.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autocap.progress.period import Verdict, detect, lock, ratio
from bench.period.signals import (
    DISTURBANCES,
    JITTERS,
    NULLS,
    SENSORS,
    WAVEFORMS,
    Load,
    SensorCase,
    Signal,
    record,
    record_noise,
)

Floats = NDArray[np.float64]

_SHORTEST_UPDATES = 2.2
_FEWEST_CYCLES = 8
_YIN_THRESHOLD = 0.15


def fft_peak(even: Floats, step_s: float) -> float | None:
    """The largest line of the spectrum (what several published power-signal detectors do)."""
    power = np.abs(np.fft.rfft((even - even.mean()) * np.hanning(len(even)))) ** 2
    low, high = _FEWEST_CYCLES, int(len(even) / _SHORTEST_UPDATES)
    if high <= low:
        return None
    place = low + int(np.argmax(power[low:high]))
    left, here, right = power[place - 1 : place + 2] if place + 1 < len(power) else (0.0, 1.0, 0.0)
    bend = left - 2 * here + right
    return len(even) * step_s / (place + (0.5 * float((left - right) / bend) if bend else 0.0))


def autocorrelation_peak(even: Floats, step_s: float) -> float | None:
    """The highest local maximum of the autocorrelation."""
    centred = even - even.mean()
    spectrum = np.abs(np.fft.rfft(centred, 2 * len(centred))) ** 2
    repeats = np.fft.irfft(spectrum)[: len(centred) // _FEWEST_CYCLES]
    inner = np.arange(max(2, int(_SHORTEST_UPDATES)), len(repeats) - 1)
    tops = inner[(repeats[inner] >= repeats[inner - 1]) & (repeats[inner] > repeats[inner + 1])]
    if len(tops) == 0:
        return None
    return _sharpened(repeats, int(tops[np.argmax(repeats[tops])])) * step_s


def yin(even: Floats, step_s: float) -> float | None:
    """The first dip of the cumulative mean normalised difference (de Cheveigné and Kawahara, 2002)."""
    longest = len(even) // _FEWEST_CYCLES
    size = len(even) - longest
    differences = np.array([np.sum((even[:size] - even[lag : lag + size]) ** 2) for lag in range(longest)])
    lags = np.arange(1, longest)
    normal = np.concatenate(([1.0], differences[1:] * lags / np.maximum(np.cumsum(differences[1:]), 1e-12)))
    inner = np.arange(2, longest - 1)
    dips = inner[(normal[inner] <= normal[inner - 1]) & (normal[inner] < normal[inner + 1])]
    if len(dips) == 0:
        return None
    deep = dips[normal[dips] < _YIN_THRESHOLD]
    return _sharpened(-normal, int(deep[0] if len(deep) else dips[np.argmin(normal[dips])])) * step_s


RIVALS: dict[str, Callable[[Floats, float], float | None]] = {
    "fft": fft_peak,
    "autocorrelation": autocorrelation_peak,
    "yin": yin,
}


def rival(name: str, t_s: Floats, power_w: Floats, update_s: float) -> float | None:
    """What a plain method finds in readings with their own stamps."""
    grid_s = np.arange(t_s[0], t_s[-1], update_s)
    return RIVALS[name](np.interp(grid_s, t_s, power_w), update_s)


def _sharpened(values: Floats, place: int) -> float:
    """A local maximum's place, by a parabola."""
    left, here, right = values[place - 1 : place + 2]
    bend = float(left - 2 * here + right)
    return place + (0.5 * float(left - right) / bend if bend else 0.0)


SLOWDOWNS = (1.02, 1.05, 1.10, 1.30, 2.00)
OURS = "autocap"
_PERIODS_S = (0.1, 10.0)
_WINDOW_S, _WINDOW_CYCLES = 20.0, 12.3  # a little over 12, so that 12 whole cycles are inside whatever the jitter
_MULTIPLE = 8
_NEAR = 0.03
_FLATTEN = 0.85
_SLOWEST = 2.3


@dataclass(frozen=True, slots=True)
class Row:
    """What one method made of one signal.

    kind: "absolute", "ratio", "unlocked" or "null". called: whether it claims a period or a ratio. error: relative,
    against the nearest multiple of the mean realised in its window, or the realised ratio; `None` without a claim.
    multiple: of the true period; 0 where the claim is none. rel_stderr: as stated. cpu_s: spent on it. updates: in a
    period.
    """

    sensor: str
    waveform: str
    period_s: float
    jitter: float
    disturbance: str
    slowdown: float
    seed: int
    kind: str = "absolute"
    method: str = OURS
    called: bool = False
    error: float | None = None
    multiple: int = 0
    rel_stderr: float | None = None
    cpu_s: float = 0.0
    updates: float = 0.0


def absolute(seeds: range, periods: int, stride: int = 1) -> Iterator[Row]:
    """Every sensor, waveform, jitter and disturbance at log-spaced periods, each with its own random numbers; or only
    every stride-th of them.
    """
    for seed in seeds:
        for number, (sensor, waveform, jitter, disturbance, place) in enumerate(_grid(periods)):
            if number % stride:
                continue
            rng = np.random.default_rng([seed, 1, number])
            step = (place + rng.random()) / periods
            period_s = _PERIODS_S[0] * (_PERIODS_S[1] / _PERIODS_S[0]) ** step
            load = Load(waveform=WAVEFORMS[waveform], period_s=period_s, jitter=jitter, disturbance=disturbance)
            case = SENSORS[sensor]
            span_s = _span_s(period_s) * (1.0 if disturbance in ("none", "drift") else 1.5)
            signal = record(load, case, span_s, rng)
            row = Row(sensor, waveform, period_s, jitter, disturbance, 1.0, seed)
            yield _ours(signal, case, row)
            yield from (_rival(name, signal, case, row) for name in RIVALS)


def ratios(seeds: range, periods: int, stride: int = 1) -> Iterator[Row]:
    """Two windows at two caps, over sensors, waveforms, jitters up to 3 % and slowdowns."""
    for seed in seeds:
        number = 0
        for sensor in SENSORS:
            for waveform in WAVEFORMS:
                for slowdown in SLOWDOWNS:
                    for place in range(periods):
                        number += 1
                        if number % stride:
                            continue
                        rng = np.random.default_rng([seed, 2, number])
                        yield _ratio(sensor, waveform, slowdown, (place + rng.random()) / periods, seed, rng)


def nulls(seeds: range, repeats: int) -> Iterator[Row]:
    """Signals that repeat nothing, through every sensor."""
    for seed in seeds:
        for kind in NULLS:
            for sensor, case in SENSORS.items():
                for number in range(repeats):
                    rng = np.random.default_rng([seed, 3, number])
                    signal = record_noise(kind, case, float(rng.choice([20.0, 40.0, 80.0])), rng)
                    row = Row(sensor, kind, 0.0, 0.0, "none", 1.0, seed, kind="null")
                    yield _ours(signal, case, row)
                    yield from (_rival(name, signal, case, row) for name in RIVALS)


def _claimed(row: Row, method: str, update_s: float, cpu_s: float, found_s: float | None, true_s: float) -> Row:
    """The row with what a method claims."""
    row = replace(row, method=method, cpu_s=cpu_s, updates=row.period_s / update_s, called=found_s is not None)
    if found_s is None or not np.isfinite(true_s):
        return row
    multiple = min(max(1, round(found_s / true_s)), _MULTIPLE)
    return replace(row, multiple=multiple, error=found_s / (multiple * true_s) - 1.0)


def _grid(periods: int) -> Iterator[tuple[str, str, float, str, int]]:
    """Undisturbed: every combination. Disturbed: the sensors and waveforms at a jitter of 1 %."""
    for sensor in SENSORS:
        for waveform in WAVEFORMS:
            for place in range(periods):
                for jitter in JITTERS:
                    yield sensor, waveform, jitter, DISTURBANCES[0], place
                for disturbance in DISTURBANCES[1:]:
                    yield sensor, waveform, 0.01, disturbance, place


def _span_s(period_s: float) -> float:
    return max(_WINDOW_S, _WINDOW_CYCLES * period_s)


def _ours(signal: Signal, case: SensorCase, row: Row) -> Row:
    begin_s = time.process_time()
    estimate = detect(signal.t_s, signal.power_w, update_s=case.update_s, window_s=case.window_s)
    cpu_s = time.process_time() - begin_s
    claimed = estimate.verdict is Verdict.PERIODIC
    real = claimed and len(signal.progress) > 0
    true_s = signal.mean_iteration_s(estimate.start_s, estimate.end_s) if real else np.nan
    found_s = estimate.period_s if claimed else None
    row = replace(row, rel_stderr=estimate.rel_stderr if claimed else None)
    return _claimed(row, OURS, case.update_s, cpu_s, found_s, true_s)


def _rival(name: str, signal: Signal, case: SensorCase, row: Row) -> Row:
    begin_s = time.process_time()
    found_s = rival(name, signal.t_s, signal.power_w, case.update_s)
    cpu_s = time.process_time() - begin_s
    real = len(signal.progress) > 0
    true_s = signal.mean_iteration_s(float(signal.t_s[0]), float(signal.t_s[-1])) if real else np.nan
    return _claimed(row, name, case.update_s, cpu_s, found_s, true_s)


def _ratio(sensor: str, waveform: str, slowdown: float, step: float, seed: int, rng: np.random.Generator) -> Row:
    """Lock at the baseline, then the same job at a cap."""
    case = SENSORS[sensor]
    lowest_s = max(_PERIODS_S[0], 3 * case.update_s)
    period_s = lowest_s * (_PERIODS_S[1] / lowest_s) ** step
    jitter = float(rng.choice(JITTERS[:3]))
    unlocked = Row(sensor, waveform, period_s, jitter, "none", slowdown, seed, kind="unlocked")
    base = Load(waveform=WAVEFORMS[waveform], period_s=period_s, jitter=jitter)
    capped = Load(waveform=WAVEFORMS[waveform], period_s=period_s, jitter=jitter, slowdown=slowdown, flatten=_FLATTEN)
    before = record(base, case, _span_s(period_s), rng)
    after = record(capped, case, _span_s(period_s * slowdown), rng)
    locked = detect(before.t_s, before.power_w, update_s=case.update_s, window_s=case.window_s)
    if locked.verdict is not Verdict.PERIODIC:
        return _claimed(unlocked, OURS, case.update_s, 0.0, None, slowdown)
    template = lock(before.t_s, before.power_w, locked, update_s=case.update_s, window_s=case.window_s)
    if template is None:
        return _claimed(unlocked, OURS, case.update_s, 0.0, None, slowdown)
    begin_s = time.process_time()
    found = ratio(template, after.t_s, after.power_w, slowest=_SLOWEST)
    cpu_s = time.process_time() - begin_s
    true = after.mean_iteration_s(float(after.t_s[0]), float(after.t_s[-1])) / before.mean_iteration_s(
        float(before.t_s[0]), float(before.t_s[-1])
    )
    row = replace(unlocked, kind="ratio", rel_stderr=found.rel_stderr)
    row = _claimed(row, OURS, case.update_s, cpu_s, found.ratio if found.ok else None, np.nan)
    if not row.called or found.ratio is None:
        return row
    return _with_error(row, found.ratio / true - 1.0)


def _with_error(row: Row, error: float) -> Row:
    return replace(row, error=error, multiple=1 if abs(error) < _NEAR else 0)
