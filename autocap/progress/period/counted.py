"""What the energy counter sees of a period: an average over all of the time, between its moves."""

import math
from dataclasses import dataclass

import numpy as np

from autocap.progress.period.bound import Draw, drawn, may_pass, swing_of
from autocap.progress.period.candidates import fourier
from autocap.progress.period.estimate import Bools, Floats
from autocap.progress.period.pattern import Fit
from autocap.progress.period.series import Series

Witness = tuple[Floats, Floats]


@dataclass(frozen=True, slots=True)
class Load:
    """CPUs in use, on average, between two looks at the CPU time of a job, at the later one, each of shape (n,). most:
    that there are."""

    t_s: Floats
    cpus: Floats
    most: float


PARTS, _FEW_PARTS = 6, 1.3  # of a window, whose scatter is the error; what so few of them make of three sigmas
_RIDGE = 1e-6
_THROUGH = 0.45  # moves for each harmonic that is told apart
_KEPT = 0.99  # what lies between two readings that belong to the pattern does as well
_MOST_OF_A_CYCLE = 0.5  # between two moves
_LARGEST_W = 1e12
_COUNTER_OFF, _LEAST_PASSED = 0.03, 0.01  # of the time between moves, as it is seen; of an amplitude
# How far apart two frequencies must be to be told apart: in lines of the window, and as a share: no clock is exact.
_LINES, _CLOCK_OFF = 3.0, 0.01
_MISSES, _ALIKE = 0.5, 0.7  # of the amplitude that a real period would have in the counter
_SIGMAS = 3.0
_HARMONICS = 3  # that are compared where no fit is at hand
# When two views see a cycle: the share of a beat's phases at which they would seem to agree, at most; how well that is
# known, in cycles; and how much of the amplitude the counter shows then.
_CHANCE, _STEADY, _SAME = 0.07, 0.02, (0.7, 1.4)


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


def _amplitudes(period_s: float, t_s: Floats, values: Floats) -> Floats:
    """Of the first harmonics of a period, shape (harmonics,)."""
    turns = np.exp(-2j * np.pi * np.outer(np.arange(1, _HARMONICS + 1), t_s / period_s))
    amplitudes: Floats = np.abs(turns @ (values - values.mean())) * 2 / len(values)
    return amplitudes


def _passed(period_s: float, window_s: float) -> Floats:
    """The share of each harmonic's amplitude that a boxcar lets through; not less than a tenth, to divide by."""
    shares: Floats = np.abs(np.sinc(np.arange(1, _HARMONICS + 1) * window_s / period_s))
    return np.maximum(shares, 0.1)


def folded(phase: Floats, values: Floats, weights: Floats, harmonics: int) -> tuple[Floats, Floats]:
    """Cosines and sines of a waveform along a phase, shape (2·harmonics,), and the deviations of some parts from it, of
    shape (parts, 2·harmonics), whose squares add up to the variance: of whatever colour the noise is."""
    design = np.column_stack((np.ones(len(phase)), phase - phase.mean(), fourier(phase, harmonics)))
    found = []
    for part in np.array_split(np.arange(len(phase)), PARTS):
        columns, weighed = design[part], design[part].T * weights[part]
        square = weighed @ columns
        ridge = _RIDGE * float(np.trace(square)) / len(square) * np.eye(len(square))
        found.append(np.linalg.solve(square + ridge, weighed @ values[part])[2:])
    waves = np.array(found)
    mean: Floats = waves.mean(axis=0)
    return mean, (waves - mean) * _FEW_PARTS / math.sqrt(PARTS * (PARTS - 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterView:
    """What the energy counter sees along a fitted phase. span_s: between two of its moves. values_w, errors_w: the
    waveform in it, drawn, and its deviations; mean_w: of it. seen, stderr: the amplitude of the harmonic that is
    strongest in the readings, watts, and its error; read: the same in the readings; harmonic: which one. ahead: by how
    many cycles of that harmonic the counter shows it before the readings do, within half a cycle, and ahead_stderr."""

    span_s: float
    values_w: Floats
    errors_w: Floats
    mean_w: float
    seen: float
    stderr: float
    read: float
    harmonic: int
    ahead: float
    ahead_stderr: float

    @classmethod
    def of(cls, fit: Fit, series: Series, t_s: Floats, power_w: Floats) -> "CounterView | None":
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
        if len(middle_s) < PARTS * (2 * harmonics + 4):
            return None
        phase = fit.phase_at(np.interp(middle_s, series.t_s, fit.u))
        mean, off = folded(phase, power_w, weights, harmonics)
        place = int(np.argmax(np.abs(fit.coefficients[:harmonics])))
        both = [place, harmonics + place]
        # A later wave has the larger angle; what is off at a right angle to the mean turns it.
        wave, others = complex(*mean[both]), off[:, place] + 1j * off[:, harmonics + place]
        across = (others * np.conj(wave)).imag / max(abs(wave) ** 2, 1e-24)
        return cls(
            span_s=span_s,
            values_w=drawn(mean[None])[0],
            errors_w=drawn(off),
            mean_w=float(np.average(power_w, weights=weights)),
            seen=float(np.linalg.norm(mean[both])),
            stderr=float(np.linalg.norm(off[:, both])) / math.sqrt(2),
            read=float(np.abs(fit.coefficients[place])) * series.spread_w,
            harmonic=place + 1,
            ahead=float(np.angle(fit.coefficients[place] * np.conj(wave))) / (2 * math.pi),
            ahead_stderr=float(np.linalg.norm(across)) / (2 * math.pi),
        )

    def _share(self, period_s: float, window_s: float) -> tuple[float, float]:
        """The amplitude in the counter over that in the readings, each corrected for its window, and its error."""
        cycles = self.harmonic / period_s
        passed = max(0.1, float(np.sinc(cycles * self.span_s))) / max(0.1, float(np.sinc(cycles * window_s)))
        read = max(self.read, 1e-12)
        return self.seen / read / passed, self.stderr / read / passed

    def is_in_time(self, period_s: float, shortest_s: float, longest_s: float) -> bool:
        """Whether readings and counter see the cycle at the same time, which a beat is not likely to do.

        Readings that average over the last w seconds show a cycle w/2 late, and the counter's moves are seen up to one
        of them late. A beat is ahead in each by how its sampling lies to the load: by the same where both sample at the
        same moments, and else by anything, and by more and more where their clocks wander. shortest_s, longest_s: that
        w may be.
        """
        cycle_s = period_s / self.harmonic
        earliest, latest = (0.5 * shortest_s - self.span_s) / cycle_s, 0.5 * longest_s / cycle_s
        off = 2 * self.ahead_stderr
        share, _ = self._share(period_s, longest_s)
        agrees = earliest - off < self.ahead < latest + off and _SAME[0] < share < _SAME[1]
        return agrees and self.ahead_stderr < _STEADY and latest - earliest < _CHANCE

    def misses(self, period_s: float, window_s: float) -> bool:
        share, stderr = self._share(period_s, window_s)
        return share + _SIGMAS * stderr < _ALIKE

    @property
    def sees(self) -> bool:
        """Whether there is anything of the cycle in it beyond doubt."""
        return self.seen > 2 * _SIGMAS * self.stderr

    def may_see(self, loads_hz: Floats, order: int, cycle_s: float, window_s: float, draw: Draw) -> Bools:
        """Which loads the counter may see as it sees `order` cycles of cycle_s, shape (n,). window_s: how long it was
        looked at."""
        seen_hz = np.abs(loads_hz - np.round(loads_hz * self.span_s) / self.span_s)
        folds = np.abs(seen_hz - 1.0 / cycle_s) < np.maximum(_LINES / window_s, _CLOCK_OFF * loads_hz)
        swing = swing_of(self.values_w, self.errors_w, self.mean_w, order)
        passes = may_pass(swing, loads_hz * self.span_s, _COUNTER_OFF, draw)
        may: Bools = np.where(folds, passes, not self.sees)
        return may

    def may_differ(self, main_hz: Floats, period_s: float, windows_s: Floats, off: float) -> Bools:
        """Whether the amplitudes in counter and readings may be those of each load, shape (n,). main_hz: of what in it
        is behind the strongest harmonic. windows_s: that the readings may average over, shape (m,), each off by a share
        of so much."""
        may = np.zeros(len(main_hz), dtype=bool)
        most = np.abs(np.sinc(main_hz * self.span_s)) + _LEAST_PASSED
        for window_s in windows_s:
            share, stderr = self._share(period_s, float(window_s))
            read = np.min(np.abs(np.sinc(main_hz * window_s * np.array([[1 - off], [1.0], [1 + off]]))), axis=0)
            may |= most > _ALIKE * (share - _SIGMAS * stderr) * read
        return may
