"""One more family of curves, of what other jobs have shown on the card, and this job on others.

A recorded curve is taken for the job's own, from its few points: monotone (PCHIP) in ln P/P0 and ln t/t0 over the ln of
the cap, and below the lowest point straight on. What the curves of a card have in common goes with the draw rather than
with the limit, so the caps are scaled by how much more or less the job draws, as a rule. A curve may also lie between
two of them. All are stretched at random, as other work on the card has steeper or flatter ones: they are hypotheses,
which the first trial of a job can refute, as the other families keep their part of the prior.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol, cast

import numpy as np

from autocap.records import RelativeCurve
from autocap.strategies.model.parameters import Curves, Floats, at_odds
from autocap.strategies.model.residual import AKIN
from autocap.strategies.model.shapes import Family, Shapes, of_family, together

_SHARE = 0.8  # how likely a job is to be like one of those recorded
_LEAST_SHARE = 1e-4  # with less of the prior, what was recorded is left out
_KINDS = ((AKIN, 1.0, 2000),)
_MIXED = 3  # recorded curves between which one lies
_OVERSHOOT = 0.02  # in ln: mean power above the cap counts against a curve
_MOST = math.log(1000.0)  # in ln, up or down: of power and time
_APART = 1e-3  # in ln: of caps that are nearer to each other, or to the limit, one is taken


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spread:
    """How far a job may be from one that was recorded, standard deviations. power, time: of the ln of the factors by
    which ln P/P0 and ln t/t0 are stretched. cap: in ln of the cap. draw: in ln, how alike the draws of jobs are that
    have the same curve. beyond: of the ln of the factor on the slopes below the lowest point."""

    power: float
    time: float
    cap: float
    draw: float
    beyond: float


_CARD = _Spread(power=0.03, time=0.12, cap=0.015, draw=0.12, beyond=0.3)
_JOB = _Spread(power=0.12, time=0.5, cap=0.08, draw=0.6, beyond=0.5)
_STEEPER = 0.2  # mean of the ln of that factor for time: below what was measured curves get steeper


def with_card(
    curves: Shapes,
    settings: Floats,
    baseline_w: float,
    draw_w: float,
    binding: bool | None,
    elsewhere: Sequence[RelativeCurve],
) -> Shapes:
    """The curves with those recorded elsewhere; as they are where nothing was. The other arguments: as of `shapes`."""
    elsewhere = [curve for curve in elsewhere if len(_rows(curve)) > 1]
    if not elsewhere:
        return curves
    family = Family(curves=partial(_seen, elsewhere), share=1.0, kinds=_KINDS)
    found = of_family(family, np.append(settings, baseline_w), draw_w, binding)
    share = _SHARE * math.exp(min(0.0, _total(found.log_weight)))  # less of a job whose draw is like none's
    if not share > _LEAST_SHARE:
        return curves
    parts = (curves, 1 - share), (found, share)
    return together(
        [replace(one, log_weight=one.log_weight - _total(one.log_weight) + math.log(part)) for one, part in parts]
    )


def _total(log_weight: Floats) -> float:
    """The ln of the sum of weights."""
    most = float(log_weight.max())
    return most + math.log(float(np.exp(log_weight - most).sum()))


def _rows(curve: RelativeCurve) -> list[tuple[float, float, float]]:
    """Cap, power and time, in ln, of what it was measured at, the limit among it, ascending."""
    found = [(0.0, 0.0, 0.0)]
    for point in sorted(curve.points, key=lambda point: point.cap):
        cap = math.log(point.cap)
        if all(abs(cap - other) > _APART for other, _, _ in found):
            found.append((cap, math.log(point.power), math.log(point.time)))
    return sorted(found)


class _Spline(Protocol):
    def __call__(self, x: Floats, nu: int = 0) -> Floats: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Recorded:
    """A recorded curve in ln: the caps, over its limit, that it was measured at, with power and time over them."""

    lowest: float
    highest: float
    power: _Spline
    time: _Spline
    ends: tuple[float, float]  # slopes of power and time at the lowest

    @classmethod
    def of(cls, curve: RelativeCurve) -> "_Recorded":
        from scipy.interpolate import PchipInterpolator

        caps, power, time = np.array(_rows(curve)).T
        splines = [cast(_Spline, PchipInterpolator(caps, values)) for values in (power, time)]
        first = caps[1] - caps[0]
        slopes = [float((values[1] - values[0]) / first) for values in (power, time)]
        return cls(
            lowest=float(caps[0]),
            highest=float(caps[-1]),
            power=splines[0],
            time=splines[1],
            ends=(slopes[0], slopes[1]),
        )

    def at(self, caps: Floats, beyond: Floats, steeper: Floats) -> tuple[Floats, Floats]:
        """ln P/P0 and ln t/t0 at caps in ln, of any shape; beyond, steeper: factors on the slopes below the lowest."""
        within = np.clip(caps, self.lowest, self.highest)
        below = np.minimum(caps - self.lowest, 0.0)
        power = self.power(within) + below * np.clip(self.ends[0] * beyond, 0.0, 1.0)
        time = self.time(within) + below * np.minimum(self.ends[1], -0.05) * steeper
        return np.clip(power, -_MOST, _MOST), np.clip(time, -_MOST, _MOST)


def _seen(
    elsewhere: Sequence[RelativeCurve],
    settings: Floats,
    draw_w: float,
    binding: bool | None,
    rng: np.random.Generator,
    count: int,
) -> Curves:
    """So many curves over the caps, shape (caps,), watts, the last of which is the baseline's, which drew draw_w."""
    draw, log_caps = math.log(draw_w / settings[-1]), np.log(settings / settings[-1])
    spread = np.array([_fields(_JOB if curve.of_job else _CARD) for curve in elsewhere])
    draws = np.log([min(curve.draw, 1.0) for curve in elsewhere])
    likeness = -0.5 * ((draw - draws) / spread[:, 3]) ** 2
    for place, one in enumerate(elsewhere):
        if one.binding is not None:
            likeness[place] -= float(at_odds(np.array([one.binding]), binding)[0])
    alike = np.exp(likeness - likeness.max())
    picks = rng.choice(len(elsewhere), size=(_MIXED, count), p=alike / alike.sum())
    weights = rng.exponential(size=(_MIXED, count, 1))
    weights /= weights.sum(axis=0)
    power_sd, time_sd, cap_sd, _, beyond_sd = spread[picks[0]].T[:, :, None]
    z = rng.standard_normal((6, count, 1))
    follows = np.clip(1 + 0.5 * z[0], 0.0, 1.0)  # how much of the difference in draw moves the caps
    beyond, steeper = np.exp(beyond_sd * z[1]), np.exp(_STEEPER + beyond_sd * z[2])
    log_power, log_time = np.zeros((2, count, len(settings)))
    for place, curve in enumerate(map(_Recorded.of, elsewhere)):
        weight = np.where(picks[:, :, None] == place, weights, 0.0).sum(axis=0)
        some = weight[:, 0] > 0
        caps = log_caps - follows[some] * (draw - draws[place]) + cap_sd[some] * z[3][some]
        power, time = curve.at(caps, beyond[some], steeper[some])
        log_power[some] += weight[some] * power
        log_time[some] += weight[some] * time
    log_power = (log_power - log_power[:, -1:]) * np.exp(power_sd * z[4])
    log_time = (log_time - log_time[:, -1:]) * np.exp(time_sd * z[5])
    slack = max(math.log(curve.draw * point.power / point.cap) for curve in elsewhere for point in curve.points)
    over = np.maximum(draw + log_power - log_caps - max(slack, 0.0), 0.0).max(axis=1)
    return Curves(log_power=log_power, log_time=log_time, log_weight=likeness.max() - 0.5 * (over / _OVERSHOOT) ** 2)


def _fields(spread: _Spread) -> tuple[float, ...]:
    return spread.power, spread.time, spread.cap, spread.draw, spread.beyond
