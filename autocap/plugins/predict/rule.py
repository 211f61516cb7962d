"""What one card's curve says of another card; what it cannot say is said too.

Time at the default limit, after Habitat's idea (Yu et al., ATC 2021) that one share of an iteration goes with the
ratio b of memory bandwidths and the rest with the ratio c of arithmetic rates:

    ln t'/t = -(ln b + w (ln c - ln b)),    standard deviation sqrt(base² + (per_gap (ln c - ln b))²)

The further apart the two ratios, the more the unknown share matters. The share w is one number for all jobs: that which
the measured curve tells of a job, how much its time responds to the cap, makes the published times no better known
(`python -m bench transfer` has the rule beside this one). Habitat itself scales kernel by kernel, which a curve of caps
does not show.

Draw, power and time under caps are carried as shares: P0 as the same share of the default limit, P/P0 and t/t0 at the
same share of it, with standard deviations that grow with the distance from it. Watts are never carried.

All numbers of `FITTED` are printed by `python -m bench transfer`, and so is how often two standard deviations hold for
a card and a network that were both left out of the fit.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocap.plugins.predict.cards import Card

Floats = NDArray[np.float64]

LARGEST = 0.5  # two standard deviations, of a value: beyond, a number would mislead
LARGEST_SIGMA = math.log1p(LARGEST) / 2  # the same of its ln
_BUSY = 0.65  # draw over the limit: of a card that draws less something else sets the time, as of Alexnet's two
_CLIFF = 1.5  # ln time rises by so much more than ln power falls: where that begins depends on the card
_FLAT = 0.15  # of that, and less: bound by memory, and where the time begins to rise depends on the card
_FELL = 0.85  # P/P0 at which that is told
_MARGIN = 0.1  # of the limit, above a cliff
_DEEPEST = 0.6  # of the limit: cliffs of jobs that compute begin below 42 % of it on one card, below 69 % on another
_CURVES_OF, _LIMITS_OF_W = ("Volta", "Turing", "Ampere", "Ada"), (250.0, 450.0)  # of cards with published curves
_NEAR = 0.05  # of the limit, which errors of a curve have at least
_BETWEEN = 0.3, 1.0, 0.3  # of power, time and energy: of a straight line, as `between` takes them


@dataclass(frozen=True, slots=True, kw_only=True)
class Constants:
    """weight, base, per_gap: of the time at the default limit, as the module's docstring has them. draw: standard
    deviation of ln(P0/limit). power, time, energy: those of ln P/P0, ln t/t0 and of their sum, per share of the limit
    below the default."""

    weight: float
    base: float
    per_gap: float
    draw: float
    power: float
    time: float
    energy: float


FITTED = Constants(weight=0.288, base=0.1466, per_gap=0.1135, draw=0.1087, power=0.203, time=0.114, energy=0.131)


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """What was measured of a job on one card. share: caps over the default limit, ascending; the last is 1. power,
    time: P/P0 and t/t0 there, arrays of the same shape, the last 1. draw: P0 over the default limit."""

    share: Floats
    power: Floats
    time: Floats
    draw: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """ln of a ratio, with its standard deviation."""

    log: float
    sigma: float

    @property
    def is_known(self) -> bool:
        """Whether two standard deviations are no more than a number can be of use with."""
        return self.sigma <= LARGEST_SIGMA


def time_ratio(source: Card, target: Card, bits: int | None, constants: Constants = FITTED) -> Spread:
    """t'/t at the default limits. bits: of the arithmetic, 16 or 32; `None`: both are possible."""
    if bits is None:
        both = [time_ratio(source, target, each, constants) for each in (16, 32)]
        apart = abs(both[0].log - both[1].log)
        return Spread(log=(both[0].log + both[1].log) / 2, sigma=max(one.sigma for one in both) + apart / 4)
    bandwidth = math.log(target.bandwidth_gb_s / source.bandwidth_gb_s)
    gap = math.log(rate(target, bits) / rate(source, bits)) - bandwidth
    sigma = 0.0 if source == target else math.hypot(constants.base, constants.per_gap * gap)
    return Spread(log=-(bandwidth + constants.weight * gap), sigma=sigma)


def rate(card: Card, bits: int) -> float:
    """Its arithmetic rate, TFLOPS."""
    return card.tensor16_tflops if bits == 16 else card.matrix32_tflops


def has_curves(card: Card) -> bool:
    """Whether the published curves are of cards like this one, by architecture and default limit."""
    return card.architecture in _CURVES_OF and _LIMITS_OF_W[0] <= card.default_w <= _LIMITS_OF_W[1]


def waits(draw: float) -> bool:
    """Whether a job that draws this share of the default limit waits for something else than the card, so that neither
    its time nor its draw can be carried to another."""
    return draw < _BUSY


def carried_from(curve: Curve) -> tuple[float, str | None]:
    """The lowest share of the limit at which the curve can be carried to another card, and what hinders it below; a
    share of 1 where it cannot be carried at all."""
    if curve.power.min() > _FELL:
        return 1.0, f"power fell by less than {100 * (1 - _FELL):.0f} % in all trials; measure lower caps"
    rising = np.argsort(curve.power)
    time_there = float(np.interp(_FELL, curve.power[rising], curve.time[rising]))
    if math.log(time_there) < -_FLAT * math.log(_FELL):
        return 1.0, "the job is bound by memory: its time hardly moves, and below which cap it will depends on the card"
    power, time = np.log(curve.power), np.log(curve.time)
    steps = np.diff(power)
    slopes = np.divide(-np.diff(time), steps, out=np.zeros_like(steps), where=steps > 0.01)
    steep = np.flatnonzero(slopes > _CLIFF)
    if len(steep) and (edge := min(1.0, float(curve.share[steep[-1] + 1]) + _MARGIN)) > max(_DEEPEST, curve.share[0]):
        return edge, (
            "below it the job has a cliff, where time rises faster than power falls; where that begins depends on the "
            "card"
        )
    if curve.share[0] > _DEEPEST:
        return float(curve.share[0]), "no lower cap was measured"
    return _DEEPEST, f"below {100 * _DEEPEST:.0f} % cards differ in where time begins to rise faster than power falls"


def at(curve: Curve, share: Floats) -> tuple[Floats, Floats]:
    """ln P/P0 and ln t/t0 at shares of the limit within those measured, shape (n,) each: straight lines between."""
    return np.interp(share, curve.share, np.log(curve.power)), np.interp(share, curve.share, np.log(curve.time))


def between(curve: Curve, share: Floats) -> tuple[Floats, Floats, Floats]:
    """Standard deviations of ln P/P0, ln t/t0 and of their sum at shares of the limit, shape (n,) each, by what
    straight lines leave out: most in the middle of two measured caps that differ much. On the published curves two of
    them hold for nine of ten values between any two."""
    above = np.clip(np.searchsorted(curve.share, share), 1, len(curve.share) - 1)
    low, high = curve.share[above - 1], curve.share[above]
    along = np.clip((share - low) / (high - low), 0.0, 1.0)
    power, time = (np.abs(np.diff(np.log(each)))[above - 1] * along * (1 - along) for each in (curve.power, curve.time))
    of_power, of_time, of_energy = _BETWEEN
    return of_power * power, of_time * time, of_energy * (power + time)


def reach(share: Floats) -> Floats:
    """What the constants of a curve are multiplied by at shares of the limit, shape (n,): 0 at the default limit."""
    below = np.maximum(1.0 - share, 0.0)
    return np.where(below > 0, below + _NEAR, 0.0)
