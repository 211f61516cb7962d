"""Whole jobs under each strategy, against the best static cap: `python -m bench strategies --mode jobs`.

Every job is run by the real controller on the simulated device, sensors and step counter included, in virtual time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autocap import profiles
from autocap.config import TuneConfig
from autocap.devices.simulated import SimulatedJob, SimulatedNode
from autocap.metrics import Metric
from autocap.periodic import PeriodProgress
from autocap.progress import StepProgress
from autocap.sensor import PRESETS, for_gpu
from bench.curve_cases import metric_named
from bench.jobs import Outcome, exact, regret_pct, true_costs, tune

_SHORTEST_S = 300.0
UPDATES_A_PERIOD = 3  # fewest, of the sensor, for a period to be within reach


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
    metric = metric_named(case.metric, case.k)
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


def curves(progress: str, sensor: str | None) -> list[str]:
    """The profiles to run: for `period`, those whose period is at least three updates of the sensor."""
    found = []
    for name in profiles.names():
        profile = profiles.load(name)
        model = PRESETS[sensor] if sensor else for_gpu(profile.gpu_name)
        if progress == "steps" or profile.default_time_s >= UPDATES_A_PERIOD * model.update_s:
            found.append(name)
    return found
