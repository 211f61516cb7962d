"""The constants of `autocap.plugins.predict.rule`, from cases, and whether two standard deviations hold for others."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from autocap.metrics import Metric
from autocap.plugins.predict import rule
from autocap.plugins.predict.cards import cards
from autocap.plugins.predict.outlook import Value, expect
from autocap.plugins.predict.rule import Constants, Curve
from autocap.plugins.predict.source import Measured
from bench.transfer.cases import CapCase, TimeCase

Floats = NDArray[np.float64]
Pair = tuple[CapCase, CapCase]
_T = TypeVar("_T", Pair, TimeCase)
_HOLD = 0.9  # share of cases within two standard deviations
_STUDENT = 2.92  # of 2 degrees of freedom, as of three pairs of cards: nine of ten are within
_POINTS = 12


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


def cards_of(case: Pair | TimeCase) -> frozenset[str]:
    """The models of the two cards that it is of."""
    return frozenset(
        (case.source.model, case.target.model) if isinstance(case, TimeCase) else (one.card for one in case)
    )


def network_of(case: Pair | TimeCase) -> str:
    return case.network if isinstance(case, TimeCase) else case[0].network


def fit(times: Sequence[TimeCase], pairs: Sequence[Pair]) -> Constants:
    """From published times at default limits and pairs of curves.

    The weight by least squares. The time's deviation by least squares of the squared misses, enlarged until two of it
    hold for nine of ten cases of every card. Of curves there are three pairs of cards: their deviations are the root
    mean squares of the misses, each pair of cards counted once, and as much larger as Student's t makes so few.
    """
    bandwidth = np.array([np.log(one.target.bandwidth_gb_s / one.source.bandwidth_gb_s) for one in times])
    rates = np.array([np.log(rule.rate(one.target, one.bits) / rule.rate(one.source, one.bits)) for one in times])
    gap, speed = rates - bandwidth, -np.array([one.log_ratio for one in times])
    weight = float(gap @ (speed - bandwidth) / (gap @ gap))
    miss = speed - bandwidth - weight * gap
    square = np.column_stack([np.ones_like(gap), gap**2])
    variances = np.maximum(np.linalg.lstsq(square, miss**2, rcond=None)[0], 1e-6)
    sigmas = np.abs(miss) / 2 / np.sqrt(square @ variances)
    of_card = [
        [sigma for one, sigma in zip(times, sigmas, strict=True) if card in cards_of(one)]
        for card in set[str]().union(*map(cards_of, times))
    ]
    base, per_gap = max(float(np.quantile(one, _HOLD)) for one in of_card) * np.sqrt(variances)
    busy = [pair for pair in pairs if not rule.waits(pair[0].draw)]
    draws = _spread(busy, lambda pair: np.log([[pair[1].draw / pair[0].draw]]))
    power, time, energy = _spread([pair for pair in busy if len(shares(pair))], curve_misses)
    return Constants(
        weight=weight, base=float(base), per_gap=float(per_gap), draw=float(draws[0]), power=float(power),
        time=float(time), energy=float(energy),
    )  # fmt: skip


def _spread(pairs: Sequence[Pair], misses: Callable[[Pair], Floats]) -> Floats:
    """Standard deviations of values of which each pair has rows of misses, shape (rows,)."""
    found = defaultdict[frozenset[str], list[Floats]](list)
    for pair in pairs:
        found[cards_of(pair)].append(misses(pair))
    squares = [np.mean(np.hstack(each) ** 2, axis=1) for each in found.values()]
    return np.asarray(np.sqrt(np.mean(squares, axis=0)) * _STUDENT / 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """How many values of left-out cases there were, of how many pairs of cards; how many within two stated standard
    deviations, and of the pair of cards for which they hold least often; and their median miss, percent."""

    what: str
    count: int
    pairs: int
    within: float
    least: float
    median_pct: float


def left_out(times: Sequence[TimeCase], pairs: Sequence[Pair]) -> list[Held]:
    """All that `autocap predict` would say of a case, by the constants that cases with neither the card nor the network
    make, for each card and network of it."""
    found = defaultdict[str, list[tuple[float, float, frozenset[str]]]](list)
    every: list[TimeCase | Pair] = [*times, *pairs]
    for card, network in dict.fromkeys((card, network_of(one)) for one in every for card in sorted(cards_of(one))):
        constants = fit(_without(times, card, network), _without(pairs, card, network))
        for case in _only(times, card, network):
            told = rule.time_ratio(case.source, case.target, case.bits, constants)
            if told.is_known:
                found["time at the default limit"].append((case.log_ratio - told.log, told.sigma, cards_of(case)))
        for pair in _only(pairs, card, network):
            for what, miss, sigma in _judged(pair, constants):
                found[what].append((miss, sigma, cards_of(pair)))
    return [_held(what, rows) for what, rows in found.items()]


def _without(cases: Sequence[_T], card: str, network: str) -> list[_T]:
    return [one for one in cases if card not in cards_of(one) and network_of(one) != network]


def _only(cases: Sequence[_T], card: str, network: str) -> list[_T]:
    return [one for one in cases if card in cards_of(one) and network_of(one) == network]


def _judged(pair: Pair, constants: Constants) -> Iterator[tuple[str, float, float]]:
    """What is said of a pair, the ln of what was measured over it, and the standard deviation of that."""
    one, other = pair
    known = {card.model: card for card in cards()}
    bits = 16 if "Qwen" in one.network else 32
    found = Measured(
        name=one.card, card=known[one.card], count=1, default_w=one.limit_w, min_w=None, period_s=float(one.time_s[-1]),
        power_w=float(one.power_w[-1]), error=0.0, curve=curve_of(one), metric=Metric(name="energy"), emulated=False,
    )  # fmt: skip
    for share in (1.0, *shares(pair)):
        told = expect(found, known[other.card], float(share), found.metric, bits, constants)
        where = "at the default limit" if share == 1 else "under caps"
        log_power, log_time = (float(each[0]) for each in rule.at(curve_of(other), np.array([share])))
        power, time = log_power + np.log(other.power_w[-1]), log_time + np.log(other.time_s[-1])
        if share < 1:  # else it is among the times
            yield from _miss(f"time {where}", told.period_s, time)
        yield from _miss(f"power {where}", told.power_w, power)
        yield from _miss(f"energy {where}", told.energy_j, power + time)
    if len(shares(pair)):
        sigmas = (constants.power, constants.time, constants.energy)
        for name, row, sigma in zip(("P/P0", "t/t0", "e/e0"), curve_misses(pair), sigmas, strict=True):
            for miss, far in zip(row, rule.reach(shares(pair)), strict=True):
                yield f"{name} under caps", float(miss * far), sigma * float(far)


def _miss(what: str, told: Value, true: float) -> Iterator[tuple[str, float, float]]:
    if told.value is not None and told.high is not None:
        yield what, true - float(np.log(told.value)), float(np.log(told.high / told.value)) / 2


def _held(what: str, rows: Sequence[tuple[float, float, frozenset[str]]]) -> Held:
    within = defaultdict[frozenset[str], list[bool]](list)
    for miss, sigma, pair in rows:
        within[pair].append(abs(miss) <= 2 * sigma)
    return Held(
        what=what,
        count=len(rows),
        pairs=len(within),
        within=float(np.mean([one for each in within.values() for one in each])),
        least=min(float(np.mean(each)) for each in within.values()),
        median_pct=100 * float(np.median([abs(np.expm1(miss)) for miss, _, _ in rows])),
    )
