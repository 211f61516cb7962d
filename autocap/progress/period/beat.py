"""Whether a period may be a beat: a load faster than the sensor, which the sensor's sampling folds into a slow one.

A sensor that looks every u seconds sees a load of frequency g = k/u + f, for any whole k, as one of frequency f. The
beat folds as perfectly as a real cycle does, and utilisation, which the same firmware samples, carries it as well. For
every g that may stand behind a period there are up to four questions, and one answer against it is enough:

*The readings.* They average over w seconds, w·g cycles of the load. Could it swing as much, and as steeply, through
that (`bound.py`)?

*The counter.* The energy counter misses nothing: what is between two of its moves is an average over all of the time.
So the same question with its own interval; and where its moves fold g to another frequency than the readings do, it
does not see the period at all.

*The host.* CPU time is such a counter as well, and what it can swing by is known: from none to all of the CPUs. Where
the period is in it, no load is behind that which leaves less than this of itself between two looks; where it is not,
that says nothing, as a job may wait by spinning.

*Both.* A real cycle has the same amplitude in both, once each is corrected for its own window. A beat has not, where
the windows differ. And a real cycle is seen at the same time by both, which a beat is by chance, or by sensors that
look at the same moments: what is left out by that alone is unlikely to be a beat, and not proven.

Where a cycle takes nearly a whole number of updates, the readings show few of its phases, and nothing of what lies
between: no edge there proves anything, and a load of which several cycles take so many updates would look the same.

Where no load is left, the period is proven to be the job's own. Where the window is not known, that takes a counter
that sees it at the same time as well, or the host; all windows that sensors have been seen to have are tried, and what
is left out by these is unlikely to be a beat, and no more. So is, of known sensors too, what is left out where a window
is as long as it is said to be and a fast load has two levels, neither of them short; and what `_unlike` says of smeared
readings: it weighs how much the phase walks and how sharp edges are. Stamps may show a beat, and never exclude one:

A sensor that ought to look every u seconds looks at t_i = u·i + d_i. To a load of frequency g = k/u + f, whose beat has
the frequency f, that is the phase g·t_i = f·t_i + k·d_i/u, but for whole cycles: where the clock is late by a hundredth
of an update, the beat is off by k hundredths of a cycle. A real cycle is not: its phase is f·t_i. So d_i, which the
stamps tell, is one more unknown's column in the fit, whose coefficient is ±k, one or more, for a beat, and 0 for a
cycle of its own.

That shows a beat and never excludes one: stamps taken when somebody looked, not by the sensor, do not tell d_i. They
make the coefficient of a beat smaller, down to nothing, and that of a real cycle of n updates 1/n at most. In a log of
a sensor that is not known they are the reader's, and tell nothing.
"""

import math
from dataclasses import dataclass, replace
from enum import Enum

import numpy as np

from autocap.progress.period.bound import Draw, drawn, may_pass, swing_of, usually_sharper
from autocap.progress.period.counted import PARTS, CounterView, Load, Witness, folded
from autocap.progress.period.estimate import Floats
from autocap.progress.period.locate import harmonics_through
from autocap.progress.period.pattern import MOST_SEEN, Fit
from autocap.progress.period.series import Series

_REAL = 0.3  # the most that a cycle of its own shows, by its waveform's errors: 0.2 as simulated
_REGULAR = 0.001  # of an update: what stamps that scatter less are off by is rounding
_SIGMAS = 2.0


def follows_the_clock(fit: Fit, series: Series, *, order: int, update_s: float) -> bool:
    """Whether the phase of one of `order` parts alike of a fitted cycle is ahead or behind as the sensor's clock is,
    which that of a real cycle is not. update_s: of the sensor."""
    intervals_s = np.diff(series.t_s)
    usual_s = float(np.median(intervals_s))
    if float(np.median(np.abs(intervals_s - usual_s))) < _REGULAR * update_s:
        return False
    places = np.concatenate(([0.0], np.cumsum(np.round(intervals_s / usual_s))))
    late = (series.t_s - np.polynomial.Polynomial.fit(places, series.t_s, 1)(places)) / update_s
    column = (fit.slope(fit.phase) / order * late)[fit.keep]
    design, variance = fit.design, fit.residual**2
    beyond = column - design @ (fit.posterior @ (design.T @ column)) / variance  # what no other unknown explains
    information = float(column @ beyond) / variance
    if information <= 0:
        return False
    cycles = float(column @ fit.rest[fit.keep]) / variance / information
    shortest_s = fit.period_s / order
    return abs(cycles) - _SIGMAS / math.sqrt(information) > max(_REAL, update_s / shortest_s)


_HOLDS = 0.93  # the share of the waveform's power in the multiples of an order that makes it the cycle of this one
_LEAST_UPDATE = 1e-3  # of the time between readings: an update that is shorter is none that was measured
_HIDDEN = 0.7  # times what a load that is hidden by averaging would leave between the readings, at least
_RESOLVED = 3.0  # updates in a cycle of its own
_FASTEST_S = 1e-3  # the shortest cycle of a load that is thought of
_MOST_ORDERS = 200
# What a card draws within a fast load, times its mean: between two kernels its clocks are up, and it drew a third of
# the mean and more wherever that was seen; and at most, also times the highest that a short average shows of it.
_LEAST, _MOST, _TIMES_SHOWN = 0.2, 2.5, 1.5
_USUAL_LEAST, _USUAL_MOST = 0.33, 2.0  # the same where nothing is to be proven: what was seen
# By how much a window that is known may be longer or shorter. An average over all of the time is the update itself.
_WINDOW_OFF, _AS_LONG, _UPDATE_OFF = 0.05, 0.03, 0.01
_AS_SAID = 0.01  # the same where nothing is to be proven: most sensors average over what is said of them
_UNKNOWN = np.geomspace(0.2, 1.1, 12)  # windows, in updates, that sensors have been seen to have
_BETWEEN_UNKNOWN = 0.08
_FINEST, _THROUGH = 40, 0.45  # harmonics, at most, and readings for each that is told apart
# Where a cycle takes nearly a whole number of readings: how far these must drift through its phases meanwhile, for all
# of them to be seen: in what the phase walks by itself, and from one phase to the next.
_WALKS, _PASSES = 4.0, 2.0
_OVERSHOOT = 1.18  # by how much the first few harmonics of what keeps within bounds may leave them (Gibbs)
# For a sensor that is not known. Set on simulated sensors and jobs like real ones, and on the logs of real cards.
_LEAST_SWING = 0.09
_USUAL_STEP, _SOFT, _PER_SHARPNESS, _UNLIKE = 0.02, 0.25, 0.1, 1.3
_SHOWN = 0.2  # of a load, that a look at the host's CPU time lets through
_SOFTEST = 0.28  # of a cycle, its edges; those of a sine take 0.32
# Updates in a cycle of which more than a sine is seen; and how far the phase of iterations walks in a cycle: a
# deviation of 4.5 to 7 % in the logs of real jobs.
_SHOW_EDGES, _WALK = 5.0, 0.08
_LATE, _PER_LATENESS = 0.2, 0.1  # updates that the readings of a real cycle are off by, each by itself
_PHASES = np.arange(512) / 512  # at which a waveform is drawn


class Beat(Enum):
    """Whether a period is a beat. EXCLUDED: proven not to be. UNLIKELY: nothing that was seen of sensors and loads
    looks like this. POSSIBLE: a fast load could. LIKELY: and a cycle of the job's own hardly could. SHOWN: proven to be
    one."""

    EXCLUDED = "excluded"
    UNLIKELY = "unlikely"
    POSSIBLE = "possible"
    LIKELY = "likely"
    SHOWN = "shown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeing:
    """What is known beside the readings. update_s, window_s: of the sensor, 0 for a window that is not known;
    window_off: by which share one that was learned may be off, 0 for one that was measured. counted: mean power between
    two moves of the energy counter, at the later one, as (stamps, values). draw: what the card can draw; `None` where
    nobody knows. load: of the host's CPUs by the job, `None` where nobody looked."""

    update_s: float
    window_s: float
    window_off: float = 0.0
    counted: Witness | None = None
    draw: Draw | None = None
    load: Load | None = None


def beat(fit: Fit, series: Series, period_s: float, seeing: Seeing) -> tuple[Beat, float]:
    """Whether a fitted period may be a beat, and of how few cycles of a load that a cap slows down: infinite of none.
    period_s: the mean of the fit."""
    update_s = seeing.update_s
    if update_s < _LEAST_UPDATE * series.step_s:
        update_s = series.step_s
    values_w, errors_w = _waveform(fit, series)
    mean_w = series.centre_w + series.spread_w * float(np.mean(fit.level[fit.keep]))
    draws, known = seeing.draw or Draw(least_w=0.0, most_w=math.inf), seeing.window_s > 0
    draw = _within(draws, _LEAST * mean_w, _MOST * mean_w)
    usual_draw = _within(draws, _USUAL_LEAST * mean_w, _USUAL_MOST * mean_w)
    view = None if seeing.counted is None else CounterView.of(fit, series, *seeing.counted)
    if view is not None and view.misses(period_s, seeing.window_s):
        return Beat.SHOWN, 0.0
    if fit.is_folded or _may_hide(fit, series):
        return Beat.POSSIBLE, 0.0
    few_phases = told_apart(fit, series) < len(fit.coefficients)
    if period_s / strongest(fit) < _RESOLVED * update_s and few_phases:
        return Beat.POSSIBLE, 0.0
    windows_s, off = _windows(seeing, update_s)
    in_time = view is not None and view.is_in_time(period_s, windows_s[0], windows_s[-1])
    orders = (1, *fit.parts(_HOLDS))
    behind = np.concatenate([_loads_behind(period_s / order, update_s) for order in orders])
    host = None if seeing.load is None else _vouching(fit, series, seeing.load, behind, period_s)
    is_resolved = fit.share_of(_RESOLVED * update_s) >= MOST_SEEN or not few_phases
    proven = is_resolved and (known or in_time or host is not None)
    fewest, likely = math.inf, False
    for order in orders:
        cycle_s = period_s / order
        loads_hz = _loads_behind(cycle_s, update_s)
        left = np.ones(len(loads_hz), dtype=bool)
        if view is not None:
            left = view.may_see(loads_hz, order, cycle_s, series.span_s, draw)
            if known:
                left &= view.may_differ(loads_hz * view.harmonic / order, period_s, windows_s, off)
        if host is not None and seeing.load is not None:
            most = Draw(least_w=0.0, most_w=seeing.load.most)
            left &= host.may_see(loads_hz, order, cycle_s, series.span_s, most)
        if not left.any():
            continue
        if cycle_s < _RESOLVED * update_s:
            return Beat.POSSIBLE, 0.0
        swing = swing_of(values_w, errors_w, mean_w, order)
        cycles = (loads_hz[left][:, None] * windows_s).ravel()
        passes = may_pass(swing, cycles, off, draw)
        if passes.any() and not in_time:
            as_said = min(off, _AS_SAID) if known and seeing.window_off <= 0 else off
            usual = may_pass(swing, cycles, as_said, usual_draw) & ~usually_sharper(swing, cycles, as_said)
            if follows_the_clock(fit, series, order=order, update_s=update_s):
                return Beat.LIKELY, 0.0
            likely = likely or (bool(usual.any()) and not _unlike(fit, series, order, cycle_s, update_s))
        proven = proven and known and not passes.any()
        behind_hz = loads_hz[left][passes.reshape(-1, len(windows_s)).any(axis=1)] if known else loads_hz[left]
        later = behind_hz * update_s > np.round(behind_hz * update_s)  # in its cycle each time: of others beats shorten
        fewest = min([fewest, *(behind_hz[later] * cycle_s).tolist()])
    if likely:
        return Beat.POSSIBLE, fewest
    return (Beat.EXCLUDED, math.inf) if proven else (Beat.UNLIKELY, fewest if is_resolved else 0.0)


def _vouching(fit: Fit, series: Series, load: Load, loads_hz: Floats, period_s: float) -> CounterView | None:
    """The host's CPU time as a counter, in CPUs for watts, where the cycle is in it, and more of it than of any of the
    loads that may be behind: one that does something more every so many times may beat with those."""
    view = CounterView.of(fit, series, load.t_s, load.cpus)
    if view is None or not view.sees:
        return None
    passed = np.abs(np.sinc(loads_hz * view.span_s))
    seen_hz = loads_hz[(loads_hz < 1.0 / view.span_s) & (passed > _SHOWN)]
    turns = np.exp(-2j * np.pi * np.outer(load.t_s, seen_hz)) * (load.cpus - np.mean(load.cpus))[:, None]
    of_loads = 2 * np.mean([np.abs(np.mean(part, axis=0)) for part in np.array_split(turns, PARTS)], axis=0)
    own = view.seen / max(float(np.abs(np.sinc(view.harmonic / period_s * view.span_s))), _SHOWN)
    return view if np.all(of_loads / np.abs(np.sinc(seen_hz * view.span_s)) < own) else None


def _within(draws: Draw, least_w: float, most_w: float) -> Draw:
    return Draw(least_w=max(draws.least_w, least_w), most_w=min(draws.most_w, most_w), times_shown=_TIMES_SHOWN)


def _windows(seeing: Seeing, update_s: float) -> tuple[Floats, float]:
    """What a reading may average over, shape (n,), seconds, ascending, and by which share each of these may be off. An
    average over all of the time is the update itself."""
    if seeing.window_s <= 0:
        return _UNKNOWN * update_s, _BETWEEN_UNKNOWN
    if seeing.window_off > 0:
        ends = seeing.window_s * (1 - seeing.window_off), seeing.window_s * (1 + seeing.window_off)
        number = 2 + int(math.log(max(ends[1] / ends[0], 1.0)) / _WINDOW_OFF)
        return np.geomspace(*ends, number), _WINDOW_OFF
    if abs(seeing.window_s / update_s - 1) < _AS_LONG:
        return np.array([seeing.window_s]), _UPDATE_OFF
    return np.array([seeing.window_s]), _WINDOW_OFF


def _loads_behind(cycle_s: float, update_s: float) -> Floats:
    """The frequencies of loads that sampling every update_s folds to one cycle in cycle_s, shape (n,), hertz."""
    orders_hz = np.arange(1, int(np.clip(update_s / _FASTEST_S, 2, _MOST_ORDERS)) + 1) / update_s
    return np.concatenate((orders_hz - 1.0 / cycle_s, orders_hz + 1.0 / cycle_s))


def _waveform(fit: Fit, series: Series) -> tuple[Floats, Floats]:
    """What was fitted, drawn, and its deviations, watts; where there are readings enough with finer edges than the fit
    has, which is made for speed."""
    size = 2 * len(fit.coefficients)
    values = (series.y - fit.level)[fit.keep] * series.spread_w
    finer = min(_FINEST, (len(values) // PARTS - 4) // 2, int(_THROUGH * fit.period_s / series.step_s))
    apart = told_apart(fit, series)
    if 2 * apart < size:
        mean, off = folded(fit.phase[fit.keep], values, np.ones(len(values)), apart)
        return drawn(mean[None])[0] / _OVERSHOOT, drawn(off) / _OVERSHOOT
    if 2 * finer > size:
        mean, off = folded(fit.phase[fit.keep], values, np.ones(len(values)), finer)
        return drawn(mean[None])[0], drawn(off)
    amplitudes = np.concatenate((fit.coefficients.real, fit.coefficients.imag))[None]
    variances, directions = np.linalg.eigh(fit.posterior[-size:, -size:])
    errors = (directions * np.sqrt(np.maximum(variances, 0.0))).T
    return drawn(amplitudes)[0] * series.spread_w, drawn(errors) * series.spread_w


def strongest(fit: Fit) -> int:
    """Which harmonic of a fit is."""
    return 1 + int(np.argmax(np.abs(fit.coefficients)))


def _may_hide(fit: Fit, series: Series) -> bool:
    """Whether readings that were averaged together may hide a load that the average folds to what was fitted.

    Of a load of k/T ± f cycles a reading (k whole, not of T), an average of T readings lets through
    |sin(πTf)/(T·sin(π(k/T ± f)))| of the amplitude, at most that of k = 1; the rest of it is in the readings.
    """
    order, number = strongest(fit), series.together
    slow = order * series.step_s / number / fit.period_s  # f
    if number == 1 or number * slow >= 0.5:
        return number > 1
    passed = math.sin(math.pi * number * slow) / (number * math.sin(math.pi * (1 / number - slow)))
    amplitude = float(np.abs(fit.coefficients[order - 1]))
    return series.hidden > _HIDDEN * amplitude * math.sqrt(0.5 * max(1.0 - passed**2, 0.0)) / passed


def told_apart(fit: Fit, series: Series) -> int:
    """How many harmonics the readings tell apart. Where a cycle takes a whole number of readings, all of these see the
    same few phases, or drift through them no faster than the phase walks: what lies between them is not seen."""
    readings, most = fit.period_s / series.step_s, len(fit.coefficients)
    phases = round(readings)
    drift = abs(readings - phases)  # from one cycle to the next, in readings
    cycles = float(fit.u[-1])
    if drift < max(_WALKS * fit.walk * readings / math.sqrt(cycles), _PASSES / cycles):
        return min(most, max(1, (phases - 1) // 2))
    return most


def _unlike(fit: Fit, series: Series, order: int, cycle_s: float, update_s: float) -> bool:
    """Whether readings, of whatever sensor, are unlike those of a beat: their edges are sharp, and their phase walks
    more than that of fast loads.

    But where iterations are made of parts alike, these are a fast load whose phase walks as far as the iterations'
    does, and its beat walks further than these. Where a cycle takes few updates, of which hardly an edge is seen, what
    walks so far is unlike an iteration.
    """
    if cycle_s < _SHOW_EDGES * update_s and fit.walk * math.sqrt(order) > _WALK:
        return False
    amplitude = float(np.max(np.abs(fit.coefficients))) * series.spread_w / series.centre_w
    sharpness, unsteadiness = _edge(fit, update_s) * order, _unsteadiness(fit) * order
    # On a starved machine many an update is missed, and the sensor is faster than the readings say.
    update_s = min(update_s, float(np.percentile(np.diff(series.t_s), 25)))
    fastest_hz = 1.0 / update_s - 1.0 / cycle_s  # the slowest load that may be behind a beat
    step = fit.walk * math.sqrt(order) / math.sqrt(cycle_s * fastest_hz)
    late = max(0.0, unsteadiness * cycle_s / update_s - _LATE)
    unlike = step / _USUAL_STEP + (_SOFT - sharpness) / _PER_SHARPNESS - late / _PER_LATENESS
    return amplitude > _LEAST_SWING and sharpness < _SOFTEST and unlike > _UNLIKE


def _edge(fit: Fit, update_s: float) -> float:
    """The share of a cycle in which the waveform would run through its whole swing at its steepest: by as many
    harmonics as are seen of a sensor that is not known, since finer ones may be noise."""
    seen = replace(fit, coefficients=fit.coefficients[: harmonics_through(fit.period_s, update_s)])
    return float(np.ptp(seen.waveform(_PHASES))) / max(float(np.max(np.abs(seen.slope(_PHASES)))), 1e-12)


def _unsteadiness(fit: Fit) -> float:
    """The most, in cycles, that the phase of each reading by itself may be off: how much more is left of a reading
    where the waveform is steep, with its own error (robust to uneven spread; White, 1980)."""
    steep = fit.slope(fit.phase)[fit.keep] ** 2
    left = fit.rest[fit.keep] ** 2
    design = np.column_stack((np.ones(len(steep)), steep))
    inverse = np.linalg.pinv(design.T @ design)
    weights = inverse @ (design.T @ left)
    rest = left - design @ weights
    variance = (inverse @ ((design.T * rest**2) @ design) @ inverse)[1, 1]
    return math.sqrt(max(float(weights[1]), 0.0) + 2.0 * math.sqrt(max(float(variance), 0.0)))
