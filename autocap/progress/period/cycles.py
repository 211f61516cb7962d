"""Counting cycles along the tracked phase, around what does not belong to the pattern."""

import numpy as np

from autocap.progress.period.estimate import Cycles, Floats, PeriodEstimate, Template
from autocap.progress.period.locate import locate, settle
from autocap.progress.period.pattern import Fit
from autocap.progress.period.series import prepare
from autocap.progress.period.spans import Spans, kept_spans
from autocap.progress.period.track import KNOWN


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
