"""Strategies alone on cap curves, against the best cap of each: `python -m bench strategies --mode curves`."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autocap import registry
from autocap.metrics import Metric
from autocap.records import Measurement
from autocap.strategy import CapGrid, StrategyLike
from bench.curves import CapCurve, Drive, drive


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One search to run. metric: as `metric_named` reads it. noise: relative, of a trial's time."""

    curve: CapCurve
    metric: str
    k: float
    strategy: str
    seed: int
    noise: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One finished search.

    probes: trials beyond the baseline. final_cap_w: the cap recommended, or the highest where none was. regret_pct:
    of that cap. exploration_regret_pct: the trials' mean excess over the best cap. state: whether a cap was
    recommended. iterations, progress: of whole jobs only.
    """

    mode: str
    curve: str
    metric: str
    strategy: str
    seed: int
    probes: int
    final_cap_w: float
    regret_pct: float
    exploration_regret_pct: float
    iterations: int | None
    progress: str | None
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """A row, and the search that it sums up."""

    row: Row
    drive: Drive


def metric_named(name: str, k: float) -> Metric:
    """The metric of that name, with k for eds. `eds_1.5` is eds with a k of its own, as in `result.json`."""
    base, _, own_k = name.partition("_")
    return Metric(name=base, k=float(own_k or k) if base == "eds" else None)


def run(case: Case) -> Searched:
    """Run one search to its end. The noise depends on the curve and the seed, not on the strategy."""
    factory = registry.find(case.strategy)
    values = registry.option_values(factory, ())

    def new_strategy(grid: CapGrid, metric: Metric, baseline: Measurement) -> StrategyLike:
        rng = np.random.default_rng(case.seed)
        return factory(grid=grid, metric=metric, baseline=baseline, rng=rng, history=(), options=values)

    noise_rng = np.random.default_rng([case.seed, zlib.crc32(case.curve.name.encode())])
    found = drive(new_strategy, case.curve, metric_named(case.metric, case.k), case.noise, noise_rng)
    row = Row(
        mode="curves",
        curve=case.curve.name,
        metric=case.metric,
        strategy=case.strategy,
        seed=case.seed,
        probes=len(found.trials),
        final_cap_w=found.final_w,
        regret_pct=found.regret_pct(found.final_w),
        exploration_regret_pct=found.exploration_regret_pct,
        iterations=None,
        progress=None,
        state="nothing kept" if found.kept_w is None else "kept",
    )
    return Searched(row=row, drive=found)


def table(rows: Sequence[Row]) -> Iterator[str]:
    """A line per strategy and metric of a Markdown table."""
    yield "| strategy | metric | curves | searches | regret, mean / p90 / worst % | probes | probes' regret % |"
    yield "|---|---|---|---|---|---|---|"
    for strategy, metric in dict.fromkeys((row.strategy, row.metric) for row in rows):
        some = [row for row in rows if (row.strategy, row.metric) == (strategy, metric)]
        regret = np.array([row.regret_pct for row in some])
        yield (
            f"| {strategy} | {metric} | {len({row.curve for row in some})} | {len(some)} | "
            f"{regret.mean():.2f} / {np.quantile(regret, 0.9):.2f} / {regret.max():.2f} | "
            f"{np.mean([row.probes for row in some]):.1f} | "
            f"{np.mean([row.exploration_regret_pct for row in some]):.2f} |"
        )
