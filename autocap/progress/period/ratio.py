"""The relative question, which the search needs: how long is a cycle at another cap, against the baseline?

The waveform locked at the baseline is looked for in the readings at another cap, stretched by every factor that is
physically possible. A cap flattens peaks and lets the host's phases be, so amplitude and shape may change moderately;
but a half or a double of the period has another shape altogether, and is told apart by it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocap.progress.period import candidates
from autocap.progress.period.estimate import Floats, PeriodEstimate, RatioEstimate, Template
from autocap.progress.period.locate import locate
from autocap.progress.period.pattern import Fit
from autocap.progress.period.repetition import repetition, surprise
from autocap.progress.period.series import Series, prepare
from autocap.progress.period.spans import Spans, kept_spans
from autocap.progress.period.track import turns

_MARGIN = 0.02
_RIVAL = 0.04  # relative distance from which another period is another multiple
_CLEARLY = 6.0  # in log evidence
# Of a period close to a multiple of the sensor's update only a few phases are ever seen, and what the waveform is in
# between is a guess: it cannot be asked to be as alike.
_ALIKE, _SOMEWHAT_ALIKE = 0.70, 0.35
_MUCH_UNSEEN = 0.06
_CLEARLY_ALIKE = 0.85
_ABOUT_AS_MUCH = 0.9
_REPEATS = 0.2
_SURPRISE = 0.10
_FEWEST_CYCLES = 8.0
_MOST_COMPARED = 10
_TURNS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    """A period that may be the one. spans: of its fit. alike: likeness to the template. score: of both, in nats."""

    score: float
    fit: Fit
    spans: Spans
    alike: float


def lock(
    t_s: Floats, power_w: Floats, estimate: PeriodEstimate, *, update_s: float, window_s: float = 0.0
) -> Template | None:
    """The waveform at the baseline, for good; `None` where the readings do not follow the estimate.

    t_s, power_w: the readings of the estimate, shape (n,).
    """
    series = prepare(t_s, power_w, update_s=update_s, window_s=window_s, period_s=estimate.period_s)
    fit = None if series is None or estimate.period_s is None else locate(series, estimate.period_s)
    return None if series is None or fit is None else _template(fit, series, update_s, window_s)


def _template(fit: Fit, series: Series, update_s: float, window_s: float) -> Template:
    spans = kept_spans(fit)
    return Template(
        period_s=spans.period_s,
        rel_stderr=spans.rel_stderr,
        cycles=spans.cycles,
        coefficients=fit.coefficients * series.spread_w,
        level_w=series.centre_w + series.spread_w * float(np.mean(fit.level[fit.keep])),
        noise_w=fit.residual * series.spread_w,
        jitter=fit.walk,
        unseen=_unseen(fit),
        update_s=update_s,
        window_s=window_s,
    )


def _unseen(fit: Fit) -> float:
    """The longest part of the cycle in which there is no reading at all, in cycles."""
    phases = np.sort(fit.phase[fit.keep] % 1.0)
    return float(np.max(np.diff(phases, append=phases[0] + 1.0)))


def ratio(template: Template, t_s: Floats, power_w: Floats, *, slowest: float, fastest: float = 0.97) -> RatioEstimate:
    """The period in these readings over the template's, within [fastest, slowest].

    t_s, power_w: readings at another cap, shape (n,).
    """
    series = prepare(t_s, power_w, update_s=template.update_s, window_s=template.window_s, period_s=template.period_s)
    if series is None:
        return RatioEstimate(reason="the signal is constant or holds fewer than 24 readings")
    shortest_s, longest_s = template.period_s * fastest, template.period_s * slowest
    found = _fits(series, template, shortest_s * (1 - _MARGIN), longest_s * (1 + _MARGIN))
    if not found:
        return RatioEstimate(reason="nothing between the fastest and the slowest possible period repeats")
    found = [match for match in found if not _repeats_another(match, found)]
    best, *others = sorted(found, key=lambda match: match.score, reverse=True)
    fit, spans = best.fit, best.spans
    value = spans.period_s / template.period_s
    rivals = [other for other in others if abs(other.spans.period_s / spans.period_s - 1) > _RIVAL]
    reason = _doubt(best, series, max(template.unseen, _unseen(fit)))
    if not fastest * (1 - _MARGIN / 2) <= value <= slowest * (1 + _MARGIN / 2):
        reason = f"{value:.3f} times the baseline's period is out of what is possible, {fastest:.2f} to {slowest:.2f}"
    elif reason is None and any(best.score - other.score < _CLEARLY for other in rivals):
        reason = "two periods fit about as well"
    return RatioEstimate(
        ratio=value,
        rel_stderr=math.hypot(spans.rel_stderr, template.rel_stderr),
        cycles=spans.cycles,
        ok=reason is None,
        seen=_template(fit, series, template.update_s, template.window_s),
        reason=reason or "the waveform of the baseline repeats",
    )


def _fits(series: Series, template: Template, shortest_s: float, longest_s: float) -> list[_Match]:
    """Fits at the promising periods."""
    periods = candidates.find(series, shortest_s=shortest_s, longest_s=longest_s)
    if not any(candidates.near(period, [template.period_s]) for period in periods):
        periods.append(template.period_s)
    found = []
    for period in periods:
        fit = locate(series, period)
        if fit is not None:
            alike = _likeness(fit.coefficients, template.coefficients)
            score = fit.evidence + len(series.y) * math.log(max(alike, 0.05))
            found.append(_Match(score=score, fit=fit, spans=kept_spans(fit), alike=alike))
    return found


def _repeats_another(one: _Match, found: Sequence[_Match]) -> bool:
    """Whether a fit is at a multiple of another's period whose waveform is clearly the baseline's and explains about as
    much: two cycles for one, with harmonics of its own to explain the rest."""
    for other in found:
        multiple = one.spans.period_s / other.spans.period_s
        exact = multiple > 1.5 and abs(multiple / round(multiple) - 1) < _MARGIN
        clear = other.alike > max(_CLEARLY_ALIKE, one.alike)
        if exact and clear and other.fit.explained > _ABOUT_AS_MUCH * one.fit.explained:
            return True
    return False


def _likeness(one: NDArray[np.complex128], other: NDArray[np.complex128]) -> float:
    """How alike two waveforms are when the one is turned as well as it can be: their correlation, -1 to 1."""
    size = min(len(one), len(other), _MOST_COMPARED)
    best = float(np.max(np.real((np.conj(one[:size]) * other[:size]) @ turns(size, _TURNS))))
    norm = float(np.linalg.norm(one[:size]) * np.linalg.norm(other[:size]))
    return best / norm if norm > 0 else 0.0


def _doubt(match: _Match, series: Series, unseen: float) -> str | None:
    """Why a period must not be used; `None` when it may. unseen: part of the cycle without a reading."""
    fit, cycles, alike = match.fit, match.spans.cycles, match.alike
    if cycles < _FEWEST_CYCLES:
        return f"only {cycles:.1f} cycles, {_FEWEST_CYCLES:.0f} are needed"
    if alike < (_SOMEWHAT_ALIKE if unseen > _MUCH_UNSEEN else _ALIKE):
        return f"the waveform is another one than at the baseline (correlation {alike:.2f})"
    if fit.is_folded:
        return "the waveform is another one than at the baseline (most of it is faster than the readings)"
    if repetition(fit, series) < _REPEATS or surprise(fit, series) < _SURPRISE:
        return "the waveform does not repeat clearly"
    return None
