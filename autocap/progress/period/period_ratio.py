"""The relative question, which the search needs: how long is a cycle at another cap, against the baseline?

The waveform locked at the baseline is looked for in the readings at another cap, stretched by every factor that is
physically possible. A cap flattens peaks and lets the host's phases be, so amplitude and shape may change moderately;
but a half or a double of the period has another shape altogether, and is told apart by it.

What a trial at another cap says of a period that may be a beat.

A cap lowers the clock, and a cycle of the job's own lengthens by some of what the clock loses: that of a load that
computes by all of it, that of one that waits by less. A beat is the small difference between a fast load and the
sensor's sampling. Where the load slows down by s, a beat of F of its cycles changes by F·s: mostly to something else
altogether, to a shorter period, or to none, and not at all where the load does not follow the clock. But where F is
small, a load that feels little of what the clock loses lengthens its beat as much as a cycle would: so no trial is made
where a load may be behind of which F is below ten (`detect.py`), or whose phase follows the sensor's clock.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from autocap.progress.period import candidates
from autocap.progress.period.estimate import Floats, PeriodEstimate, RatioEstimate, Template
from autocap.progress.period.locate import Spans, kept_spans, locate
from autocap.progress.period.pattern import Fit, turns
from autocap.progress.period.repetition import repetition, surprise
from autocap.progress.period.series import Series, prepare

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


_SEARCHED = (0.3, 3.0)  # times the period, where another one is looked for
_LEAST_CLOCK = 1.02  # by which the clock must have changed, for the period to show it
_LEAST, _LEAST_SHARE = 0.008, 0.35  # that a cycle of its own lengthens by, and of what the clock lost
_BEYOND = 0.03  # that a cycle may lengthen by more than the clock says: of its reading
_USUAL_LOSS = 0.35  # of the clock, at a cautious cap, where it is not reported
_SIGMAS = 3.0
_SAME = 0.015  # how well two looks must agree


class Tried(Enum):
    """PROVEN: the period lengthened as a cycle of the job's own does. REFUTED: it went where none goes. UNCLEAR: the
    pattern was not found again, or hardly moved."""

    PROVEN = "proven"
    REFUTED = "refuted"
    UNCLEAR = "unclear"


def tried(
    template: Template, t_s: Floats, power_w: Floats, *, clock_hz: float | None, before_hz: float | None
) -> tuple[Tried, float | None]:
    """What readings at a lower cap say, and how many times as long the period is there.

    template: of the period at the limit found on arrival. t_s, power_w: readings, shape (n,). clock_hz, before_hz: the
    mean SM clock of these readings, and of the template's; `None` where it is not reported.
    """
    known = clock_hz is not None and before_hz is not None
    slower = before_hz / clock_hz if clock_hz is not None and before_hz is not None else 1.0 + _USUAL_LOSS
    least = 1.0 + max(_LEAST, _LEAST_SHARE * (slower - 1.0) if known else 0.0)
    most = slower * (1.0 + _BEYOND)
    found = ratio(template, t_s, power_w, fastest=_SEARCHED[0], slowest=_SEARCHED[1])
    if found.ratio is not None and round(1.0 / found.ratio) > 1:  # of a pattern of several iterations one is found
        found = ratio(template, t_s, power_w, slowest=most)
    if not found.ok or found.ratio is None or found.rel_stderr is None:
        return Tried.UNCLEAR, found.ratio
    error = _SIGMAS * found.rel_stderr
    if found.ratio + error < 1.0 - _LEAST or found.ratio - error > most:
        return Tried.REFUTED, found.ratio
    moved = slower > _LEAST_CLOCK and found.ratio - error > 1.0 and least < found.ratio < most
    return (Tried.PROVEN if moved else Tried.UNCLEAR), found.ratio


def agree(one_s: float, other_s: float) -> bool:
    """Whether two looks found the same period."""
    return abs(one_s / other_s - 1) < _SAME


class Unproven:
    """A pattern at the limit found on arrival that repeats, and may be a beat's. A disturbed window that does not show
    it again changes nothing.

    template: as it was seen last, `None` before; clock_hz: the SM clock then, `None` where that is not reported.
    """

    def __init__(self) -> None:
        self.template: Template | None = None
        self.clock_hz: float | None = None
        self._found_twice = self._is_over = False

    @property
    def period_s(self) -> float | None:
        """Of a pattern that was found twice, and that a trial at another cap may prove, seconds."""
        return None if self.template is None or not self._found_twice or self._is_over else self.template.period_s

    @property
    def awaits_another_look(self) -> bool:
        return self.template is not None and not self._found_twice and not self._is_over

    def consider(self, template: Template, clock_hz: float | None) -> None:
        """This was found now."""
        self._found_twice = self.template is not None and agree(template.period_s, self.template.period_s)
        self.template, self.clock_hz = template, clock_hz

    def tried_with(self, t_s: Floats, power_w: Floats, clock_hz: float | None) -> tuple[Tried, float | None]:
        """As `tried`, for what was considered last."""
        if self.template is None:
            return Tried.UNCLEAR, None
        return tried(self.template, t_s, power_w, clock_hz=clock_hz, before_hz=self.clock_hz)

    def give_up(self) -> None:
        """The trial is over, and nothing was proven."""
        self._is_over = True
