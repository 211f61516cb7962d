"""What an average lets through of a load that is faster than the sensor: the physics that excludes beats.

A reading that averages over a window of L = n + e cycles of a fast load (n whole, |e| <= 1/2) holds n times the load's
mean M and what the rest of a cycle adds. Folded, a fast load with the waveform h, which stays between the least and the
most that the card draws, shows as

    f = (n·M + e·b) / (n + e),   b: the mean of h over |e| of a cycle, so within the same two bounds

So the further f is from M, the more b would have to be, (f - M)·(n + e)/e beyond M; where that is more than the card
draws, or less than nothing, no load of that frequency looks like this. And whatever the waveform, f moves from one
phase to the next by (h(φ) - h(φ - L))/L per cycle at most: an average over L cycles is no steeper than the card's whole
range over L. Both are proofs where the window is known, and so is what the card can draw.
"""

import math
from dataclasses import dataclass

import numpy as np

from autocap.progress.period.candidates import fourier
from autocap.progress.period.estimate import Bools, Floats

_PHASES = 128  # at which a waveform is drawn
_APART = (2, 4, 8, 16)  # phases between two values whose difference says how steep it is
_SIGMAS = 3.0
_LEAST_ERROR = 0.01  # of the waveform's own size: what stamps, and a gain that is not 1, leave unknown
# An average over less than half a cycle shows the longer of a load's two levels as it is; and the shorter one, where it
# lasts a twentieth of the cycle, as a part of that in the window.
_SHORT, _SEEN, _SHORTEST = 0.5, 0.1, 0.05
_USUALLY_LASTS, _SHARPER = 0.15, 0.8  # of a fast load's cycle, its shorter level; of an edge, one that is none of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """A folded waveform about its mean, each a lower bound by its error: above, below: how far it goes up and down,
    steep: how much it changes per cycle of one part, watts. mean: watts. edge: the most that its sharpest edge takes,
    in cycles of one part."""

    above: float
    below: float
    steep: float
    mean: float
    edge: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """What a card can draw, watts. times_shown: and at most so many times the highest that an average over less than
    half of a load's cycle shows."""

    least_w: float
    most_w: float
    times_shown: float = math.inf


def drawn(cosines_and_sines: Floats) -> Floats:
    """Waveforms at evenly spaced phases of a cycle, shape (m, phases), from amplitudes of shape (m, 2·harmonics)."""
    waves: Floats = cosines_and_sines @ fourier(np.arange(_PHASES) / _PHASES, cosines_and_sines.shape[1] // 2).T
    return waves


def swing_of(values: Floats, deviations: Floats, mean_w: float, parts: int) -> Swing:
    """The swing of a drawn waveform that is made of so many parts alike. values: shape (phases,), watts; deviations:
    shape (m, phases), whose squares, added up, are the variance of each value."""
    least = (_LEAST_ERROR * float(np.ptp(values))) ** 2

    def surely(size: Floats, off: Floats) -> float:
        return max(0.0, float(np.max(size - _SIGMAS * np.sqrt(np.sum(off**2, axis=0) + least))))

    steep = 0.0
    for apart in _APART:
        off = np.roll(deviations, -apart, axis=1) - deviations
        steep = max(steep, surely(np.abs(np.roll(values, -apart) - values), off) * _PHASES / apart)
    above, below = surely(values, deviations), surely(-values, deviations)
    edge = float(np.ptp(values)) / max(steep / parts, 1e-12)
    return Swing(above=above, below=below, steep=steep / parts, mean=mean_w, edge=edge)


def usually_sharper(swing: Swing, cycles: Floats, off: float) -> Bools:
    """Whether the edges of that swing are sharper than those which an average over so many cycles of a fast load of two
    levels, each of which lasts for some of the cycle, makes: of what is beyond whole cycles, or of the shorter level
    where that is less; shape (n,). off: as for `may_pass`."""
    beyond = np.maximum(np.abs(cycles - np.round(cycles)) - off * cycles, 0.0)
    sharper: Bools = swing.edge < _SHARPER * np.minimum(beyond, _USUALLY_LASTS)
    return sharper


def may_pass(swing: Swing, cycles: Floats, off: float, draw: Draw) -> Bools:
    """Whether a fast load may look like that swing through an average over so many of its cycles, shape (n,).

    off: by which share the window may be longer or shorter than it is said to be.
    """
    highest_w, lowest_w = swing.mean + swing.above, swing.mean - swing.below
    slack, range_w = off * cycles, draw.most_w - draw.least_w
    times = np.maximum(cycles / _SHORTEST, 1.0)  # what shows, at most, where the shorter level hardly does
    whole_w = (highest_w - lowest_w) * times
    top_w = np.minimum(lowest_w + whole_w, min(draw.most_w, draw.times_shown * highest_w))
    bottom_w = np.maximum(highest_w - whole_w, draw.least_w)
    short_w = np.maximum((1 + _SEEN) * highest_w - bottom_w, top_w - (1 - _SEEN) * lowest_w)
    most_w = np.where(cycles + slack < _SHORT, np.minimum(short_w, range_w), range_w)
    flat = swing.steep * (cycles - slack) <= most_w
    whole = np.round(cycles)
    more = np.clip(cycles + slack - whole, 1e-9, 0.5)
    less = np.clip(whole - (cycles - slack), 1e-9, 0.5)
    longer, shorter = (whole + more) / more, (whole - less) / less
    above_w, below_w = draw.most_w - swing.mean, swing.mean - draw.least_w
    with_more = (swing.above * longer <= above_w) & (swing.below * longer <= below_w)
    with_less = (swing.below * shorter <= above_w) & (swing.above * shorter <= below_w)
    may_be_more, may_be_less = cycles + slack > whole, cycles - slack < whole
    passes: Bools = flat & ((whole == 0) | (may_be_more & with_more) | (may_be_less & with_less))
    return passes
