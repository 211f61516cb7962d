"""From a rough period to a fitted pattern: a first waveform, the phase along it, and the joint fit, twice; and the
cycles counted along that phase, around what does not belong to the pattern.

The second round knows the waveform well enough to tell which stretches are not the pattern: stalls, validation,
checkpoints, warm-up.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocap.progress.period import pattern
from autocap.progress.period.candidates import fourier
from autocap.progress.period.estimate import Cycles, Floats, PeriodEstimate, Template
from autocap.progress.period.pattern import COMPETING, KNOWN, Fit, Tolerance
from autocap.progress.period.series import Series, above_level, prepare

# Set by simulation (python -m bench period, other seeds than those reported): what is left of a fit is not white, and
# within the stretch between two knots the phase wanders as well, which the ends of a span feel.
_STDERR_SCALE = 1.3
_END_SHARE = 0.25
_STDERR_FLOOR = 1e-5
_GAP_CYCLES = 1.0
_PACE = (0.5, 2.0)  # cycles for each nominal one: beyond, the phase that was fitted is not that of the pattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """The stretches of a fit that belong to the pattern. spans_u: in nominal cycles. cycles: in all of them.
    period_s: their mean, rel_stderr: its relative standard error.
    """

    spans_u: tuple[tuple[float, float], ...]
    cycles: float
    period_s: float
    rel_stderr: float


def countable(fit: Fit) -> bool:
    """Whether there is a stretch to count cycles in: two neighbouring readings that were kept, less than a cycle apart,
    and a phase that goes on about as fast as it was taken to."""
    spans_u = _stretches_u(fit)
    nominal = sum(end - start for start, end in spans_u)
    cycles, _ = fit.cycles_between(spans_u)
    return _PACE[0] * nominal < cycles < _PACE[1] * nominal


def kept_spans(fit: Fit) -> Spans:
    """The kept stretches of a countable fit, from the first reading of each to the last."""
    spans = _stretches_u(fit)
    cycles, error = fit.cycles_between(spans)
    wander = 2 * len(spans) * _END_SHARE * float(fit.knots[1] - fit.knots[0]) * fit.walk**2
    kept_u = sum(end - start for start, end in spans)
    # The truth is the mean of every cycle between the ends, also of those that were left out: a sample of some.
    unseen = cycles * (1 - kept_u / (spans[-1][1] - spans[0][0])) * fit.walk**2
    time_s = fit.period_s * kept_u
    return Spans(
        spans_u=tuple(spans),
        cycles=float(cycles),
        period_s=float(time_s / cycles),
        rel_stderr=math.sqrt((_STDERR_SCALE * error) ** 2 + wander + unseen) / cycles + _STDERR_FLOOR,
    )


def _stretches_u(fit: Fit) -> list[tuple[float, float]]:
    """Where readings are kept without a gap of a cycle, from the first of them to the last, in nominal cycles."""
    joined = fit.keep[1:] & fit.keep[:-1] & (np.diff(fit.u) < _GAP_CYCLES)
    starts = np.flatnonzero(fit.keep & ~np.concatenate(([False], joined)))
    ends = np.flatnonzero(fit.keep & ~np.concatenate((joined, [False])))
    return [(float(fit.u[a]), float(fit.u[b])) for a, b in zip(starts, ends, strict=True) if b > a]


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
    block = pattern.between(u, knots)
    cuts = pattern.between(series.cuts_within() / period_s, knots)
    harmonics = harmonics_for(period_s, series)
    flat = above_level(series, period_s)
    fit: Fit | None = None
    for tries in (max(1, steps // 2), steps):  # the first round need not be exact
        walk = max(walk, _LEAST_WALK)
        way = pattern.path(u, flat, knots, coefficients, noise=noise, walk=walk, tolerance=tolerance, cuts=cuts)
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


def _boundaries(fit: Fit, spans: Spans) -> tuple[Floats, Floats]:
    """Times at which cycles end, and the cycles counted up to each; the count stands still across what is left out."""
    times: list[Floats] = []
    counts: list[Floats] = []
    done = 0.0
    for start, end in spans.spans_u:
        first, last = fit.phase_at(np.array([start, end]))
        inner = np.arange(np.ceil(first), np.floor(last) + 1)
        grid = np.unique(np.concatenate(([start], fit.knots[(fit.knots > start) & (fit.knots < end)], [end])))
        at = np.concatenate(([first], inner, [last]))
        u = np.interp(at, fit.phase_at(grid), grid)
        times.append(fit.time_s(u))
        counts.append(done + at - first)
        done += float(last - first)
    # The phase may step back by a rounding where a boundary lies on a knot.
    return np.maximum.accumulate(np.concatenate(times)), np.maximum.accumulate(np.concatenate(counts))


def count(
    pattern: Template | PeriodEstimate, t_s: Floats, power_w: Floats, *, update_s: float, window_s: float
) -> Cycles | None:
    """Count the cycles in readings by following the phase of the pattern.

    t_s, power_w: shape (n,). `None` where the pattern cannot be followed through most of the readings.
    """
    series = prepare(t_s, power_w, update_s=update_s, window_s=window_s, period_s=pattern.period_s)
    if series is None or pattern.period_s is None:
        return None
    if isinstance(pattern, PeriodEstimate):
        fit = locate(series, pattern.period_s)
    else:
        fit = settle(
            series,
            pattern.period_s,
            pattern.coefficients / series.spread_w,
            noise=max(pattern.noise_w / series.spread_w, 0.1),
            walk=max(pattern.jitter, 0.02),
            tolerance=KNOWN,
        )
    if fit is None:
        return None
    spans = kept_spans(fit)
    times_s, counts = _boundaries(fit, spans)
    edges_u = [0.0, *(edge for span in spans.spans_u for edge in span), float(fit.u[-1])]
    edges_s = fit.time_s(np.array(edges_u))
    gaps_s = zip(edges_s[::2], edges_s[1::2], strict=True)
    return Cycles(
        t_s=times_s,
        count=counts,
        excluded=tuple((float(start), float(end)) for start, end in gaps_s if end > start),
        period_s=spans.period_s,
        rel_stderr=spans.rel_stderr,
    )
