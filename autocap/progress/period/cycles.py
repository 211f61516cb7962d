"""Counting cycles along the tracked phase, around what does not belong to the pattern."""

import math
from dataclasses import dataclass

import numpy as np

from autocap.progress.period.estimate import Cycles, Floats, PeriodEstimate, Template
from autocap.progress.period.locate import locate, settle
from autocap.progress.period.pattern import Fit
from autocap.progress.period.series import prepare
from autocap.progress.period.track import KNOWN

# Set by simulation (python -m bench period, other seeds than those reported): what is left of a fit is not white, and
# within the stretch between two knots the phase wanders as well, which the ends of a span feel.
_STDERR_SCALE = 1.3
_END_SHARE = 0.25
_STDERR_FLOOR = 1e-5
_GAP_CYCLES = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Spans:
    """The stretches of a fit that belong to the pattern. spans_u: in nominal cycles. cycles: in all of them.
    period_s: their mean, rel_stderr: its relative standard error.
    """

    spans_u: tuple[tuple[float, float], ...]
    cycles: float
    period_s: float
    rel_stderr: float


def kept_spans(fit: Fit) -> Spans:
    """The kept stretches of a fit, from the first reading of each to the last."""
    joined = fit.keep[1:] & fit.keep[:-1] & (np.diff(fit.u) < _GAP_CYCLES)
    starts = np.flatnonzero(fit.keep & ~np.concatenate(([False], joined)))
    ends = np.flatnonzero(fit.keep & ~np.concatenate((joined, [False])))
    spans = [(float(fit.u[a]), float(fit.u[b])) for a, b in zip(starts, ends, strict=True) if b > a]
    cycles, error = fit.cycles_between(spans)
    wander = 2 * len(spans) * _END_SHARE * float(fit.knots[1] - fit.knots[0]) * fit.walk**2
    kept_u = sum(end - start for start, end in spans)
    # The truth is the mean of every cycle between the ends, also of those that were left out: a sample of some.
    unseen = cycles * (1 - kept_u / (spans[-1][1] - spans[0][0])) * fit.walk**2
    time_s = fit.period_s * kept_u
    return Spans(
        spans_u=tuple(spans),
        cycles=cycles,
        period_s=time_s / cycles,
        rel_stderr=math.sqrt((_STDERR_SCALE * error) ** 2 + wander + unseen) / cycles + _STDERR_FLOOR,
    )


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
    return np.concatenate(times), np.concatenate(counts)


def count(
    pattern: Template | PeriodEstimate, t_s: Floats, power_w: Floats, *, update_s: float, window_s: float
) -> Cycles | None:
    """Count the cycles in readings by following the phase of the pattern.

    t_s, power_w: shape (n,). `None` where the pattern cannot be followed through most of the readings.
    """
    series = prepare(t_s, power_w, update_s=update_s, window_s=window_s)
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
    gaps_u = zip(edges_u[::2], edges_u[1::2], strict=True)
    return Cycles(
        t_s=times_s,
        count=counts,
        excluded=tuple((fit.time_s(start), fit.time_s(end)) for start, end in gaps_u if end > start),
        period_s=spans.period_s,
        rel_stderr=spans.rel_stderr,
    )
