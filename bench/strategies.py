"""`python -m bench strategies --mode jobs`: whole jobs under each strategy, against the best static cap.

Every job is run by the real controller on the simulated device, sensors and step counter included, in virtual time.
"""

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import numpy as np

from autocap import profiles
from autocap.config import TuneConfig
from autocap.devices.simulated import SimulatedJob, SimulatedNode
from autocap.metrics import DEFAULT_K, Metric
from autocap.periodic import PeriodProgress
from autocap.progress import StepProgress
from autocap.sensor import PRESETS, for_gpu
from bench.jobs import Outcome, exact, regret_pct, true_costs, tune

_SHORTEST_S = 300.0
_UPDATES_A_PERIOD = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job to run. iterations: of the job, at least 300 s of them at the default cap. sensor: a name of
    `autocap.sensor.PRESETS`, `None` for the one of the profile's card.
    """

    curve: str
    metric: str
    k: float
    strategy: str
    seed: int
    jitter: float
    iterations: int
    progress: str
    sensor: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One finished job.

    probes: trials beyond the baseline. regret_pct: of the finished job, search and all, against the best static cap
    from the start. kept_regret_pct: of the cap that it kept. exploration_regret_pct: the trials' mean excess over the
    best cap. state: what became of the search.
    """

    mode: str
    curve: str
    metric: str
    strategy: str
    seed: int
    probes: int
    final_cap_w: float
    regret_pct: float
    kept_regret_pct: float
    exploration_regret_pct: float
    iterations: int
    progress: str
    state: str


def run(case: Case) -> Row:
    """Run one job to its end."""
    profile = profiles.load(case.curve)
    metric = Metric(name=case.metric, k=case.k if case.metric == "eds" else None)
    default_w = profile.cap_range.default_w
    iterations = max(case.iterations, round(_SHORTEST_S / profile.time_s(default_w)))
    job = SimulatedJob(profile=profile, jitter=case.jitter, iterations=iterations)
    node = SimulatedNode(sensor=None if case.sensor is None else PRESETS[case.sensor])
    sensor = node.sensor or for_gpu(profile.gpu_name)
    progress = PeriodProgress(sensor.info()) if case.progress == "period" else StepProgress()
    outcome = tune(job, TuneConfig(metric=metric), case.strategy, node=node, seed=case.seed, progress=progress)
    costs = true_costs(profile, metric, outcome.grid, default_w)
    tried = [event.trial.cap_w for event in outcome.trials]
    excess = true_costs(profile, metric, tried, default_w) / costs.min() - 1 if tried else np.zeros(1)
    decided = outcome.decided
    return Row(
        mode="jobs",
        curve=case.curve,
        metric=case.metric,
        strategy=case.strategy,
        seed=case.seed,
        probes=len(tried),
        final_cap_w=outcome.final_cap_w,
        regret_pct=_finished_regret_pct(outcome, metric, case.curve, iterations, float(costs.min())),
        kept_regret_pct=regret_pct(profile, metric, outcome.grid, outcome.final_cap_w, default_w),
        exploration_regret_pct=100 * float(excess.mean()),
        iterations=iterations,
        progress=case.progress,
        state="unfinished" if decided is None else "confirmed" if decided.confirmed else "original kept",
    )


def _finished_regret_pct(outcome: Outcome, metric: Metric, curve: str, iterations: int, best: float) -> float:
    """What the whole job truly cost per iteration against the best static cap."""
    profile = profiles.load(curve)
    default_w = profile.cap_range.default_w
    energy_j = sum(outcome.device.true_energy_j(0.0, outcome.wall_s)) / iterations
    time_s = outcome.wall_s / iterations
    base = exact(profile, default_w)
    cost = metric.value(energy_j / base.energy_per_iteration_j, time_s / base.period_s, base)
    return 100 * (cost / best - 1)


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Means and worst cases by strategy and metric, as lines of a Markdown table."""
    yield "| strategy | metric | jobs | probes | job's regret, mean / worst % | kept a cap | its regret |"
    yield "|---|---|---|---|---|---|---|"
    for strategy, metric in dict.fromkeys((row.strategy, row.metric) for row in rows):
        some = [row for row in rows if (row.strategy, row.metric) == (strategy, metric)]
        jobs = np.array([row.regret_pct for row in some])
        kept = np.array([row.kept_regret_pct for row in some])
        probes = np.mean([row.probes for row in some])
        confirmed = np.array([row.state == "confirmed" for row in some])
        of_confirmed = f"{kept[confirmed].mean():.2f} / {kept[confirmed].max():.2f}" if confirmed.any() else "–"
        yield (
            f"| {strategy} | {metric} | {len(some)} | {probes:.1f} | {jobs.mean():.2f} / {jobs.max():.2f} | "
            f"{confirmed.sum()} | {of_confirmed} |"
        )


def _curves(progress: str, sensor: str | None) -> list[str]:
    """The profiles to run: for `period`, those whose period is at least three updates of the sensor."""
    found = []
    for name in profiles.names():
        profile = profiles.load(name)
        model = PRESETS[sensor] if sensor else for_gpu(profile.gpu_name)
        if progress == "steps" or profile.default_time_s >= _UPDATES_A_PERIOD * model.update_s:
            found.append(name)
    return found


def main(argv: Sequence[str]) -> int:
    """Run the jobs that the command line asks for, and print their table."""
    parser = argparse.ArgumentParser(prog="python -m bench strategies", description=__doc__)
    parser.add_argument("--mode", choices=["jobs"], default="jobs", help="curves is not available yet")
    parser.add_argument("--strategies", default="golden,linear", help="by comma (default: golden,linear)")
    parser.add_argument("--metrics", default="energy,edp,eds", help="by comma (default: energy,edp,eds)")
    parser.add_argument("--k", type=float, default=DEFAULT_K, help="for eds (default: 2)")
    parser.add_argument("--noise", type=float, default=0.01, help="jitter of an iteration's time (default: 0.01)")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--progress", choices=["steps", "period"], default="steps")
    parser.add_argument("--sensor", choices=sorted(PRESETS), help="instead of the one of the profile's card")
    parser.add_argument("--iterations", type=int, default=1000, help="of a job, at least 300 s (default: 1000)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every job's row")
    parser.add_argument("--quick", action="store_true", help="one seed")
    args = parser.parse_args(argv)
    seeds = range(1 if args.quick else args.seeds)
    curves = _curves(args.progress, args.sensor)
    cases = [
        Case(
            curve=curve,
            metric=metric,
            k=args.k,
            strategy=name,
            seed=seed,
            jitter=args.noise,
            iterations=args.iterations,
            progress=args.progress,
            sensor=args.sensor,
        )
        for name, metric, curve, seed in product(args.strategies.split(","), args.metrics.split(","), curves, seeds)
    ]
    start_s = time.perf_counter()
    with ProcessPoolExecutor() as pool:
        rows = []
        for row in pool.map(run, cases, chunksize=2):
            rows.append(row)
            if sys.stderr.isatty():
                print(f"\r{len(rows)}/{len(cases)} jobs", end="", file=sys.stderr, flush=True)
    if sys.stderr.isatty():
        print("\r", end="", file=sys.stderr)
    print("\n".join(table(rows)))
    print(
        f"\n{len(rows)} jobs in {time.perf_counter() - start_s:.0f} s; jitter {100 * args.noise:g} %, simulated power"
    )
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    return 0
