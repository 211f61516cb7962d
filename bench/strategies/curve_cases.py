"""Strategies alone on cap curves, against the best cap of each: `python -m bench strategies --mode curves`."""

import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench.simulation.strategies import find, new_strategy
from bench.strategies.calibration import HEADINGS, columns
from bench.strategies.cases import Case, Row, Searched, grouped, metric_named
from bench.strategies.curves import CapCurve, drive
from bench.strategies.leave_out import without


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveCase(Case):
    """One search on a curve. noise: of a trial's time. leave_out: whether the prior lacks what stands for the curve."""

    curve: CapCurve
    leave_out: bool = False


def run(case: CurveCase) -> Searched:
    """Run one search to its end. The noise depends on the curve and the seed, not on the strategy."""
    family = case.curve.family
    factory = without(case.strategy, family) if case.leave_out else find(case.strategy)
    make = new_strategy(factory, case.curve.grid, case.seed)
    noise_rng = np.random.default_rng([case.seed, zlib.crc32(case.curve.name.encode())])
    found = drive(make, case.curve, metric_named(case.metric, case.k), case.noise, noise_rng)
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
    return Searched(row=row, drive=found, family=family)


def table(searched: Sequence[Searched], *, by_family: bool = False) -> Iterator[str]:
    """A line per strategy and metric of a Markdown table; by_family: then one for each family of its curves."""
    yield (
        f"| strategy | metric |{' family |' * by_family} curves | searches | regret, mean / p90 / worst % | probes | "
        f"probes' regret % | {' | '.join(HEADINGS)} |"
    )
    yield f"|{'---|' * (7 + by_family + len(HEADINGS))}"
    for strategy, metric, some in grouped(searched):
        if not by_family:
            yield f"| {strategy} | {metric} | {_numbers(some)} |"
            continue
        yield f"| {strategy} | {metric} | all | {_numbers(some)} |"
        for family in dict.fromkeys(found.family for found in some):
            numbers = _numbers([found for found in some if found.family == family])
            yield f"| {strategy} | {metric} | {family} | {numbers} |"


def _numbers(searched: Sequence[Searched]) -> str:
    """The columns of some searches."""
    rows = [found.row for found in searched]
    regret = np.array([row.regret_pct for row in rows])
    doubts = columns([(found.drive.calibration, found.row.regret_pct) for found in searched if found.drive.calibration])
    return (
        f"{len({row.curve for row in rows})} | {len(rows)} | "
        f"{regret.mean():.2f} / {np.quantile(regret, 0.9):.2f} / {regret.max():.2f} | "
        f"{np.mean([row.probes for row in rows]):.1f} | {np.mean([row.exploration_regret_pct for row in rows]):.2f} | "
        f"{' | '.join(doubts)}"
    )
