"""Made-up cap curves of jobs that are bound by memory: flat time, a knee, a cliff.

As the cap falls the draw falls with it, a constant share of it (the rest of the time is idle), from the card's limit
on. At first nothing slows: clocks fall, memory does not. At the knee, 3 % slower, that ends, and within 10 or 20 % of
the draw below it an iteration may take twice as long. What the families stand for, most of them measured on language
models that decode and prompt:

    kernels       single memory-bound kernels; the cap is drawn in full      unnamed-130w   a small card, drawn in full
    large-…       models of 10 to 14 billion parameters, by the limit of the card     small-…        of 3 to 8 billion
    scatter-600w  the 600 W card, 3 % off from cap to cap

and, of the same kind, but measured nowhere:

    soft          slower from the first watt on, and no cliff      flat    time flat nearly all the way down
    slack         the draw is far below the limit, so that the cap does nothing at first, and then comes a knee

A family is what `FAMILIES` says of it: ranges, from which a curve draws its own values. On some small cards the limit
stops acting near 50 W. The error of a single run, 0.3 to 0.8 %, is frozen into each point.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.strategies.curves import CapCurve

Floats = NDArray[np.float64]
Spread = tuple[float, float, float]  # smallest, median and largest; even on either side of the median

AT_KNEE = 1.03  # time per unit of work over the uncapped one's
BELOW_KNEE = (0.9, 0.8, 0.7)  # of the knee's draw: where a family says how slow it is
_UNHURT = 1.003  # time where the slowing begins
_BUMPINESS = 0.06  # ln standard deviation of how much slower a curve is at each of its points
_RUN_ERROR = (0.003, 0.008)
_LEAST_DROP = 0.01  # of the uncapped draw, between the points that a curve is drawn through


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """limit_w: its highest cap. lowest_w: the lowest ones that were measured. steps_w: between measured caps."""

    limit_w: float
    lowest_w: tuple[float, ...]
    steps_w: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What curves of one kind have in common; draws and times are over those of the uncapped run.

    share: draw over cap where the cap binds. rise: by how much larger the share is at the lowest caps. knee: the draw
    at the knee. onset: the draw where the slowing begins over the knee's. slowed: time at 0.9, 0.8 and 0.7 of the
    knee's draw; below, time goes with the draw to the power of -cliff. demand: what it would draw without a limit, over
    the limit. floor_w: the draw below which the limit does not act. steepness: ln standard deviation, between curves,
    of how much slower they are. scatter: error of a point's time beside the run's.
    """

    cards: tuple[Card, ...]
    share: Spread
    knee: Spread
    slowed: tuple[float, float, float]
    cliff: float
    rise: tuple[float, float] = (0.0, 0.0)
    onset: tuple[float, float] = (1.03, 1.12)
    demand: Spread | None = None
    floor_w: tuple[float, float] | None = None
    steepness: float = 0.2
    scatter: float = 0.0


_130W = Card(limit_w=130, lowest_w=(35, 40, 45), steps_w=(5, 5, 10))
_250W = Card(limit_w=250, lowest_w=(100,), steps_w=(10, 25))
_600W = Card(limit_w=600, lowest_w=(150,), steps_w=(25,))
_FLOOR_W = (46.0, 56.0)

FAMILIES: Mapping[str, Family] = {
    "kernels": Family(
        cards=(
            Card(limit_w=250, lowest_w=(125, 160, 175), steps_w=(10, 25)),
            Card(limit_w=600, lowest_w=(350, 375, 400), steps_w=(25,)),
        ),
        share=(0.96, 0.98, 1.0),
        knee=(0.64, 0.88, 0.97),
        slowed=(1.06, 1.13, 1.23),
        cliff=1.0,
        steepness=0.5,
    ),
    "unnamed-130w": Family(
        cards=(_130W,),
        share=(0.98, 1.0, 1.01),
        knee=(0.87, 0.91, 0.93),
        slowed=(1.11, 1.22, 1.48),
        cliff=2.3,
        floor_w=(42.0, 50.0),
    ),
    "large-130w": Family(
        cards=(_130W,),
        share=(0.83, 0.87, 0.9),
        knee=(0.75, 0.77, 0.85),
        slowed=(1.24, 1.73, 2.47),
        cliff=3.2,
        floor_w=_FLOOR_W,
    ),
    "small-130w": Family(
        cards=(_130W,),
        share=(0.76, 0.80, 0.85),
        knee=(0.72, 0.83, 0.90),
        slowed=(1.05, 1.28, 1.83),
        cliff=3.0,
        floor_w=(42.0, 50.0),
    ),
    "large-250w": Family(
        cards=(_250W,),
        share=(0.76, 0.80, 0.85),
        knee=(0.64, 0.68, 0.72),
        slowed=(1.16, 1.59, 2.22),
        cliff=3.0,
        rise=(0.0, 0.2),
    ),
    "small-250w": Family(
        cards=(_250W,),
        share=(0.75, 0.79, 0.84),
        knee=(0.69, 0.755, 0.77),
        slowed=(1.035, 1.10, 1.33),
        cliff=2.9,
        rise=(0.0, 0.2),
    ),
    "large-600w": Family(
        cards=(_600W,),
        share=(0.74, 0.77, 0.81),
        knee=(0.74, 0.79, 0.82),
        slowed=(1.06, 1.14, 1.29),
        cliff=1.7,
        rise=(0.05, 0.25),
    ),
    "small-600w": Family(
        cards=(Card(limit_w=600, lowest_w=(250, 275, 300), steps_w=(25,)),),
        share=(0.72, 0.74, 0.78),
        knee=(0.80, 0.84, 0.88),
        slowed=(1.07, 1.17, 1.34),
        cliff=1.6,
        rise=(0.0, 0.2),
    ),
    "scatter-600w": Family(
        cards=(_600W,),
        share=(0.72, 0.76, 0.81),
        knee=(0.73, 0.80, 0.88),
        slowed=(1.06, 1.15, 1.31),
        cliff=1.7,
        rise=(0.0, 0.2),
        scatter=0.03,
    ),
    "soft": Family(
        cards=(_250W, Card(limit_w=400, lowest_w=(100, 150, 200), steps_w=(20, 25))),
        share=(0.74, 0.85, 0.98),
        knee=(0.78, 0.86, 0.93),
        slowed=(1.07, 1.13, 1.21),
        cliff=1.1,
        onset=(1.3, 1.6),
    ),
    "flat": Family(
        cards=(_250W, Card(limit_w=350, lowest_w=(100, 125, 150), steps_w=(10, 25))),
        share=(0.74, 0.82, 0.95),
        knee=(0.42, 0.50, 0.62),
        slowed=(1.10, 1.40, 2.0),
        cliff=3.0,
    ),
    "slack": Family(
        cards=(
            Card(limit_w=300, lowest_w=(75, 100), steps_w=(10, 25)),
            Card(limit_w=700, lowest_w=(200,), steps_w=(25,)),
        ),
        share=(0.78, 0.88, 0.98),
        knee=(0.66, 0.80, 0.95),
        slowed=(1.07, 1.22, 1.5),
        cliff=2.2,
        demand=(0.45, 0.55, 0.7),
    ),
}


def make(name: str, family: Family, seed: int) -> CapCurve:
    """One curve of a family; the same name and seed give the same curve, whatever else is made."""
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    card = family.cards[rng.integers(len(family.cards))]
    caps_w = np.arange(card.limit_w, float(rng.choice(card.lowest_w)) - 1e-9, -float(rng.choice(card.steps_w)))[::-1]
    draws_w = _draws_w(family, card, caps_w, rng)
    slower = _slower(family, rng)(np.log(draws_w / draws_w[-1]))
    time_error, draw_error = rng.uniform(*_RUN_ERROR, size=2)
    errors = rng.standard_normal((2, len(caps_w))) * [[np.hypot(time_error, family.scatter)], [draw_error]]
    times_s = np.exp(rng.uniform(np.log(0.1), np.log(1000)) + slower) * (1 + errors[0])
    return CapCurve(
        name=name,
        caps_w=tuple(caps_w.tolist()),
        powers_w=tuple((draws_w * (1 + errors[1])).tolist()),
        times_s=tuple(times_s.tolist()),
    )


def _draws_w(family: Family, card: Card, caps_w: Floats, rng: np.random.Generator) -> Floats:
    """The true draw at each cap, watts."""
    higher = (caps_w[-1] - caps_w) / (caps_w[-1] - caps_w[0]) - 0.5  # -0.5 at the limit, 0.5 at the lowest cap
    shares = _between(family.share, rng) * (1 + rng.uniform(*family.rise) * higher)
    draws_w = np.minimum(shares, 1.02) * caps_w
    if family.floor_w is not None:
        draws_w = np.maximum(draws_w, rng.uniform(*family.floor_w))
    demand_w = np.inf if family.demand is None else _between(family.demand, rng) * card.limit_w
    most_w: Floats = np.minimum(draws_w, demand_w)
    return most_w


def _slower(family: Family, rng: np.random.Generator) -> Callable[[Floats], Floats]:
    """ln time against ln draw, both over the uncapped run's: through points, and a power law below the lowest."""
    from scipy.interpolate import PchipInterpolator

    knee = _between(family.knee, rng)
    begins = min(knee * rng.uniform(*family.onset), 1 - _LEAST_DROP)
    steep = rng.normal(0, family.steepness)
    more = (np.array(family.slowed) - 1) * np.exp(steep + rng.normal(0, _BUMPINESS, size=3))
    more = np.maximum.accumulate(np.maximum(more, AT_KNEE - 1 + 0.005))
    points = {1.0: 1.0, begins: _UNHURT, min(knee, begins - _LEAST_DROP): AT_KNEE}
    points |= {share * knee: 1 + float(slower) for share, slower in zip(BELOW_KNEE, more, strict=True)}
    draws = np.log(sorted(points))
    above = PchipInterpolator(draws, np.log([points[draw] for draw in sorted(points)]))
    power = family.cliff * np.exp(steep / 2)
    return lambda at: np.asarray(above(np.clip(at, draws[0], 0.0)) + power * np.maximum(draws[0] - at, 0.0))


def _between(spread: Spread, rng: np.random.Generator) -> float:
    """A value with that median: even from the smallest to it, and even from it to the largest."""
    return float(np.interp(rng.uniform(), (0.0, 0.5, 1.0), spread))
