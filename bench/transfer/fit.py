"""The constants of `autocap.plugins.predict.rule`, from cases, and whether two standard deviations hold for others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from autocap.plugins.predict import rule
from autocap.plugins.predict.rule import Constants, Curve
from bench.transfer.cases import CapCase, TimeCase

Floats = NDArray[np.float64]
Pair = tuple[CapCase, CapCase]
_HOLD = 0.9  # share of cases within two standard deviations
_CURVES_HOLD = 0.95  # of points of curves, which are fewer than they look: twelve of a pair go together
_SPARE, _CURVES_SPARE = 1.35, 1.8  # of a fit, so that its errors hold for cases that it has not seen
_POINTS = 12
_BASE = 0.08  # of the time's deviation, what is there without a gap: A100 PCIe and SXM differ by so much


def curve_of(case: CapCase) -> Curve:
    return Curve(share=case.share, power=case.power, time=case.time, draw=case.draw)


def shares(pair: Pair) -> Floats:
    """Where the source's curve is carried to the target, and that was measured there, shape (n,); perhaps none."""
    lowest, _ = rule.carried_from(curve_of(pair[0]))
    lowest = max(lowest, float(pair[0].share[0]), float(pair[1].share[0]))
    return np.linspace(lowest, 0.97, _POINTS) if lowest < 0.97 else np.array([])


def curve_misses(pair: Pair) -> Floats:
    """ln of measured over carried P/P0, t/t0 and e/e0 per unit of reach, shape (3, n)."""
    where = shares(pair)
    told, true = (np.array(rule.at(curve_of(case), where)) for case in pair)
    miss = (true - told) / rule.reach(where)
    return np.vstack([miss, miss.sum(axis=0)])


def time_miss(case: TimeCase, constants: Constants) -> tuple[float, float]:
    """ln of measured over expected, and the standard deviation that is stated."""
    told = rule.time_ratio(case.source, case.target, case.bits, constants)
    return case.log_ratio - told.log, told.sigma


def busy(pairs: Sequence[Pair]) -> list[Pair]:
    return [pair for pair in pairs if not rule.waits(pair[0].draw)]


def fit(times: Sequence[TimeCase], pairs: Sequence[Pair]) -> Constants:
    """By least squares the weight; by the 90 % quantile of misses the deviations, two of which are to hold as often."""
    bandwidth = np.array([np.log(one.target.bandwidth_gb_s / one.source.bandwidth_gb_s) for one in times])
    rates = np.array([np.log(rule.rate(one.target, one.bits) / rule.rate(one.source, one.bits)) for one in times])
    gap, speed = rates - bandwidth, -np.array([one.log_ratio for one in times])
    weight = float(gap @ (speed - bandwidth) / (gap @ gap))
    miss = np.abs(speed - bandwidth - weight * gap)
    per_gap = next(
        each for each in np.arange(0.05, 2.0, 0.005) if np.mean(miss <= 2 * np.hypot(_BASE, each * gap)) >= _HOLD
    )
    draws = [abs(float(np.log(other.draw / one.draw))) for one, other in busy(pairs)]
    misses = np.hstack([np.abs(curve_misses(pair)) for pair in pairs if len(shares(pair))])
    power, time, energy = np.quantile(misses, _CURVES_HOLD, axis=1) / 2
    return Constants(
        weight=weight,
        base=_BASE,
        per_gap=float(per_gap) * _SPARE,
        draw=float(np.quantile(draws, _HOLD)) / 2 * _SPARE,
        power=float(power) * _CURVES_SPARE,
        time=float(time) * _CURVES_SPARE,
        energy=float(energy) * _CURVES_SPARE,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How many values of left-out cases there were, how many within two stated standard deviations, and their median
    miss, percent."""

    what: str
    count: int
    within: float
    median_pct: float


def left_out(
    times: Sequence[TimeCase], pairs: Sequence[Pair], time_key: Callable[[TimeCase], object],
    pair_key: Callable[[Pair], object],
) -> list[Held]:  # fmt: skip
    """Each group of cases judged by the constants that all other cases make. time_key, pair_key: name the group."""
    found: dict[str, list[tuple[float, float]]] = {}
    for group in dict.fromkeys([*map(time_key, times), *map(pair_key, pairs)]):
        constants = fit(
            [one for one in times if time_key(one) != group], [pair for pair in pairs if pair_key(pair) != group]
        )
        for case in times:
            if time_key(case) == group and rule.time_ratio(case.source, case.target, case.bits, constants).is_known:
                found.setdefault("time at the default limit", []).append(time_miss(case, constants))
        for pair in pairs:
            if pair_key(pair) != group:
                continue
            if not rule.waits(pair[0].draw):
                miss = float(np.log(pair[1].draw / pair[0].draw))
                found.setdefault("draw over the default limit", []).append((miss, constants.draw))
            if len(shares(pair)):
                reach = rule.reach(shares(pair))
                sigmas = (constants.power, constants.time, constants.energy)
                for name, row, sigma in zip(("P/P0", "t/t0", "e/e0"), curve_misses(pair), sigmas, strict=True):
                    found.setdefault(f"{name} under caps", []).extend(
                        (float(one * far), sigma * far) for one, far in zip(row, reach, strict=True)
                    )
    return [
        Held(
            what=what,
            count=len(rows),
            within=float(np.mean([abs(miss) <= 2 * sigma for miss, sigma in rows])),
            median_pct=100 * float(np.median([abs(np.expm1(miss)) for miss, _ in rows])),
        )
        for what, rows in found.items()
    ]
