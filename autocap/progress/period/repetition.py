"""Whether what was found repeats at all: the waveform of one half of the signal must predict the other half. A long
cycle that shows before there are cycles enough to tell its period is a reason to go on looking, and no more.

Noise of any colour gives a best period, and a phase path that flatters it; but the waveform it yields is an accident
of the half it was folded from. The test asks as much as surrogates of the same spectrum do, at a hundredth of the cost.
"""

import numpy as np

from autocap.progress.period import candidates
from autocap.progress.period.candidates import fourier
from autocap.progress.period.estimate import Bools, Floats
from autocap.progress.period.locate import kept_spans, locate
from autocap.progress.period.pattern import Fit
from autocap.progress.period.series import Series, prepare

_LEAST_NOISE = 0.01
_BLOCK_READINGS = 12
_BLOCK_CYCLES = 2.0
_PLACES, _LOW = 256, 0.25


def repetition(fit: Fit, series: Series) -> float:
    """The share of the variation about its level, 0 to 1 (below 0 for worse than nothing), of the worse-predicted of
    two halves that the waveform folded from the other half predicts.
    """
    waves = fourier(fit.phase, len(fit.coefficients))
    y = series.y - fit.level
    orders = np.tile(np.arange(1, len(fit.coefficients) + 1), 2)
    ridge = np.diag(np.maximum(fit.residual**2, _LEAST_NOISE) * orders**2 / 4.0)
    half = np.searchsorted(np.cumsum(fit.keep), int(fit.keep.sum()) / 2)
    first = np.arange(len(y)) < half
    one, other = fit.keep & first, fit.keep & ~first
    return min(_predicted(waves, y, one, other, ridge), _predicted(waves, y, other, one, ridge))


def _predicted(waves: Floats, y: Floats, known: Bools, other: Bools, ridge: Floats) -> float:
    design, values = waves[known], y[known] - y[known].mean()
    weights = np.linalg.solve(design.T @ design + ridge, design.T @ values)
    target = y[other] - y[other].mean()
    rest = target - waves[other] @ weights
    rest = rest - rest.mean()
    return 1.0 - float(rest @ rest) / max(float(target @ target), 1e-12)


def explained(fit: Fit, series: Series, among: Bools) -> float:
    """The share of the variation within some readings, shape (n,), that the pattern explains."""
    kept = fit.keep & among
    total = float(np.var((series.y - fit.level)[kept])) if kept.any() else 0.0
    return 1.0 - float(np.mean(fit.rest[kept] ** 2)) / total if total > 0 else 0.0


def surprise(fit: Fit, series: Series) -> float:
    """How much better the pattern predicts the readings than their own recent past does: half the log ratio of the
    variances that an autoregression leaves of the readings without and with the pattern, per reading kept, less the
    freedom that the fit consumed. Noise of any colour that an autoregression describes gives about 0 or less.
    """
    without = _innovation((series.y - fit.level)[fit.keep])
    left = _innovation(fit.rest[fit.keep])
    return 0.5 * float(np.log(without / left)) - fit.used / int(fit.keep.sum())


def _innovation(values: Floats) -> float:
    """Variance that a first-order autoregression leaves."""
    values = values - values.mean()
    past, now = values[:-1], values[1:]
    ridge = 1e-9 * (1 + float(values @ values))
    rest = now - past * (past @ now / (past @ past + ridge))
    return max(float(rest @ rest) / len(now), 1e-12)


def slowness(fit: Fit, series: Series) -> float:
    """The share of the waveform's variance that lies in its means over some cycles, 0 to 1.

    A period close to a few updates samples the same few places of the cycle for long, so that its harmonics can draw
    any slow change. A waveform proper has the same mean in every stretch of cycles.
    """
    wave = (series.y - fit.level - fit.rest)[fit.keep]
    readings = len(fit.u) / float(fit.u[-1])
    size = int(max(_BLOCK_READINGS, np.ceil(_BLOCK_CYCLES * readings)))
    if len(wave) < 2 * size:
        return 0.0
    means = np.array([part.mean() for part in np.array_split(wave, len(wave) // size)])
    return float(np.var(means) / max(float(np.var(wave)), 1e-12))


def longest_low(fit: Fit) -> float:
    """The longest part of the cycle, 0 to 1, in which the waveform stays near its lowest."""
    wave = fit.waveform(np.arange(_PLACES) / _PLACES)
    low = wave < wave.min() + _LOW * np.ptp(wave)
    high = np.flatnonzero(~np.concatenate((low, low)))  # round the end of the cycle as well
    return float(np.max(np.diff(high)) - 1) / _PLACES


_FEWEST, _MOST = 3.0, 13.0  # cycles in the readings; of fewer nothing can be said, of more the detector itself says it
_REPEATS, _SLOW, _BETTER = 0.4, 0.3, 0.05  # as the detector's doubts, for a few cycles of many readings


def glimpse(t_s: Floats, power_w: Floats, *, update_s: float, window_s: float) -> float | None:
    """The period that shows in a few cycles, seconds; `None` where none does.

    t_s, power_w, update_s, window_s: as the detector takes them.
    """
    series = prepare(t_s, power_w, update_s=update_s, window_s=window_s)
    if series is None:
        return None
    shortest_s, longest_s = series.span_s / _MOST, series.span_s / _FEWEST
    found = candidates.find(series, shortest_s=shortest_s, longest_s=longest_s)
    fits = [fit for period_s in found if (fit := locate(series, period_s)) is not None]
    best = max(fits, key=lambda fit: fit.evidence, default=None)
    if best is None:
        return None
    spans = kept_spans(best)
    if spans.cycles < _FEWEST or repetition(best, series) < _REPEATS:
        return None
    return None if slowness(best, series) > _SLOW or surprise(best, series) < _BETTER else spans.period_s
