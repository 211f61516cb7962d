"""Whether a period may be a beat: a load faster than the sensor, which the sensor's sampling folds into a slow one.

A sensor that looks every u seconds sees a load of frequency g as one of |g - k/u|. The beat folds as perfectly as a
real cycle does, and utilisation, which the same firmware samples, carries it as well. What tells them apart:

*Edges.* A reading averages over a window of w seconds, the share w·g of the fast cycle. Folded, that smears every edge
of the beat over so much of a cycle, where an edge of a real cycle takes w seconds only. (Where w is close to a whole
number of fast cycles the smear is short again, but then little of the swing is left.)

*Swing.* A window of n whole cycles and the share e of one more holds n times the same and what that share adds: a swing
of e/(n + e) at most, or of e/(n - e) where e is missing, of that of the load, which is little more than its own level.
A window about as long as an update is all but one or more fast cycles of a slow beat. It is known to some percent only,
so that e is never 0.

*Stamps.* An update comes early or late: on the cards measured by 0.5 to 1 ms, and by 0.1 to 0.4 % of its interval from
one to the next (`autocap.devices.model.logged_sensors`; most of the scatter in a log is its reader's). A beat turns a
hundredth of an update into a phase that is off by k hundredths of a cycle, in each reading by itself; a real cycle
hardly notices. Where the stamps are the sensor's, and so show by how much each update was off, a phase that is off with
them is a beat's. That a phase is steady shows little: a fit follows some of the jitter, and a counter may have none.

*Steps.* The time of a real step scatters by some percent. A beat whose cycle scatters as much comes from a fast load
that is rough itself, which real fast loads seldom are and kernels in a loop never.

The first three exclude a beat for a sensor that is known. For one that is not, edges, stamps and steps together make
one unlikely, and no more.
"""

import math
from enum import Enum

import numpy as np

from autocap.progress.period.estimate import Floats
from autocap.progress.period.pattern import Fit
from autocap.progress.period.series import Series
from autocap.progress.period.stamps import follows_the_clock

_PHASES = np.arange(512) / 512  # at which a waveform is drawn
_HOLDS = 0.93  # the share of the waveform's power in the multiples of an order that makes it the cycle of this one
_LEAST_UPDATE = 1e-3  # of the time between readings: an update that is shorter is none that was measured
_CONTINUOUS = 0.9  # of the update: a window from which on nothing goes unseen
_SHARP, _MOST_SHARP = 0.3, 0.1  # of the narrowest smear that a beat can have; of a cycle, whatever the window
# Set by simulation (fast loads through sensors and through their logs): noise, and jitter that a fit follows, make the
# edges of a beat seem up to three times as sharp as they are. Only where it hardly swings, over the level, do they seem
# sharper than _SHARPEST, of a cycle.
_SHARPENED, _SHARPEST, _FAINT = 3.0, 0.045, 0.05
_SWING = 1.5  # of the level: the most that a load swings, from its lowest to its highest
_WINDOW_OFF = 0.05  # of a window that is known: how far off it may be
# For a sensor that is not known. Set on simulated sensors and jobs like real ones, and on the logs of real cards.
_LEAST_SWING = 0.09
_USUAL_STEP, _SOFT, _PER_SHARPNESS, _UNLIKE = 0.02, 0.25, 0.1, 1.2
_SOFTEST = 0.28  # of a cycle, its edges; those of a sine take 0.32
_LATE, _PER_LATENESS = 0.2, 0.1  # updates that the readings of a real cycle are off by, each by itself
_RESOLVED = 3.0  # updates in a cycle of its own, where several are one; for a known sensor in the main harmonic's
_SIGMAS = 2.0
_HARMONICS = 3
_SQUARE = 2 / math.pi  # of its swing, the amplitude of a square wave, than which no wave has more
_SEES, _MISSES = 0.75, 0.5  # of the amplitude that a real period would have in the counter
_CLEAR = 3.0  # of the error of an amplitude in the counter, where it is taken for one

Witness = tuple[Floats, Floats]


class Seen(Enum):
    """Whether the energy counter sees a period."""

    YES = "yes"
    NO = "no"
    UNCLEAR = "unclear"


def counter_says(
    period_s: float, t_s: Floats, power_w: Floats, counted_t_s: Floats, counted_w: Floats, *, window_s: float
) -> Seen:
    """Whether the energy counter sees a period of the power readings.

    A sensor that samples a short window now and then sees a fast cycle as a slow one, and so does the energy counter,
    which is read as seldom. But the counter misses nothing: over its longer span it averages the fast cycle away, where
    a real slow one would pass. So a real period has the same amplitude in both, once each is corrected for its own
    window (the response of a boxcar of width w to a cycle of period T is sin(πw/T)/(πw/T)).

    t_s, power_w: readings, shape (n,), each a mean over the last window_s, 0 where that is not known. counted_t_s,
    counted_w: mean power between two moves of the counter, at the later one, shape (m,). Where the sensor averages over
    half of the counter's span or more, or is not known, the two do not tell, and only a swing that no beat has in the
    counter does.
    """
    inside = (counted_t_s >= t_s[0]) & (counted_t_s <= t_s[-1])
    counted_t_s, counted_w = counted_t_s[inside], counted_w[inside]
    if len(counted_t_s) < 2 * _HARMONICS:
        return Seen.UNCLEAR
    span_s = float(np.median(np.diff(counted_t_s)))
    swings = _amplitudes(period_s, counted_t_s, counted_w)
    seen = _amplitudes(period_s, t_s, power_w) / _passed(period_s, window_s)
    strongest = int(np.argmax(seen))
    share = float(swings[strongest] / _passed(period_s, span_s)[strongest] / max(seen[strongest], 1e-12))
    tells = span_s >= 2 * window_s
    if tells and share < _MISSES:
        return Seen.NO
    cycle_s = period_s / (strongest + 1)
    if swings[strongest] < _CLEAR * float(np.std(counted_w)) * math.sqrt(2 / len(counted_w)):
        return Seen.UNCLEAR  # no more than chance makes of a counter whose moves scatter
    most_w = _SQUARE * _most_of_a_beat(cycle_s, span_s, span_s, off=0.0) * float(counted_w.mean())
    beyond = cycle_s > span_s and swings[strongest] > most_w
    alike = _SEES < share < 1 / _SEES  # more than in the readings comes of when the counter was looked at
    return Seen.YES if alike and ((tells and window_s > 0) or beyond) else Seen.UNCLEAR


def _amplitudes(period_s: float, t_s: Floats, values: Floats) -> Floats:
    """Of the first harmonics of a period, shape (harmonics,)."""
    turns = np.exp(-2j * np.pi * np.outer(np.arange(1, _HARMONICS + 1), t_s / period_s))
    amplitudes: Floats = np.abs(turns @ (values - values.mean())) * 2 / len(values)
    return amplitudes


def _passed(period_s: float, window_s: float) -> Floats:
    """The share of each harmonic's amplitude that a boxcar lets through; not less than a tenth, to divide by."""
    shares: Floats = np.abs(np.sinc(np.arange(1, _HARMONICS + 1) * window_s / period_s))
    return np.maximum(shares, 0.1)


def unlike_a_beat(fit: Fit, series: Series, period_s: float, *, update_s: float, window_s: float) -> bool:
    """Whether the readings themselves exclude that a period is a beat, or for an unknown sensor make it unlikely.

    period_s: the mean of the fit. update_s, window_s: of the sensor; 0 for what is not known.
    """
    if update_s < _LEAST_UPDATE * series.step_s:
        update_s = series.step_s
    order = max(fit.parts(_HOLDS), default=1)
    cycle_s = period_s / order
    if cycle_s < _RESOLVED * update_s:
        return False
    if window_s > 0:
        return _excluded(fit, series, period_s, order, update_s, window_s)
    amplitude = float(np.abs(fit.coefficients[order - 1])) * series.spread_w / series.centre_w
    sharpness, unsteadiness = _edge(fit) * order, _unsteadiness(fit) * order
    # On a starved machine many an update is missed, and the sensor is faster than the readings say.
    update_s = min(update_s, float(np.percentile(np.diff(series.t_s), 25)))
    fastest_hz = 1.0 / update_s - 1.0 / cycle_s  # the slowest load that may be behind a beat
    step = fit.walk * math.sqrt(order) / math.sqrt(cycle_s * fastest_hz)
    late = max(0.0, unsteadiness * cycle_s / update_s - _LATE)
    unlike = step / _USUAL_STEP + (_SOFT - sharpness) / _PER_SHARPNESS - late / _PER_LATENESS
    return amplitude > _LEAST_SWING and sharpness < _SOFTEST and unlike > _UNLIKE


def _excluded(fit: Fit, series: Series, period_s: float, order: int, update_s: float, window_s: float) -> bool:
    """Whether no load that is faster than a known sensor looks like this."""
    # Readings that take a fast load's places in turn make a cycle of any length, whose waveform is one of many waves.
    main_s = period_s / (int(np.argmax(np.abs(fit.coefficients))) + 1)
    if main_s < _RESOLVED * update_s or follows_the_clock(fit, series, order=order, update_s=update_s):
        return False
    swing = float(np.ptp(fit.waveform(_PHASES))) * series.spread_w / series.centre_w
    if window_s >= _CONTINUOUS * update_s:
        return swing > _most_of_a_beat(main_s, update_s, window_s, off=_WINDOW_OFF)
    sharpness = _edge(fit) * order
    if swing < _FAINT or sharpness >= min(_SHARP * window_s / update_s, _MOST_SHARP):
        return False
    missing = _SHARPENED * sharpness  # of a fast cycle, in a window that is nearly one
    return sharpness < _SHARPEST or swing > _SWING * missing / (1.0 - missing)


def _most_of_a_beat(cycle_s: float, update_s: float, window_s: float, *, off: float) -> float:
    """The most that a beat can swing, over the level, where readings average over about all of the time. off: of the
    window, by how much it may be longer or shorter. Loads of about one cycle an update swing most."""
    cycles = window_s * (1.0 / update_s + np.array([-1.0, 1.0]) / cycle_s)  # of the fast load, in a window
    share = np.minimum(np.abs(cycles - np.round(cycles)) + off * cycles, 0.5)
    return _SWING * float(np.max(share / (cycles * (1.0 - off))))


def _edge(fit: Fit) -> float:
    """The share of a cycle in which the waveform would run through its whole swing at its steepest."""
    return float(np.ptp(fit.waveform(_PHASES))) / max(float(np.max(np.abs(fit.slope(_PHASES)))), 1e-12)


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
    return math.sqrt(max(float(weights[1]), 0.0) + _SIGMAS * math.sqrt(max(float(variance), 0.0)))
