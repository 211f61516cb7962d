"""From a rough period to a fitted pattern: a first waveform, the phase along it, and the joint fit, twice.

The second round knows the waveform well enough to tell which stretches are not the pattern: stalls, validation,
checkpoints, warm-up.
"""

import numpy as np
from numpy.typing import NDArray

from autocap.progress.period import pattern, track
from autocap.progress.period.candidates import fourier
from autocap.progress.period.pattern import Fit
from autocap.progress.period.series import Series, above_level
from autocap.progress.period.spans import countable
from autocap.progress.period.track import COMPETING, KNOWN, Tolerance

_FIRST_HARMONICS = 5
_RIDGE = 1e-4  # where a few phases of the cycle are all that is seen
_MOST_HARMONICS = 16
_STRETCH_CYCLES = 10.0
_STRETCH_READINGS = 40
_FIRST_WALK, _LEAST_WALK = 0.05, 0.01  # per cycle, to begin with
_REFINING = 3
_LEAST_BLOCKS, _LEAST_READINGS = 0.4, 0.3  # of the series, that follow the pattern
_LEAST_KEPT = 0.6  # of the readings kept before
_FEWEST_CYCLES = 2.0  # in a stretch that may teach the waveform


def harmonics_for(period_s: float, series: Series) -> int:
    """How many harmonics the sensor lets through and the readings can tell apart."""
    through = harmonics_through(period_s, max(series.window_s, 0.25 * series.step_s))
    return min(through, len(series.y) // 12)


def harmonics_through(period_s: float, window_s: float) -> int:
    """How many harmonics an average over window_s lets through."""
    return int(np.clip(0.6 * period_s / window_s, 2, _MOST_HARMONICS))


def locate(series: Series, period_s: float) -> Fit | None:
    """The pattern with about that period; `None` where most of the series does not follow it."""
    first = _first_waveform(series, period_s)
    if first is None:
        return None
    coefficients, noise, period_s = first
    return settle(series, period_s, coefficients, noise=noise, walk=_FIRST_WALK)


def settle(
    series: Series,
    period_s: float,
    coefficients: NDArray[np.complex128],
    *,
    noise: float,
    walk: float,
    steps: int = 4,
    tolerance: Tolerance = COMPETING,
) -> Fit | None:
    """Track a waveform and fit it, roughly, then once more with what the first fit taught."""
    knots = pattern.knots_for(series.span_s / period_s, len(series.y))
    u = (series.busy_s - series.busy_s[0]) / period_s
    block = track.between(u, knots)
    cuts = track.between(series.cuts_within() / period_s, knots)
    harmonics = harmonics_for(period_s, series)
    flat = above_level(series, period_s)
    fit: Fit | None = None
    for tries in (max(1, steps // 2), steps):  # the first round need not be exact
        walk = max(walk, _LEAST_WALK)
        way = track.path(u, flat, knots, coefficients, noise=noise, walk=walk, tolerance=tolerance, cuts=cuts)
        # Of readings that come unevenly the blocks that are followed may hold next to none.
        if np.mean(way.blocks) < _LEAST_BLOCKS or np.mean(way.blocks[block]) < _LEAST_READINGS:
            return None
        try:
            fit = pattern.fit(series, period_s, knots, way, walk=walk, harmonics=harmonics, steps=tries)
        except np.linalg.LinAlgError:
            return None
        coefficients, noise, walk = fit.coefficients, fit.residual, fit.walk
    return fit if fit is not None and countable(fit) else None


def refined(fit: Fit, series: Series, period_s: float) -> Fit:
    """The fit once more, at a period that is settled: what is not its waveform is left out more readily."""
    again = settle(
        series, period_s, fit.coefficients, noise=fit.residual, walk=fit.walk, steps=_REFINING, tolerance=KNOWN
    )
    kept = 0.0 if again is None else again.keep.sum() / max(fit.keep.sum(), 1)
    return fit if again is None or kept < _LEAST_KEPT else again


def _first_waveform(series: Series, period_s: float) -> tuple[NDArray[np.complex128], float, float] | None:
    """The waveform of the stretch of some cycles that repeats best, the rest it leaves there, and its own period."""
    u = (series.busy_s - series.busy_s[0]) / period_s
    flat = above_level(series, period_s)
    size = int(max(_STRETCH_READINGS, _STRETCH_CYCLES * len(u) / u[-1]))
    harmonics = min(_FIRST_HARMONICS, harmonics_for(period_s, series), size // 8)
    best: tuple[float, NDArray[np.complex128], float, float] | None = None
    for part in np.array_split(np.arange(len(u)), max(1, len(u) // size)):
        values = flat[part] - flat[part].mean()
        total = float(values @ values)
        if total <= 0:
            continue
        span = float(u[part[-1]] - u[part[0]])
        if span < _FEWEST_CYCLES:  # a burst of readings
            continue
        changes = np.linspace(-0.5, 0.5, 5) / span
        designs = fourier(np.outer(1 + changes, u[part] - u[part[0]]).ravel(), harmonics)
        designs = designs.reshape(len(changes), len(part), 2 * harmonics)
        squares = designs.transpose(0, 2, 1) @ designs + _RIDGE * len(part) * np.eye(2 * harmonics)
        solutions = np.linalg.solve(squares, (values @ designs)[:, :, None])[:, :, 0]
        rests = values - (designs @ solutions[:, :, None])[:, :, 0]
        left = np.sum(rests**2, axis=1)
        place = int(np.argmin(left))
        if best is None or left[place] / total < best[0]:
            noise = float(np.sqrt(left[place] / max(len(part) - 2 * harmonics, 1)))
            amplitudes = solutions[place, :harmonics] + 1j * solutions[place, harmonics:]
            best = (float(left[place]) / total, amplitudes, noise, period_s / (1 + float(changes[place])))
    return None if best is None else (best[1], max(best[2], 1e-3), best[3])
