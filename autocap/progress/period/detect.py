"""The absolute question: does the power signal repeat, and how long is a cycle?"""

from collections.abc import Iterable, Sequence

import numpy as np

from autocap.progress.period import candidates
from autocap.progress.period.beat import Beat, Seeing, beat, strongest, told_apart
from autocap.progress.period.bound import Draw
from autocap.progress.period.counted import Load, Witness
from autocap.progress.period.estimate import Floats, PeriodEstimate, Verdict
from autocap.progress.period.locate import harmonics_for, kept_spans, locate, refined, settle
from autocap.progress.period.pattern import Fit
from autocap.progress.period.repetition import explained, longest_low, repetition, slowness, surprise
from autocap.progress.period.series import FEWEST_READINGS, Series, prepare, usable

_SHORTEST_UPDATES = 2.2
_RESOLVED_UPDATES = 3.0
_ALIAS_COST = 15.0  # in log evidence: what may be an alias must be clearly better than what may not
_FEWEST_CYCLES = 8.0
_FEWEST_CYCLES_OF_HALF = 5.0
_HALVES = ((0.0, 0.4), (0.0, 0.5), (0.5, 1.0), (0.6, 1.0))
_GOOD = 0.97
_MULTIPLES = (2, 3, 4, 5)
_HOLDS = 0.9  # of the waveform's power, in the multiples of an order: it is made of so many parts alike
_ALIKE = 0.5  # of the waveform's power, in the multiples of an order: so many parts that may each be an iteration
_LYING, _LONG_LYING_S = 0.2, 1.5  # of a cycle, and seconds: a checkpoint as likely as a wait within an iteration
_WELL_EXPLAINED, _MOST_KEPT = 0.985, 0.9
_REPEATS = 0.30
_AMBIGUOUS = 0.15
_FLAT = 0.001
_SLOW = 0.3
# Nats per reading. Where the rest is no more than a sensor's own noise little is asked; a load that varies beyond its
# pattern, or a cycle of so few readings that many periods were tried, must show that the pattern is no accident.
_DENSE = 6.0
_SENSOR_NOISE = 0.008
_BETTER = 0.10
_MUCH_BETTER = 0.50
_WITNESS_REPEATS = 0.10
_PROVEN = Verdict.PERIODIC, "the signal repeats, and no load faster than the sensor can look like this"
_FEWEST_BEHIND = 10.0  # cycles of a load in a beat that a trial tells from a cycle of the job's own
_COUNTER, _TRIAL = "an energy counter", "one trial at another cap"
_FORESEEN = Verdict.AMBIGUOUS, "what repeats is foreseen as well without a period"
_EDGE = 9  # readings about a pause, with the way into it and out of it
_BETWEEN_PAUSES = 0.9  # share of the variation there that a pattern must explain


def detect(
    t_s: Floats,
    power_w: Floats,
    *,
    update_s: float,
    window_s: float = 0.0,
    window_off: float = 0.0,
    counted: Witness | None = None,
    witnesses: Sequence[Witness] = (),
    draw: Draw | None = None,
    load: Load | None = None,
) -> PeriodEstimate:
    """Look for a period in readings with their own stamps.

    t_s, power_w: fresh readings only, ascending, shape (n,), seconds and watts. update_s, window_s: of the sensor; 0
    for a window that is not known; window_off: by which share one that was learned may be off. counted: mean power
    between two moves of the energy counter, as (stamps, values), each at the later move. witnesses: other signals of
    the same job, as utilisation: that they repeat as well shows that something does, and nothing of a beat, as they are
    sampled along with the power. draw: what the card can draw. load: of the host's CPUs by the job.
    A period is verified where no load faster than the sensor can look like it.
    """
    series = prepare(t_s, power_w, update_s=update_s, window_s=window_s)
    if series is None:
        return _nothing(t_s, "the signal is constant or holds fewer than 24 readings")
    if series.paused_s > 0:
        bursts = prepare(t_s, power_w, update_s=update_s, window_s=window_s, period_s=0.0)
        within = None if bursts is None else search(bursts, shortest_s=_SHORTEST_UPDATES * update_s)
        if bursts is not None and within is not None and doubt(within, bursts) is None:
            series = bursts
    fit = search(series, shortest_s=_SHORTEST_UPDATES * update_s)
    if fit is None:
        return _nothing(t_s, "no stretch of the signal repeats the one before it")
    seeing = Seeing(update_s=update_s, window_s=window_s, window_off=window_off, counted=counted, draw=draw, load=load)
    return _judged(_one_period(refined(fit, series, period_of(fit)), series, update_s), series, seeing, witnesses)


def search(series: Series, *, shortest_s: float) -> Fit | None:
    """The pattern that explains the series best. Where a stretch is unlike the others, what one half shows is looked
    for in the whole as well.
    """
    best = _search(series, shortest_s, series.span_s / _FEWEST_CYCLES)
    if not series.uneven() or (best is not None and best.explained > _GOOD and doubt(best, series) is None):
        return best
    fits = [] if best is None else [best]
    for start, end in _HALVES:
        part = series.part(start, end)
        seen = _search(part, shortest_s, part.span_s / _FEWEST_CYCLES_OF_HALF)
        if seen is not None:
            seen = settle(series, period_of(seen), seen.coefficients, noise=seen.residual, walk=seen.walk)
            fits += [seen] if seen is not None else []
    return max(fits, key=lambda fit: (doubt(fit, series) is None, fit.evidence), default=None)


def _search(series: Series, shortest_s: float, longest_s: float) -> Fit | None:
    """The pattern that runs through the whole series and explains it best."""
    if len(series.y) < FEWEST_READINGS:  # of a part
        return None
    shortest_s = max(shortest_s, _SHORTEST_UPDATES * series.step_s)
    if longest_s <= shortest_s:
        return None
    fits = _fitted(series, candidates.find(series, shortest_s=shortest_s, longest_s=longest_s))
    if not fits or max(fit.explained for fit in fits) < _WELL_EXPLAINED:
        fits += _fitted(series, candidates.fold(series, shortest_s=shortest_s, longest_s=longest_s))
    if not fits:
        return None
    resolved_s = shortest_s * _RESOLVED_UPDATES / _SHORTEST_UPDATES

    def merit(fit: Fit) -> float:
        return fit.evidence - (_ALIAS_COST if fit.period_s < resolved_s else 0.0)

    best = max(fits, key=merit)
    longer = [multiple * period_of(best) for multiple in _MULTIPLES]
    tried = [period_of(fit) for fit in fits]
    new = [period for period in longer if period < longest_s and not candidates.near(period, tried)]
    wider = [period for period in new if harmonics_for(period, series) > len(best.coefficients)]
    return max([best, *_fitted(series, wider)], key=merit)


def _fitted(series: Series, periods: Iterable[float]) -> list[Fit]:
    return [fit for period in periods if (fit := locate(series, period)) is not None]


def _one_period(fit: Fit, series: Series, update_s: float) -> Fit:
    """The fit to one of many parts alike, where what was found is made of so many that they are one period each; or to
    twice the period, or a few times, where a part of it leaves more than it does."""
    period_s = period_of(fit)
    # Readings that are left out may be what differs from one part of a longer cycle to the next.
    numbers = _MULTIPLES if float(np.mean(fit.keep)) < _MOST_KEPT else _MULTIPLES[:1]
    longer = [n * period_s for n in numbers if n * period_s < series.span_s / _FEWEST_CYCLES]
    if fit.explained < _WELL_EXPLAINED and longer:
        best = max(_fitted(series, longer), key=lambda one: one.evidence, default=fit)
        if best.evidence > fit.evidence + _ALIAS_COST and doubt(best, series) is None:
            return best
    parts = fit.parts(_HOLDS)
    if told_apart(fit, series) < len(fit.coefficients):  # how the parts differ is not seen
        parts = sorted({*parts, strongest(fit)})
    for number in reversed(parts):
        if number >= max(_MULTIPLES) and period_s >= number * _RESOLVED_UPDATES * update_s:
            one = locate(series, period_s / number)
            if one is not None and doubt(one, series) is None:
                return one
    return fit


def period_of(fit: Fit) -> float:
    """The mean period over what belongs to the pattern, seconds."""
    return kept_spans(fit).period_s


def _judged(fit: Fit, series: Series, seeing: Seeing, witnesses: Sequence[Witness]) -> PeriodEstimate:
    spans = kept_spans(fit)
    start_s, end_s = fit.time_s(np.array([spans.spans_u[0][0], spans.spans_u[-1][1]]))
    others = [*witnesses, *([] if seeing.counted is None else [seeing.counted])]
    found, may_be, of_cycles = doubt(fit, series), None, 0.0
    if found is _FORESEEN and any(_agrees(other, spans.period_s) for other in others):
        found = doubt(fit, series, borne_out=True)
    alike = max((1, *fit.parts(_HOLDS)))  # so many cycles are seen no better than one of them
    alike_s, least_s = spans.period_s / alike, _RESOLVED_UPDATES * seeing.update_s
    if alike > 1 and told_apart(fit, series) < len(fit.coefficients):
        least_s += 0.5 * seeing.update_s  # a whole number of updates in any case
    if found is None and alike_s < least_s:
        found = Verdict.UNRESOLVABLE, f"{alike_s:.3f} s is under three updates of the sensor: it may be an alias"
    elif found is None and alike >= max(_MULTIPLES):
        found = Verdict.AMBIGUOUS, f"what repeats is made of {alike} parts alike, of which none shows clearly by itself"
    elif found is None:
        may_be, of_cycles = beat(fit, series, spans.period_s, seeing)
    is_open = may_be in (Beat.UNLIKELY, Beat.POSSIBLE)
    triable = is_open and of_cycles >= _FEWEST_BEHIND
    verdict, reason = found or _said(may_be, spans.period_s, seeing, triable)
    return PeriodEstimate(
        start_s=float(start_s),
        end_s=float(end_s),
        verdict=verdict,
        period_s=spans.period_s,
        rel_stderr=spans.rel_stderr,
        cycles=spans.cycles,
        confidence=float(np.clip(repetition(fit, series), 0.0, 1.0)),
        verified=may_be is Beat.EXCLUDED,
        open=is_open,
        triable=triable,
        multiples=_multiples(fit, spans.period_s, seeing.update_s) if verdict is Verdict.PERIODIC else (),
        reason=reason,
    )


def _said(may_be: Beat | None, period_s: float, seeing: Seeing, triable: bool) -> tuple[Verdict, str]:
    """The verdict on what repeats, and the reason."""
    deciding = [_COUNTER] * (seeing.counted is None) + [_TRIAL] * triable
    decides = f"; {', or '.join(deciding)} would decide it" if deciding else ""
    match may_be:
        case Beat.SHOWN:
            return (
                Verdict.UNRESOLVABLE,
                f"the energy counter sees too little of the period of {period_s:.3f} s: it is an alias",
            )
        case Beat.LIKELY:
            return Verdict.AMBIGUOUS, "it may be a beat: its phase goes ahead and back with the sensor's clock"
        case Beat.POSSIBLE:
            return (
                Verdict.AMBIGUOUS,
                f"it may be a beat: a load faster than the sensor, sampled every {seeing.update_s:.3g} s, "
                f"would look the same{decides}",
            )
        case Beat.UNLIKELY:
            return (
                Verdict.PERIODIC,
                f"the signal repeats, unlike beats of fast loads, which are not excluded{decides}",
            )
        case _:
            return _PROVEN


def _multiples(fit: Fit, period_s: float, update_s: float) -> tuple[int, ...]:
    return tuple(n for n in fit.parts(_ALIKE) if n <= max(_MULTIPLES) and period_s >= n * _RESOLVED_UPDATES * update_s)


def doubt(fit: Fit, series: Series, *, borne_out: bool = False) -> tuple[Verdict, str] | None:
    """Why a fit does not count as a period; `None` when it does. borne_out: another signal repeats with it."""
    spans, repeats, better = kept_spans(fit), repetition(fit, series), surprise(fit, series)
    if spans.cycles < _FEWEST_CYCLES:
        return Verdict.UNRESOLVABLE, f"only {spans.cycles:.1f} cycles, {_FEWEST_CYCLES:.0f} are needed"
    if repeats < _REPEATS:
        verdict = Verdict.AMBIGUOUS if repeats > _AMBIGUOUS else Verdict.APERIODIC
        return verdict, f"one half of the signal predicts only {100 * max(repeats, 0.0):.0f} % of the other"
    rms = float(np.sqrt(0.5 * np.sum(np.abs(fit.coefficients) ** 2)))
    amplitude, noise = (size * series.spread_w / series.centre_w for size in (rms, fit.residual))  # over the level
    if amplitude < _FLAT:
        return Verdict.APERIODIC, f"what repeats is less than {100 * _FLAT} % of the power"
    if slowness(fit, series) > _SLOW:
        return Verdict.AMBIGUOUS, "what repeats at a few readings may be a slow change"
    dense = len(fit.u) / float(fit.u[-1]) >= _DENSE
    between = ~(np.convolve(series.paused, np.ones(_EDGE), mode="same") > 0.5)
    if series.paused_s > 0 and explained(fit, series, between) < _BETWEEN_PAUSES:
        return Verdict.AMBIGUOUS, "what repeats is little more than that the job lies still now and then"
    lying = longest_low(fit)
    if lying > _LYING and lying * spans.period_s > _LONG_LYING_S:
        return Verdict.AMBIGUOUS, "the job lies still for long in what repeats: it may be the cycle of checkpoints"
    if better < (_BETTER if borne_out or (dense and noise <= _SENSOR_NOISE) else _MUCH_BETTER):
        return _FORESEEN
    return None


def _agrees(witness: Witness, period_s: float) -> bool:
    """Whether another signal repeats at the period as well."""
    t_s, values = usable(*witness)
    spread = float(values.std()) if len(t_s) >= FEWEST_READINGS else 0.0
    if spread <= 1e-9 * abs(float(np.sum(values))) / max(len(values), 1):
        return False
    return candidates.screen(t_s, (values - values.mean()) / spread, period_s) > _WITNESS_REPEATS


def _nothing(t_s: Floats, reason: str) -> PeriodEstimate:
    start_s, end_s = (float(t_s[0]), float(t_s[-1])) if len(t_s) else (0.0, 0.0)
    return PeriodEstimate(start_s=start_s, end_s=end_s, verdict=Verdict.APERIODIC, reason=reason)
