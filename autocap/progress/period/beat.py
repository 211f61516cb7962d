"""Whether a period may be a beat: a load faster than the sensor, which the sensor's sampling folds into a slow one.

A sensor that looks every u seconds sees a load of frequency g = k/u + f, for any whole k, as one of frequency f. The
beat folds as perfectly as a real cycle does, and utilisation, which the same firmware samples, carries it as well. For
every g that may stand behind a period there are up to three questions, and one answer against it is enough:

*The readings.* They average over w seconds, w·g cycles of the load. Could it swing as much, and as steeply, through
that (`bound.py`)?

*The counter.* The energy counter misses nothing: what is between two of its moves is an average over all of the time.
So the same question with its own interval; and where its moves fold g to another frequency than the readings do, it
does not see the period at all.

*Both.* A real cycle has the same amplitude in both, once each is corrected for its own window. A beat has not, where
the windows differ.

Where no load is left, the period is proven to be the job's own: by physics, not by likelihood. Where the window is not
known, all that sensors have been seen to have are tried, and what is left out then is unlikely to be a beat, and no
more. So is what `_unlike` says of readings that are smeared: it weighs how much the phase walks and how sharp edges
are. Stamps may show a beat (`stamps.py`), and never exclude one.
"""

import math
from dataclasses import dataclass
from enum import Enum

import numpy as np

from autocap.progress.period.bound import Draw, drawn, may_pass, swing_of
from autocap.progress.period.candidates import fourier
from autocap.progress.period.estimate import Bools, Floats
from autocap.progress.period.pattern import Fit
from autocap.progress.period.series import Series
from autocap.progress.period.stamps import follows_the_clock

Witness = tuple[Floats, Floats]

_HOLDS = 0.93  # the share of the waveform's power in the multiples of an order that makes it the cycle of this one
_LEAST_UPDATE = 1e-3  # of the time between readings: an update that is shorter is none that was measured
_RESOLVED = 3.0  # updates in a cycle of its own
_FASTEST_S = 1e-3  # the shortest cycle of a load that is thought of
_MOST_ORDERS = 200
# What a card is taken to draw where nothing is known, times the mean: between two kernels of a fast load its clocks are
# up, and it drew a third of the mean and more wherever that was seen.
_LEAST, _MOST = 0.2, 2.5
# By how much a window that is known may be longer or shorter. An average over all of the time is the update itself.
_WINDOW_OFF, _AS_LONG, _UPDATE_OFF = 0.05, 0.03, 0.01
_UNKNOWN = np.geomspace(0.2, 1.1, 12)  # windows, in updates, that sensors have been seen to have
_BETWEEN_UNKNOWN = 0.08
# How far apart two frequencies must be to be told apart: in lines of the window, and as a share, since no clock is exact.
_LINES, _CLOCK_OFF = 3.0, 0.01
_FINEST = 40  # harmonics
_PARTS, _FEW_PARTS = 6, 1.3  # of a window, whose scatter is the error; what so few of them make of three sigmas
_THROUGH, _KEPT, _MOST_OF_A_CYCLE, _RIDGE, _LARGEST_W = 0.45, 0.99, 0.5, 1e-6, 1e12
_COUNTER_OFF = 0.03
_MISSES, _ALIKE = 0.5, 0.7  # of the amplitude that a real period would have in the counter
_SIGMAS = 3.0
# For a sensor that is not known. Set on simulated sensors and jobs like real ones, and on the logs of real cards.
_LEAST_SWING = 0.09
_USUAL_STEP, _SOFT, _PER_SHARPNESS, _UNLIKE = 0.02, 0.25, 0.1, 1.5
_SOFTEST = 0.28  # of a cycle, its edges; those of a sine take 0.32
_LATE, _PER_LATENESS = 0.2, 0.1  # updates that the readings of a real cycle are off by, each by itself
_PHASES = np.arange(512) / 512  # at which a waveform is drawn


class Beat(Enum):
    """Whether a period is a beat. EXCLUDED: proven not to be. UNLIKELY: nothing that was seen of sensors and loads looks
    like this. POSSIBLE: a fast load could. SHOWN: proven to be one."""

    EXCLUDED = "excluded"
    UNLIKELY = "unlikely"
    POSSIBLE = "possible"
    SHOWN = "shown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Seeing:
    """What is known beside the readings. update_s, window_s: of the sensor, 0 for a window that is not known. counted:
    mean power between two moves of the energy counter, at the later one, as (stamps, values). draw: what the card can
    draw; `None` where nobody knows."""

    update_s: float
    window_s: float
    counted: Witness | None = None
    draw: Draw | None = None


def beat(fit: Fit, series: Series, period_s: float, seeing: Seeing) -> Beat:
    """Whether a fitted period may be a beat. period_s: the mean of the fit."""
    update_s = seeing.update_s
    if update_s < _LEAST_UPDATE * series.step_s:
        update_s = series.step_s
    values_w, errors_w = _waveform(fit, series)
    mean_w = series.centre_w + series.spread_w * float(np.mean(fit.level[fit.keep]))
    draw = seeing.draw or Draw(least_w=_LEAST * mean_w, most_w=_MOST * mean_w)
    view = None if seeing.counted is None else _View.of(fit, series, *seeing.counted)
    if view is not None and view.misses(period_s, seeing.window_s):
        return Beat.SHOWN
    likely = True
    for order in (1, *fit.parts(_HOLDS)):
        cycle_s = period_s / order
        loads_hz = _loads_behind(cycle_s, update_s)
        left = np.ones(len(loads_hz), dtype=bool)
        if view is not None:
            left = view.may_see(loads_hz, order, cycle_s, series.span_s, draw)
            if seeing.window_s > 0:
                left &= view.may_differ(
                    loads_hz * view.harmonic / order, period_s, seeing.window_s, _off(seeing.window_s, update_s)
                )
        if not left.any():
            continue
        if cycle_s < _RESOLVED * update_s:
            return Beat.POSSIBLE
        swing = swing_of(values_w, errors_w, mean_w, order)
        if seeing.window_s > 0:
            if may_pass(swing, loads_hz[left] * seeing.window_s, _off(seeing.window_s, update_s), draw).any():
                return Beat.POSSIBLE
            continue
        likely = False
        windows_s = _UNKNOWN * update_s
        passes = may_pass(swing, (loads_hz[left][:, None] * windows_s).ravel(), _BETWEEN_UNKNOWN, draw)
        if not passes.any():
            continue
        if follows_the_clock(fit, series, order=order, update_s=update_s):
            return Beat.POSSIBLE
        if not _unlike(fit, series, order, cycle_s, update_s):
            return Beat.POSSIBLE
    return Beat.EXCLUDED if likely else Beat.UNLIKELY


def _off(window_s: float, update_s: float) -> float:
    """By which share a window that is known may be off. An average over all of the time is the update itself."""
    return _UPDATE_OFF if abs(window_s / update_s - 1) < _AS_LONG else _WINDOW_OFF


def counter_misses(
    period_s: float, t_s: Floats, power_w: Floats, counted_t_s: Floats, counted_w: Floats, *, window_s: float
) -> bool:
    """Whether the energy counter does not see a period that the readings show, which a beat explains and no cycle.

    t_s, power_w: readings, shape (n,), each a mean over the last window_s, 0 where that is not known. counted_t_s,
    counted_w: mean power between two moves of the counter, at the later one, shape (m,).
    """
    inside = (counted_t_s >= t_s[0]) & (counted_t_s <= t_s[-1])
    counted_t_s, counted_w = counted_t_s[inside], counted_w[inside]
    if len(counted_t_s) < 2 * _HARMONICS:
        return False
    span_s = float(np.median(np.diff(counted_t_s)))
    seen = _amplitudes(period_s, t_s, power_w) / _passed(period_s, window_s)
    strongest = int(np.argmax(seen))
    counted = _amplitudes(period_s, counted_t_s, counted_w) / _passed(period_s, span_s)
    return bool(counted[strongest] < _MISSES * seen[strongest])


_HARMONICS = 3


def _amplitudes(period_s: float, t_s: Floats, values: Floats) -> Floats:
    """Of the first harmonics of a period, shape (harmonics,)."""
    turns = np.exp(-2j * np.pi * np.outer(np.arange(1, _HARMONICS + 1), t_s / period_s))
    amplitudes: Floats = np.abs(turns @ (values - values.mean())) * 2 / len(values)
    return amplitudes


def _passed(period_s: float, window_s: float) -> Floats:
    """The share of each harmonic's amplitude that a boxcar lets through; not less than a tenth, to divide by."""
    shares: Floats = np.abs(np.sinc(np.arange(1, _HARMONICS + 1) * window_s / period_s))
    return np.maximum(shares, 0.1)


def _loads_behind(cycle_s: float, update_s: float) -> Floats:
    """The frequencies of loads that sampling every update_s folds to one cycle in cycle_s, shape (n,), hertz."""
    orders_hz = np.arange(1, int(np.clip(update_s / _FASTEST_S, 2, _MOST_ORDERS)) + 1) / update_s
    return np.concatenate((orders_hz - 1.0 / cycle_s, orders_hz + 1.0 / cycle_s))


def _waveform(fit: Fit, series: Series) -> tuple[Floats, Floats]:
    """What was fitted, drawn, and its deviations, watts; where there are readings enough with finer edges than the fit
    has, which is made for speed."""
    size = 2 * len(fit.coefficients)
    finer = min(_FINEST, (int(fit.keep.sum()) // _PARTS - 4) // 2, int(_THROUGH * fit.period_s / series.step_s))
    if 2 * finer > size:
        values = (series.y - fit.level)[fit.keep] * series.spread_w
        mean, off = _folded(fit.phase[fit.keep], values, np.ones(len(values)), finer)
        return drawn(mean[None])[0], drawn(off)
    amplitudes = np.concatenate((fit.coefficients.real, fit.coefficients.imag))[None]
    errors = np.asarray(np.linalg.cholesky(fit.posterior[-size:, -size:] + 1e-12 * np.eye(size)), dtype=np.float64).T
    return drawn(amplitudes)[0] * series.spread_w, drawn(errors) * series.spread_w


def _folded(phase: Floats, values: Floats, weights: Floats, harmonics: int) -> tuple[Floats, Floats]:
    """Cosines and sines of a waveform along a phase, shape (2·harmonics,), and the deviations of some parts from it, of
    shape (parts, 2·harmonics), whose squares add up to the variance: of whatever colour the noise is."""
    design = np.column_stack((np.ones(len(phase)), phase - phase.mean(), fourier(phase, harmonics)))
    found = []
    for part in np.array_split(np.arange(len(phase)), _PARTS):
        columns, weighed = design[part], design[part].T * weights[part]
        square = weighed @ columns
        ridge = _RIDGE * float(np.trace(square)) / len(square) * np.eye(len(square))
        found.append(np.linalg.solve(square + ridge, weighed @ values[part])[2:])
    waves = np.array(found)
    mean: Floats = waves.mean(axis=0)
    return mean, (waves - mean) * _FEW_PARTS / math.sqrt(_PARTS * (_PARTS - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class _View:
    """What the energy counter sees along a fitted phase. span_s: between two of its moves. swing: of the waveform in
    it, drawn, with its deviations, and mean_w. seen, stderr: the amplitude of the harmonic that is strongest in the readings, watts, and its error; read: the
    same in the readings; harmonic: which one."""

    span_s: float
    values_w: Floats
    errors_w: Floats
    mean_w: float
    seen: float
    stderr: float
    read: float
    harmonic: int

    @classmethod
    def of(cls, fit: Fit, series: Series, t_s: Floats, power_w: Floats) -> "_View | None":
        """`None` where the counter moved too seldom within what was fitted.

        Its waveform is fitted to each of some parts of the window, whose scatter is the error: of whatever colour the
        noise is. A move is seen late, by more or less; weighing each power by its time, only the ends feel that.
        """
        if len(t_s) < 3:
            return None
        spans_s = np.diff(t_s)
        span_s = float(np.median(spans_s))
        middle_s, power_w = t_s[1:] - 0.5 * spans_s, power_w[1:]
        kept = np.interp(middle_s, series.t_s, fit.keep.astype(float), left=0.0, right=0.0) > _KEPT
        kept &= (spans_s < _MOST_OF_A_CYCLE * fit.period_s) & (power_w < _LARGEST_W)
        harmonics = int(np.clip(_THROUGH * fit.period_s / span_s, 1, len(fit.coefficients)))
        middle_s, weights, power_w = middle_s[kept], spans_s[kept], power_w[kept]
        if len(middle_s) < _PARTS * (2 * harmonics + 4):
            return None
        phase = fit.phase_at(np.interp(middle_s, series.t_s, fit.u))
        mean, off = _folded(phase, power_w, weights, harmonics)
        place = int(np.argmax(np.abs(fit.coefficients[:harmonics])))
        both = [place, harmonics + place]
        return cls(
            span_s=span_s,
            values_w=drawn(mean[None])[0],
            errors_w=drawn(off),
            mean_w=float(np.average(power_w, weights=weights)),
            seen=float(np.linalg.norm(mean[both])),
            stderr=float(np.linalg.norm(off[:, both])) / math.sqrt(2),
            read=float(np.abs(fit.coefficients[place])) * series.spread_w,
            harmonic=place + 1,
        )

    def _share(self, period_s: float, window_s: float) -> tuple[float, float]:
        """The amplitude in the counter over that in the readings, each corrected for its window, and its error."""
        cycles = self.harmonic / period_s
        passed = max(0.1, float(np.sinc(cycles * self.span_s))) / max(0.1, float(np.sinc(cycles * window_s)))
        read = max(self.read, 1e-12)
        return self.seen / read / passed, self.stderr / read / passed

    def misses(self, period_s: float, window_s: float) -> bool:
        share, stderr = self._share(period_s, window_s)
        return share + _SIGMAS * stderr < _MISSES

    def may_see(self, loads_hz: Floats, order: int, cycle_s: float, window_s: float, draw: Draw) -> Bools:
        """Which loads the counter may see as it sees `order` cycles of cycle_s, shape (n,). window_s: how long it was
        looked at."""
        seen_hz = np.abs(loads_hz - np.round(loads_hz * self.span_s) / self.span_s)
        folds = np.abs(seen_hz - 1.0 / cycle_s) < np.maximum(_LINES / window_s, _CLOCK_OFF * loads_hz)
        sees = self.seen > 2 * _SIGMAS * self.stderr
        swing = swing_of(self.values_w, self.errors_w, self.mean_w, order)
        passes = may_pass(swing, loads_hz * self.span_s, _COUNTER_OFF, draw)
        may: Bools = np.where(folds, passes, not sees)
        return may

    def may_differ(self, main_hz: Floats, period_s: float, window_s: float, off: float) -> Bools:
        """Whether the amplitudes in counter and readings may be those of each load, shape (n,). main_hz: of what in it is
        behind the strongest harmonic."""
        share, stderr = self._share(period_s, window_s)
        most = np.abs(np.sinc(main_hz * self.span_s)) + _UPDATE_OFF
        read = np.min(np.abs(np.sinc(main_hz * window_s * np.array([[1 - off], [1.0], [1 + off]]))), axis=0)
        return np.asarray(most > _ALIKE * (share - _SIGMAS * stderr) * read)


def _unlike(fit: Fit, series: Series, order: int, cycle_s: float, update_s: float) -> bool:
    """Whether readings of a sensor that is not known are unlike those of a beat: their edges are sharp, and their phase
    walks more than that of fast loads."""
    amplitude = float(np.abs(fit.coefficients[order - 1])) * series.spread_w / series.centre_w
    sharpness, unsteadiness = _edge(fit) * order, _unsteadiness(fit) * order
    # On a starved machine many an update is missed, and the sensor is faster than the readings say.
    update_s = min(update_s, float(np.percentile(np.diff(series.t_s), 25)))
    fastest_hz = 1.0 / update_s - 1.0 / cycle_s  # the slowest load that may be behind a beat
    step = fit.walk * math.sqrt(order) / math.sqrt(cycle_s * fastest_hz)
    late = max(0.0, unsteadiness * cycle_s / update_s - _LATE)
    unlike = step / _USUAL_STEP + (_SOFT - sharpness) / _PER_SHARPNESS - late / _PER_LATENESS
    return amplitude > _LEAST_SWING and sharpness < _SOFTEST and unlike > _UNLIKE


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
    return math.sqrt(max(float(weights[1]), 0.0) + 2.0 * math.sqrt(max(float(variance), 0.0)))
