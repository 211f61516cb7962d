"""What is done about the cap within each run: nothing, Zeus's scan, or autocap's own search.

Zeus tries every limit of the traces, 25 W apart, within the first epoch of the first run with a batch size, and takes
the best for good. Its simulator spreads them over the whole epoch; here five seconds each are enough where that is
less. Autocap's searches are those of the real `model` strategy on the same curve, driven by the controller's own rules
(bench/strategies/curves.py); a later run with that batch size begins from what the earlier one found. A window of
autocap's is five seconds as well, and so is one at the limit found before the search and one after it, for the
confirmation. A window's time has a relative error of 0.5 %, its power 0.2 %.
"""

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Protocol

import numpy as np

from autocap.metrics import Metric
from autocap.records import Trial
from autocap.strategies import registry
from bench.recurring.workloads import Price, Workload
from bench.simulation.strategies import new_strategy
from bench.strategies.curves import POWER_SHARE, CapCurve, Drive, drive

WINDOW_S = 5.0
_NOISE = 0.005
_SEARCHES = 8  # of the real strategy for each batch size; a story draws one of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The caps of a run: each of `windows` (a place in the grid, seconds), and then `held` until it ends."""

    windows: tuple[tuple[int, float], ...]
    held: int


class Caps(Protocol):
    """Says how the next run with a batch size, a place, is capped."""

    def plan(self, batch: int) -> Plan: ...


class Uncapped:
    """The limit found on arrival, the highest."""

    def __init__(self, workload: Workload) -> None:
        self._plan = Plan(windows=(), held=len(workload.grid) - 1)

    def plan(self, batch: int) -> Plan:
        return self._plan


class ZeusScan:
    """The published rule: all limits 25 W apart in the first run, their best in every later one."""

    def __init__(self, workload: Workload, price: Price, rng: np.random.Generator) -> None:
        self._workload, self._price, self._rng = workload, price, rng
        self._held: dict[int, int] = {}

    def plan(self, batch: int) -> Plan:
        known = self._held.get(batch)
        if known is not None:
            return Plan(windows=(), held=known)
        curve = self._workload.curves[batch]
        places = [self._workload.grid.index(cap_w) for cap_w in curve.caps_w]
        time_s = np.array(curve.times_s) * (1 + _NOISE * self._rng.standard_normal(len(places)))
        power_w = np.array(curve.powers_w) * (1 + POWER_SHARE * _NOISE * self._rng.standard_normal(len(places)))
        self._held[batch] = places[int(np.argmin((self._price.energy * power_w + self._price.time) * time_s))]
        window_s = min(WINDOW_S, float(np.mean(curve.times_s)) / len(places))
        return Plan(windows=tuple((place, window_s) for place in reversed(places)), held=self._held[batch])


class Searched:
    """Autocap's search in the first run with a batch size, and one that begins from it in every later one."""

    def __init__(self, workload: Workload, price: Price, rng: np.random.Generator) -> None:
        self._workload, self._price = workload, price
        self._which = int(rng.integers(_SEARCHES))
        self._seen: set[int] = set()

    def plan(self, batch: int) -> Plan:
        first, later = _searches(self._workload.curves[batch], self._price, self._which)
        if batch in self._seen:
            return later
        self._seen.add(batch)
        return first


@cache
def _searches(curve: CapCurve, price: Price, which: int) -> tuple[Plan, Plan]:
    """A first search and one that has the first as its history."""
    seed = [which, zlib.crc32(curve.name.encode())]
    first = _search(curve, price.metric, np.random.default_rng([*seed, 0]), ())
    later = _search(curve, price.metric, np.random.default_rng([*seed, 1]), first.trials)
    return _planned(first), _planned(later)


def _search(curve: CapCurve, metric: Metric, rng: np.random.Generator, history: Sequence[Trial]) -> Drive:
    model = new_strategy(registry.find("model"), curve.grid, past=history)
    return drive(model, curve, metric, _NOISE, rng)


def _planned(found: Drive) -> Plan:
    highest = len(found.grid) - 1
    held = found.grid.index(found.final_w)
    tried = [found.grid.index(trial.setting) for trial in found.trials]
    confirmed = [] if held == highest else [highest]
    return Plan(windows=tuple((place, WINDOW_S) for place in (highest, *tried, *confirmed)), held=held)
