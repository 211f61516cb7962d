"""Strategies alone on cap curves, against the best cap of each: `python -m bench strategies --mode curves`.

With `--leave-out FAMILY` they are of a kind that the strategy's prior lacks: one that was made without a family must
not be sure on it. A strategy whose prior consists of families names them in a class attribute `families`; the search is
by a subclass whose attribute lacks what stands for the curve's family.
"""

import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from autocap.errors import UsageError
from autocap.metrics import Metric
from autocap.records import RelativeCurve
from autocap.runlog.memory.card import relative
from autocap.strategies.registry import StrategyFactory
from bench.simulation.jobs import find, new_strategy
from bench.strategies.curve_set import SETS
from bench.strategies.curves import HEADINGS, CapCurve, Drive, columns, drive


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One search to run. metric, k: as `metric_named` takes them. noise: relative sd of a time, see the mode."""

    metric: str
    k: float
    strategy: str
    seed: int
    noise: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One finished search, as `--json` writes it.

    probes: trials beyond the baseline. final_cap_w: the cap held at the end, the highest where none was kept.
    regret_pct: of that cap (curves), or of the finished job, search and all, against the best static cap from the
    start (jobs). exploration_regret_pct: the trials' mean excess over the best cap. iterations, progress: of whole jobs
    only. state: what became of the search.
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
    """A row, and the search that it sums up. family: of its curve, `None` in whole jobs."""

    row: Row
    drive: Drive
    family: str | None = None


def metric_named(name: str, k: float) -> Metric:
    """The metric of that name, with k for eds. `eds_1.5` is eds with a k of its own, as in `result.json`."""
    base, _, own_k = name.partition("_")
    return Metric(name=base, k=float(own_k or k) if base == "eds" else None)


def grouped(searched: Sequence[Searched]) -> Iterator[tuple[str, str, list[Searched]]]:
    """Strategy, metric, and their searches, in the order of the first of each."""
    groups: dict[tuple[str, str], list[Searched]] = {}
    for found in searched:
        groups.setdefault((found.row.strategy, found.row.metric), []).append(found)
    return ((*names, some) for names, some in groups.items())


# What stands in a prior for the curves of a set: the seed curves were fitted with the law, and so on.
_STANDS_FOR = {"seed": ("law",), "made-up": ("phases",), "knees": ("memory",), "scatter": ("memory",)}
STANDS_FOR: Mapping[str, tuple[str, ...]] = {
    family: _STANDS_FOR[name] for name, families in SETS.items() for family in families
}


def without(strategy: str, family: str) -> StrategyFactory:
    """The strategy with nothing in its prior for a family of curves. Raises UsageError where that cannot be."""
    factory = find(strategy)
    prior: tuple[str, ...] = getattr(factory, "families", ())
    if not isinstance(factory, type) or not prior:
        raise UsageError(
            f"strategy {strategy} names no families of its prior; --leave-out needs one that does, see --strategies"
        )
    if family not in STANDS_FOR:
        raise UsageError(
            f"nothing in a prior is known to stand for curves of family {family}; leave out one of "
            f"{', '.join(STANDS_FOR)}"
        )
    kept = tuple(one for one in prior if one not in STANDS_FOR[family])
    if not kept or kept == prior:
        raise UsageError(
            f"strategy {strategy} cannot leave out {', '.join(STANDS_FOR[family])}, which stands for curves of family "
            f"{family}: its prior consists of {', '.join(prior)}"
        )
    return type(factory.__name__, (factory,), {"families": kept})  # type: ignore[return-value]  # called like its base


_RECORDED_SEED = 7000  # so that no record has the noise of a search


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveCase(Case):
    """One search on a curve. noise: of a trial's time. leave_out: whether the prior lacks what stands for the curve.
    others: of other jobs, of which a search has told before."""

    curve: CapCurve
    leave_out: bool = False
    others: tuple[CapCurve, ...] = ()


def run(case: CurveCase) -> Searched:
    """Run one search to its end. The noise depends on the curve and the seed, not on the strategy."""
    family = case.curve.family
    factory = without(case.strategy, family) if case.leave_out else find(case.strategy)
    elsewhere = [recorded(one, case.metric, case.k, case.seed % _RECORDS, case.noise) for one in case.others]
    make = new_strategy(factory, case.curve.grid, case.seed, elsewhere=elsewhere)
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


_RECORDS = 4  # different ones of each curve
MOST_OTHERS = 16
SAME, OTHER = "same", "other"


def others_of(curve: CapCurve, curves: Sequence[CapCurve], which: str) -> tuple[CapCurve, ...]:
    """The curves that make the record of a card: the other ones of the curve's family, or those of the next family."""
    families = list(dict.fromkeys(one.family for one in curves))
    if which == SAME:
        found = [one for one in curves if one.family == curve.family]
        begin = found.index(curve)
        found = found[begin + 1 :] + found[:begin]
    else:
        family = families[(families.index(curve.family) + 1) % len(families)]
        found = [one for one in curves if one.family == family and family != curve.family]
    if not found:
        what = "no other curve is of its card" if which == SAME else "no curve is of another card"
        raise UsageError(f"--card {which}: {what}, of {curve.name}; choose more --families")
    return tuple(found[:MOST_OTHERS])


@lru_cache(maxsize=1024)
def recorded(curve: CapCurve, metric: str, k: float, seed: int, noise: float) -> RelativeCurve:
    """What a search of the default strategy leaves of a curve, noise and all."""
    make = new_strategy(find("model"), curve.grid, seed)
    rng = np.random.default_rng([_RECORDED_SEED, seed, zlib.crc32(curve.name.encode())])
    found = drive(make, curve, metric_named(metric, k), noise, rng)
    assert found.baseline is not None
    points = {trial.setting: trial.measurement for trial in found.trials if trial.measurement is not None}
    curve_shown = relative(found.baseline, points)
    assert curve_shown is not None  # of one device, with a trial at least
    return curve_shown


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
