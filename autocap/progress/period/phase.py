"""The phase of a waveform that is known, followed through readings as they come, however far apart these are.

A hidden Markov model, run forward (Rabiner, "A tutorial on hidden Markov models", 1989): the job is at one of many
phases of its cycle, which goes on at the mean period and wanders by the jitter of the iterations, or it does something
else. What a reading says of each phase is how far it is off what the waveform shows there. The cost is that of the
new readings alone.
"""

import math
from collections import deque

import numpy as np
from numpy.typing import NDArray

from autocap.progress.period.candidates import fourier
from autocap.progress.period.estimate import Floats, Template

_PHASES, _FINE = 64, 8
_PLACES = _PHASES * _FINE  # of the table of the waveform
_BLOCK = 0.5  # cycles whose readings are taken together
_LEAST_WALK = 0.015  # of the phase, per cycle
_LEAST_NOISE = 0.003  # of the level: a sensor's own
_STRAY = 0.03  # readings that are off in spite of all
_LEAVES, _COMES_BACK = 1 / 300, 1 / 10  # how often the job leaves its pattern, and comes back, per cycle
_JUMPS = 1e-3  # how often the phase does, per cycle
_SURE, _CLEAR = 0.9, 0.7  # that it is the pattern; how much the phases that are likely lie together
_MOST_SINCE = 128  # blocks in which to see when the pattern came back
_WANDERED = 3  # by so many of the phases in them
_BLURRED = 1 / 24  # cycles within which a reading may lie, at least
_PERIOD_CYCLES, _SHARE_CYCLES = 40.0, 6.0  # how many the mean period, and the share of the pattern, are of
_LEVEL_CYCLES = 20.0
_MOST_OFF = 4.0  # standard deviations, of a reading that says something of the level
_FOLLOWED = 0.6  # of the time, with the pattern
# Times the mean square of what the waveform leaves of the readings usually, over its variance, and the least of that:
# it is another waveform. A mean square of 1 is what the variance says.
_OTHERWISE, _LEAST_USUAL = 2.5, 0.5
_AHEAD = 0.1  # of a cycle, that the phase may wander from one reading to the next
# Nats by which readings are likelier along the phase than without an order, half a cycle, or a reading where they are
# farther apart: to go on, and to go on with readings now and then.
_LEAST_GAIN, _GAIN = 0.1, 0.4
_LEAST_LIKELY, _MOST_LOST = 1e-30, 3.0
_GAIN_BLOCKS = 16  # that this is the mean of

_ORDERS = np.arange(_PHASES // 2 + 1)
_GRID = np.arange(_PHASES) * _FINE
_TURNS = np.exp(2j * np.pi * np.arange(_PHASES) / _PHASES)


class PhaseTracker:
    """pattern: what is followed. level_w: mean power over its cycles. at_s, count: where counting begins, from what is
    fed on. blur_s: by how much the stamp of a reading may be late where readings are taken now and then.

    knots: (time, cycles counted until then), as they become known; two with the same count enclose a pause.
    """

    def __init__(self, pattern: Template, blur_s: float = 0.0) -> None:
        self._pattern, self._level_w, self._blur_s = pattern, pattern.level_w, blur_s
        self.period_s = pattern.period_s
        self._walk = max(pattern.jitter, _LEAST_WALK)
        self._noise_w = max(pattern.noise_w, _LEAST_NOISE * pattern.level_w)
        harmonics = len(pattern.coefficients)
        waves = fourier(np.arange(_PLACES) / _PLACES, harmonics)
        self._wave = waves @ np.concatenate((pattern.coefficients.real, pattern.coefficients.imag))
        self._sums = np.cumsum(self._wave) / _PLACES
        self._square = float(np.mean(self._wave**2))
        self._square_sums = np.cumsum(self._wave**2 - self._square) / _PLACES
        self._belief = np.full(_PHASES, 1.0 / (2 * _PHASES))
        self._elsewhere = 0.5  # that it is something else
        self._time_s, self._cycles = _PERIOD_CYCLES * self.period_s, _PERIOD_CYCLES
        self._last_s: float | None = None  # the last block
        self._at: tuple[float, float] | None = None  # when the phase was last clear, and the phase
        self._left_s: float | None = None  # when the pattern was left after that
        # Blocks after that: when they begin, and what they say of each phase, and of anything else.
        self._since: deque[tuple[float, Floats, float]] = deque(maxlen=_MOST_SINCE)
        self._paused_s: tuple[float, float] | None = None  # from when until when it was something else, the last time
        self.count = 0.0
        self.knots: list[tuple[float, float]] = []
        self.share = 1.0  # of the pattern, lately
        self.gain = _GAIN
        # The mean square of what it leaves, over its variance: lately, and of what was fed first.
        self._left, self._usually_left = 1.0, 0.0

    @property
    def follows(self) -> bool:
        """Whether the readings go with the pattern, lately, and it leaves no more of them than usually."""
        as_ever = self._left <= _OTHERWISE * max(self._usually_left, _LEAST_USUAL)
        return self.share >= _FOLLOWED and self.gain >= _LEAST_GAIN and as_ever

    @property
    def left_s(self) -> float | None:
        """Since when it is something else, `None` while it is the pattern."""
        return self._left_s

    def spare_s(self, most_s: float) -> float:
        """Seconds from one reading to the next with which the phase can be followed as well, at most so many; 0 where
        each is needed."""
        if self._left_s is not None or not self.follows or self.gain < _GAIN or self._elsewhere > 1.0 - _SURE:
            return 0.0
        return min(most_s, self.period_s * (_AHEAD / self._walk) ** 2)

    def take(self, t_s: Floats, power_w: Floats, *, seldom: bool = False) -> None:
        """Follow readings after those before, shape (n,). seldom: they are taken now and then, so that their stamps may
        be late."""
        if len(t_s) == 0:
            return
        place = np.floor((t_s - t_s[0]) / (_BLOCK * self.period_s))
        starts = np.flatnonzero(np.diff(place, prepend=-1.0))
        begun_s = t_s[starts]
        sizes = np.diff(starts, append=len(t_s))
        offsets = (t_s - np.repeat(begun_s, sizes)) / self.period_s
        at = _GRID + np.rint(offsets * _PLACES).astype(int)[:, None]
        wave, stray = self._seen(at, self._blur_s if seldom else 0.0)
        rest_w = (power_w - self._level_w)[:, None] - wave
        variance = self._noise_w**2 + stray
        anywhere = 1.0 / (2.0 * self._level_w)
        density = np.exp(-0.5 * rest_w**2 / variance) / np.sqrt(2 * np.pi * variance)
        said = np.add.reduceat(np.log((1 - _STRAY) * density + _STRAY * anywhere), starts, axis=0)
        followed = []
        for block, (start_s, size) in enumerate(zip(begun_s.tolist(), sizes.tolist(), strict=True)):
            # Elsewhere it may draw anything, or what it draws in the pattern, without its order from block to block.
            best = float(said[block].max())
            unordered = best + math.log(float(np.mean(np.exp(said[block] - best))))
            followed.append(self._step(start_s, said[block], size * math.log(anywhere), unordered))
        self._settle(rest_w, variance, np.repeat(np.array(followed), sizes), t_s)

    def _seen(self, at: NDArray[np.int_], blur_s: float) -> tuple[Floats, Floats]:
        """What a reading shows at some places of the waveform's table, and the variance that a late stamp brings."""
        wave = self._wave[at % _PLACES]
        # How far the waveform moves within what the phase, or a stamp, may be off.
        reach = round(max(blur_s / self.period_s, _BLURRED) * _PLACES / 2)
        here, there = (at + reach) % _PLACES, (at - reach) % _PLACES
        mean = (self._sums[here] - self._sums[there]) * _PLACES / (2 * reach)
        square = (self._square_sums[here] - self._square_sums[there]) * _PLACES / (2 * reach)
        stray = np.maximum(square + self._square - mean**2, 0.0) + (wave - mean) ** 2
        return wave, stray

    def _step(self, start_s: float, said: Floats, anything: float, unordered: float) -> float:
        """Take in a block of readings that begins then, with what they say of each phase, of anything else, and of the
        pattern without its order; the phase there where it is clear, else nan."""
        passed = 0.0 if self._last_s is None else (start_s - self._last_s) / self.period_s
        belief = self._moved(passed)
        said_elsewhere = float(np.logaddexp(anything, unordered)) - math.log(2.0)
        best = max(float(said.max()), said_elsewhere)
        inside = float(belief.sum())
        belief *= np.exp(said - best)
        self._since.append((start_s, said, said_elsewhere))
        gain = math.log(max(float(belief.sum()) / inside, _LEAST_LIKELY)) + best - unordered
        self.gain += (max(gain, -_MOST_LOST) - self.gain) / _GAIN_BLOCKS
        elsewhere = self._elsewhere * math.exp(said_elsewhere - best)
        total = float(belief.sum()) + elsewhere
        self._belief, self._elsewhere = belief / total, elsewhere / total
        self._last_s = start_s
        sure = 1.0 - self._elsewhere
        self.share += (float(sure > 0.5) - self.share) * (1.0 - math.exp(-max(passed, 0.05) / _SHARE_CYCLES))
        turn = complex(self._belief @ _TURNS)
        if sure < 0.5 and self._left_s is None and self._at is not None:
            self._left_s = start_s
        if sure < _SURE or abs(turn) < _CLEAR * sure:
            return math.nan
        phase = (math.atan2(turn.imag, turn.real) / (2 * math.pi)) % 1.0
        self._count_to(start_s, phase)
        return phase

    def _moved(self, passed: float) -> Floats:
        """The phases as likely as they are so many cycles later; what is elsewhere then is noted."""
        spread = np.exp(-2j * np.pi * _ORDERS * passed - 2 * (np.pi * _ORDERS * self._walk) ** 2 * passed)
        moved = np.maximum(np.fft.irfft(np.fft.rfft(self._belief) * spread, _PHASES), 0.0)
        leaves, back, jumps = (1.0 - math.exp(-rate * passed) for rate in (_LEAVES, _COMES_BACK, _JUMPS))
        inside = float(moved.sum())
        anew = (jumps * inside + back * self._elsewhere) / _PHASES
        self._elsewhere += leaves * inside - back * self._elsewhere
        return np.asarray((1.0 - leaves - jumps) * moved + anew)

    def _worked_s(self, t_s: float, phase: float) -> float:
        """Seconds with the pattern since the phase was last clear, where it was left since; the phase is this now. From
        when until when it was not is where the readings before and after go on with it at the usual pace the longest:
        where the logarithms of what they say for it, above what they say against it, add up to the most."""
        assert self._at is not None
        begun_s, begun = self._at
        times_s = np.array([one[0] for one in self._since])
        said = np.array([one[1] for one in self._since])
        said = np.max([np.roll(said, off, axis=1) for off in range(-_WANDERED, _WANDERED + 1)], axis=0)
        every, elsewhere = np.arange(len(times_s)), np.array([one[2] for one in self._since])

        def for_it(at_s: float, phase: float) -> Floats:
            place = np.rint((phase + (times_s - at_s) / self.period_s) * _PHASES).astype(int) % _PHASES
            return np.asarray(said[every, place] - elsewhere)

        until = int(np.argmax(np.concatenate(([0.0], np.cumsum(for_it(begun_s, begun))))))
        again = len(times_s) - int(np.argmax(np.concatenate(([0.0], np.cumsum(for_it(t_s, phase)[::-1])))))
        edges_s = np.concatenate(([begun_s], (times_s[1:] + times_s[:-1]) / 2, [t_s]))
        if again <= until:
            return t_s - begun_s
        self._paused_s = (float(edges_s[until]), float(edges_s[again]))
        return t_s - begun_s - (self._paused_s[1] - self._paused_s[0])

    def _count_to(self, t_s: float, phase: float) -> None:
        """The phase is this now."""
        before = self._at
        if before is None:
            self._at, self._left_s = (t_s, phase), None
            self._since.clear()
            self.knots.append((t_s, self.count))
            return
        self._paused_s = None
        worked_s = t_s - before[0] if self._left_s is None else self._worked_s(t_s, phase)
        nominal = worked_s / self.period_s
        gained = nominal + (phase - before[1] - nominal + 0.5) % 1.0 - 0.5
        if gained <= 0 and self._paused_s is None:  # by its error
            return
        gained = max(gained, 0.0)
        if self._paused_s is None:
            keep = math.exp(-nominal / _PERIOD_CYCLES)
            self._time_s, self._cycles = keep * self._time_s + worked_s, keep * self._cycles + gained
            self.period_s = self._time_s / self._cycles
        else:
            until = self.count + min((self._paused_s[0] - before[0]) / self.period_s, gained)
            self.knots += [(self._paused_s[0], until), (self._paused_s[1], until)]
        self._at, self._left_s = (t_s, phase), None
        self._since.clear()
        self.count += gained
        self.knots.append((t_s, self.count))

    def _settle(self, rest_w: Floats, variance: Floats, phase: Floats, t_s: Floats) -> None:
        """The level drifts, as a card warms up: slowly, by what the waveform leaves."""
        clear = np.flatnonzero(np.isfinite(phase))
        if len(clear) == 0:
            return
        places = np.rint(phase[clear] * _PHASES).astype(int) % _PHASES
        off_w = rest_w[clear, places]
        span = min(max(float(t_s[-1] - t_s[0]), _BLOCK * self.period_s) / self.period_s, _LEVEL_CYCLES)
        share = 1.0 - math.exp(-span / _LEVEL_CYCLES)
        squares = np.minimum(off_w**2 / variance[clear, places], _MOST_OFF**2)
        self._left += share * (float(squares.mean()) - self._left)
        self._usually_left = self._usually_left or float(squares.mean())
        near_w = off_w[np.abs(off_w) < _MOST_OFF * self._noise_w]
        if len(near_w):
            self._level_w += float(np.mean(near_w)) * share
