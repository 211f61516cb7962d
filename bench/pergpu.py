"""python -m bench pergpu: a cap per GPU against the common cap it came from, on a node whose cards differ.

Whole jobs in virtual time: the real controller searches for a common cap and then for caps per GPU, from what simulated
sensors and the step counter show. What is held is then judged by the same node without any noise.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autocap.clock import VirtualClock
from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.events.search import PerGpuDecided, PerGpuTried
from autocap.metrics import DEFAULT_K, Metric
from autocap.records import Measurement
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.simulated.node import SimulatedNode
from bench.common import add_seeds, played, seeds_of
from bench.simulation.jobs import certain, tune
from bench.strategies.curve_cases import metric_named

_SETTLE_S, _TRUTH_S = 10.0, 60.0
_SHARE, _SLOWER_PCT, _WORSE_PCT = 0.9, 0.3, 0.3  # what is promised
_STRATEGY = "model"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job on a node of so many GPUs.

    spread, jitter: relative standard deviations of the cards' efficiency and of an iteration's time.
    """

    metric: str
    seed: int
    profile: str
    gpus: int
    spread: float
    jitter: float

    @property
    def job(self) -> SimulatedJob:
        return SimulatedJob(profile=profiles.load(self.profile), jitter=self.jitter)

    @property
    def node(self) -> SimulatedNode:
        return SimulatedNode(gpus=self.gpus, efficiency_spread=self.spread)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of one job.

    common_w, cap_w: the common cap, and what is held, watts. The changes are true ones against the common cap, percent.
    energy_off: the reported change of energy, off the truth by so many of its errors, `None` where the common cap is
    held. trials, search_s: what the search for caps per GPU took, its confirmation included.
    """

    case: Case
    common_w: float
    cap_w: tuple[float, ...]
    kept: bool
    energy_pct: float
    time_pct: float
    metric_pct: float
    energy_off: float | None
    trials: int
    search_s: float


def main(argv: Sequence[str]) -> int:
    """Play the jobs and print the table; 1 where a promise is not kept on the node whose cards differ."""
    parser = argparse.ArgumentParser(prog="python -m bench pergpu", description=__doc__)
    parser.add_argument("--metrics", default="energy,edp,eds", help="by comma (default: energy,edp,eds)")
    add_seeds(parser, 40, "jobs a metric")
    parser.add_argument("--profile", default="quadro-rtx-6000/resnet50", help="default: quadro-rtx-6000/resnet50")
    parser.add_argument("--gpus", type=int, default=8, help="of the node (default: 8)")
    parser.add_argument("--spread", type=float, default=0.05, help="of the cards' efficiency (default: 0.05)")
    parser.add_argument("--jitter", type=float, default=0.01, help="of an iteration's time (default: 0.01)")
    args = parser.parse_args(argv)
    cases = [
        Case(
            metric=metric,
            seed=seed,
            profile=args.profile,
            gpus=args.gpus,
            spread=args.spread,
            jitter=args.jitter,
        )
        for metric in args.metrics.split(",")
        for seed in seeds_of(args)
    ]
    begin_s = time.perf_counter()
    rows = [row for row in played(play, cases) if row is not None]
    print("\n".join(table(rows)))
    print(f"\n{len(rows)} of {len(cases)} jobs kept a common cap, {time.perf_counter() - begin_s:.0f} s")
    return 0 if all(promised(rows, metric) for metric in {row.case.metric for row in rows}) else 1


def play(case: Case) -> Row | None:
    """Tune one job until caps are held; `None` where no common cap was kept, so that there is nothing to compare."""
    metric = metric_named(case.metric, DEFAULT_K)
    config = TuneConfig(metric=metric, per_gpu=True)
    outcome = tune(case.job, config, _STRATEGY, node=case.node, seed=case.seed, stop_when_held=True)
    ends = [event for event in outcome.log.events if isinstance(event, PerGpuDecided)]
    if not ends or outcome.decided is None:
        return None
    common = truth(case, (outcome.final_cap_w,) * case.gpus)
    held = truth(case, ends[-1].setting)
    energy_pct = 100 * (held.energy_per_iteration_j / common.energy_per_iteration_j - 1)
    return Row(
        case=case,
        common_w=outcome.final_cap_w,
        cap_w=ends[-1].setting,
        kept=ends[-1].kept,
        energy_pct=energy_pct,
        time_pct=100 * (held.period_s / common.period_s - 1),
        metric_pct=100 * (metric.cost(held, common).value - 1),
        energy_off=_energy_off(ends[-1], energy_pct),
        trials=sum(isinstance(event, PerGpuTried) for event in outcome.log.events),
        search_s=ends[-1].t_s - outcome.decided.t_s,
    )


def truth(case: Case, caps_w: Sequence[float]) -> Measurement:
    """What caps truly cost on the case's node, whose cards are the same without any noise of the job."""
    clock = VirtualClock()
    device = SimulatedDevice(clock, replace(case.job, jitter=0.0), case.node, seed=case.seed)
    limits = device.limits()
    for gpu, cap_w in zip(device.gpus, caps_w, strict=True):
        limits.set_limit_w(gpu.uuid, cap_w)
    clock.wait_until(clock.now() + _SETTLE_S)
    start_s = clock.now()
    clock.wait_until(start_s + _TRUTH_S)
    iterations = device.true_iterations(start_s, start_s + _TRUTH_S)
    energy_j = sum(device.true_energy_j(start_s, start_s + _TRUTH_S))
    return certain(tuple(caps_w), _TRUTH_S / iterations, energy_j / iterations)


def _energy_off(end: PerGpuDecided, true_pct: float) -> float | None:
    if end.measurement is None or end.common is None:
        return None
    found = Metric(name="energy").versus(end.measurement, end.common)
    return (100 * (found.value - 1) - true_pct) / (100 * found.stderr)


def promised(rows: Sequence[Row], metric: str) -> bool:
    """Whether the jobs of a metric are as promised: energy saved at hardly more time in nearly all where cards differ,
    and no loss."""
    some = [row for row in rows if row.case.metric == metric]
    differing = [row for row in some if row.case.spread > 0]
    saved = sum(row.energy_pct < 0 and row.time_pct <= _SLOWER_PCT for row in differing)
    return saved >= _SHARE * len(differing) and max(row.metric_pct for row in some) <= _WORSE_PCT


def table(rows: Sequence[Row]) -> Iterator[str]:
    """A line a metric, as Markdown."""
    yield (
        "| metric | jobs | energy saved, time at most +0.3 % | energy, mean ± sd % | time, worst % | metric, mean / "
        "worst % | reported within 2 errors | trials | search s |"
    )
    yield "|" + "---|" * 9
    for metric in dict.fromkeys(row.case.metric for row in rows):
        some = [row for row in rows if row.case.metric == metric]
        energy, slower, cost = (
            np.array([getattr(row, name) for row in some]) for name in ("energy_pct", "time_pct", "metric_pct")
        )
        saved = np.mean((energy < 0) & (slower <= _SLOWER_PCT))
        off = np.array([row.energy_off for row in some if row.energy_off is not None])
        within = f"{100 * np.mean(np.abs(off) <= 2):.0f} % of {off.size}" if off.size else "–"
        trials, search_s = np.mean([row.trials for row in some]), np.mean([row.search_s for row in some])
        yield (
            f"| {metric} | {len(some)} | {100 * saved:.0f} % | {energy.mean():+.2f} ± {energy.std():.2f} | "
            f"{slower.max():+.2f} | {cost.mean():+.2f} / {cost.max():+.2f} | {within} | {trials:.1f} | {search_s:.0f} |"
        )
