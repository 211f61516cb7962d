"""Which periods are worth a closer look: peaks of autocorrelation and spectrum, and their multiples.

Readings are resampled onto a uniform grid here and only here. Pieces of the signal are searched as well as the whole,
so that a gap or a validation pass in one of them does not hide the pattern of the others.
"""

from collections.abc import Iterable

import numpy as np

from autocap.progress.period.estimate import Floats
from autocap.progress.period.series import Series

_PIECES = ((0.0, 1.0), (0.0, 0.4), (0.3, 0.7), (0.6, 1.0))
_PEAKS, _CANDIDATES = 4, 4
_MULTIPLES = (1, 2, 3, 4, 5)
_PADDING = 4
_SAME = 0.03
_PROMISING = 0.3  # of the best one's score
_DISTINCT = 0.004
_FEW_READINGS = 8.0
_FOLD_READINGS = 100
_FOLD_PIECES = 2
_FOLD_STEPS = 4.0
_MOST_FOLDS = 4000  # ten times as many as even readings need; a piece that is nearly all gap would need millions
_SEGMENT_CYCLES = 6.0
_SEGMENT_READINGS = 30
_SCREEN_HARMONICS = 14
_RIDGE = 1e-2
_SHARPENING_HARMONICS = 5


def find(series: Series, *, shortest_s: float, longest_s: float) -> list[float]:
    """The few most promising periods, best first, seconds."""
    t_s, y, step_s = series.busy_s, series.y, series.step_s
    even = np.interp(np.arange(t_s[0], t_s[-1], step_s), t_s, y)
    raw: list[float] = []
    for start, end in _PIECES:
        piece = even[int(start * len(even)) : int(end * len(even))]
        raw += _peaks(piece, step_s, shortest_s, min(longest_s, len(piece) * step_s / 3))
    periods = _distinct([p for p in raw if shortest_s <= p <= longest_s])
    scored = sorted(((screen(t_s, y, period), period) for period in periods), reverse=True)
    best: list[float] = []
    for score, period in scored:
        if score > _PROMISING * scored[0][0] and not near(period, best, within=_SAME):
            best.append(period)
    return best[:_CANDIDATES]


def near(period_s: float, others_s: Iterable[float], within: float = 0.02) -> bool:
    """Whether a period is one of some others, to a relative difference."""
    return any(abs(period_s / other_s - 1) <= within for other_s in others_s)


def screen(t_s: Floats, y: Floats, period_s: float) -> float:
    """How much of the variation repeats with the period, piece by piece: the adjusted R² of folding each stretch of
    some cycles by itself, so that jitter and interruptions elsewhere do not matter.
    """
    u = (t_s - t_s[0]) / period_s
    size = int(max(_SEGMENT_READINGS, np.ceil(_SEGMENT_CYCLES * len(t_s) / u[-1])))
    pieces = max(1, len(t_s) // size)
    harmonics = int(np.clip(0.4 * len(t_s) / u[-1], 1, min(_SCREEN_HARMONICS, size // 4)))
    design = np.column_stack((np.ones(len(u)), u - u.mean(), fourier(u, harmonics)))
    ridge = _RIDGE * np.eye(design.shape[1])
    left, total = [], []
    for part in np.array_split(np.arange(len(t_s)), pieces):
        columns, values = design[part], y[part]
        spread = float(np.var(values))
        rest = values - columns @ np.linalg.solve(columns.T @ columns + ridge, columns.T @ values)
        freedom = max(len(part) - columns.shape[1], 1)
        left.append(min(float(rest @ rest) / freedom, spread))
        total.append(spread)
    shares = 1.0 - np.array(left) / np.maximum(total, 1e-12)
    return float(np.median(shares))


def fourier(u: Floats, harmonics: int) -> Floats:
    """Cosines, then sines, of 2π·k·u for k from 1 to harmonics; shape (n, 2·harmonics)."""
    turns = np.exp(2j * np.pi * u)
    power = turns
    waves = np.empty((2 * harmonics, len(u)))
    for order in range(harmonics):
        waves[order], waves[harmonics + order] = power.real, power.imag
        power = power * turns
    return waves.T


def _peaks(even: Floats, step_s: float, shortest_s: float, longest_s: float) -> list[float]:
    """Periods at the peaks of a uniform piece's autocorrelation and spectrum, with their multiples."""
    if len(even) < 16:
        return []
    slope = np.linspace(-1, 1, len(even))
    even = even - even.mean() - slope * float(slope @ even) / float(slope @ slope)
    spectrum = np.abs(np.fft.rfft(even, 2 * len(even))) ** 2
    repeats = np.fft.irfft(spectrum)[: len(even) * 2 // 3]
    repeats = repeats / np.maximum(np.arange(len(even), len(even) - len(repeats), -1), 1)
    lags = _highest(repeats, int(shortest_s / step_s), int(longest_s / step_s) + 2)
    tapered = np.abs(np.fft.rfft(even * np.hanning(len(even)), _PADDING * len(even))) ** 2
    size = _PADDING * len(even) * step_s
    lines = _highest(tapered, int(size / longest_s), int(size / shortest_s) + 2)
    multiples = size / lines[lines > 0, None] * np.array(_MULTIPLES)
    return _sharpened(tapered, size, np.concatenate((lags * step_s, multiples.ravel())))


def fold(series: Series, *, shortest_s: float, longest_s: float) -> list[float]:
    """Periods of so few readings a cycle that no uniform grid shows their shape: where folding many cycles at the
    actual stamps gives the smoothest waveform (Lafler and Kinman, 1965), in each of some pieces.
    """
    t_s, y = series.busy_s, series.y
    longest_s = min(longest_s, _FEW_READINGS * series.step_s)
    if longest_s <= shortest_s:
        return []
    found: list[float] = []
    for part in np.array_split(np.arange(len(t_s)), max(1, len(t_s) // _FOLD_READINGS))[:_FOLD_PIECES]:
        stamps_s, values = t_s[part] - t_s[part[0]], y[part]
        step_hz = min(1.0, 2.0 * series.window_s / shortest_s) / (_FOLD_STEPS * stamps_s[-1])
        if 1.0 / shortest_s - 1.0 / longest_s > _MOST_FOLDS * step_hz:
            continue
        hz = np.arange(1.0 / longest_s, 1.0 / shortest_s, step_hz)
        order = np.argsort(np.outer(hz, stamps_s) % 1.0, axis=1)
        sorted_y = values[order]
        rough = np.sum(np.diff(sorted_y, axis=1) ** 2, axis=1) / max(float(np.var(values)) * len(values), 1e-12)
        found += [1.0 / float(np.interp(place, np.arange(len(hz)), hz)) for place in _highest(2.5 - rough, 0, len(hz))]
    return _distinct(found)


def _highest(values: Floats, first: int, end: int) -> Floats:
    """Places of the highest local maxima between two places, sharpened by a parabola."""
    inner = np.arange(min(max(first, 1), len(values)), min(end, len(values) - 1))
    if len(inner) == 0:
        return np.empty(0)
    before, here, after = values[inner - 1], values[inner], values[inner + 1]
    tops = np.flatnonzero((here >= before) & (here > after) & (here > 0))
    tops = tops[np.argsort(here[tops])[::-1][:_PEAKS]]
    bend = np.maximum(2 * here[tops] - before[tops] - after[tops], 1e-300)
    return np.asarray(inner[tops] + (after[tops] - before[tops]) / (2 * bend), dtype=np.float64)


def _sharpened(tapered: Floats, size: float, periods_s: Floats) -> list[float]:
    """For each of some periods the one near it whose harmonics hold the most of the spectrum."""
    width = _PADDING * 1.5
    centres = size / periods_s
    lowest, highest = np.maximum(centres - width, 0.5 * centres), np.minimum(centres + width, 1.5 * centres)
    places = np.linspace(lowest, highest, 25, axis=-1)
    at = places[:, None, :] * np.arange(1, _SHARPENING_HARMONICS + 1)[:, None]
    usable = at < len(tapered) - 1
    power = np.where(usable, np.interp(at, np.arange(len(tapered)), tapered), 0.0).sum(axis=1)
    best = places[np.arange(len(places)), np.argmax(power, axis=1)]
    return [size / float(place) for place in best]


def _distinct(periods: list[float]) -> list[float]:
    distinct: list[float] = []
    for period in sorted(periods):
        if not distinct or period > distinct[-1] * (1 + _DISTINCT):
            distinct.append(period)
    return distinct
