"""Which stretches of a fit belong to its pattern, and how many cycles they hold."""

import math
from dataclasses import dataclass

import numpy as np

from autocap.progress.period.pattern import Fit

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
