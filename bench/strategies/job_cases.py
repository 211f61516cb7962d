"""Whole jobs under each strategy, against the best static cap: `python -m bench strategies --mode jobs`.

Every job is run by the real controller on the simulated device, sensors and step counter included, in virtual time.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from autocap import events
from autocap.config import TuneConfig
from autocap.devices.model import profile_names, profiles
from autocap.devices.model.sensor import for_gpu
from autocap.metrics import Metric
from autocap.progress import StepProgress
from autocap.progress.period.progress import PeriodProgress
from autocap.session.warm_start import NOTHING, WarmStartData, curve_of
from autocap.testing.simulated.job import SimulatedJob
from bench.common import markdown
from bench.simulation.jobs import Outcome, exact, true_costs, tune
from bench.strategies.curve_cases import Case, Row, Searched, grouped, metric_named
from bench.strategies.curves import Drive

_SHORTEST_S = 300.0
_ANOTHER = 1000  # added to a seed
UPDATES_A_PERIOD = 3  # fewest, of the sensor, for a period to be within reach


@dataclass(frozen=True, slots=True, kw_only=True)
class JobCase(Case):
    """One job. curve: its profile. noise: of an iteration's time. iterations: of the job, at least 300 s of them at the
    default cap. remembers: an earlier run of the same job, with another seed.
    """

    curve: str
    iterations: int
    progress: str
    remembers: bool = False


def run(case: JobCase) -> Searched:
    """Run one job to its end."""
    profile = profiles.load(case.curve)
    metric = metric_named(case.metric, case.k)
    default_w = profile.cap_range.default_w
    iterations = max(case.iterations, round(_SHORTEST_S / profile.time_s(default_w)))
    job = SimulatedJob(profile=profile, jitter=case.noise, iterations=iterations)
    config = TuneConfig(metric=metric)
    outcome = tuned(job, config, case.strategy, case.seed, case.progress, remembers=case.remembers)
    decided = outcome.decided
    drive = Drive(
        grid=outcome.grid,
        costs=true_costs(profile, metric, outcome.grid, default_w),
        trials=tuple(event.trial for event in outcome.trials),
        kept_w=None if decided is None else decided.setting,
    )
    row = Row(
        mode="jobs",
        curve=case.curve,
        metric=case.metric,
        strategy=case.strategy,
        seed=case.seed,
        probes=len(drive.trials),
        final_cap_w=drive.final_w,
        regret_pct=_finished_regret_pct(outcome, metric, case.curve, iterations, float(drive.costs.min())),
        exploration_regret_pct=drive.exploration_regret_pct,
        iterations=iterations,
        progress=case.progress,
        state=_state(decided),
    )
    return Searched(row=row, drive=drive)


def tuned(
    job: SimulatedJob, config: TuneConfig, strategy: str, seed: int, progress: str, *, remembers: bool
) -> Outcome:
    """Tune a job whose iterations are found by `progress`: steps or period. remembers: it is the second run, with what
    an earlier one of another seed left in the memory."""
    earlier = NOTHING
    if remembers:
        first = tuned(job, config, strategy, seed + _ANOTHER, progress, remembers=False)
        curve = curve_of(first.log.events)
        earlier = NOTHING if curve is None else WarmStartData(curves=(curve,))
    by = PeriodProgress(for_gpu(job.profile.gpu_name).info()) if progress == "period" else StepProgress()
    return tune(job, config, strategy, seed=seed, progress=by, earlier=earlier)


def _state(decided: events.Decided | None) -> str:
    if decided is None or decided.cut_short:
        return "unfinished"
    return "confirmed" if decided.confirmed else "original kept"


def _finished_regret_pct(outcome: Outcome, metric: Metric, curve: str, iterations: int, best: float) -> float:
    """What the whole job truly cost per iteration against the best static cap."""
    profile = profiles.load(curve)
    default_w = profile.cap_range.default_w
    energy_j = sum(outcome.device.true_energy_j(0.0, outcome.wall_s)) / iterations
    time_s = outcome.wall_s / iterations
    base = exact(profile, default_w)
    cost = metric.value(energy_j / base.energy_per_iteration_j, time_s / base.period_s, base)
    return 100 * (cost / best - 1)


def table(searched: Sequence[Searched]) -> Iterator[str]:
    """Means and worst cases by strategy and metric, as lines of a Markdown table."""
    regret = "job's regret, mean / worst %"
    yield from markdown("strategy", "metric", "jobs", "probes", regret, "kept a cap", "its regret")
    for strategy, metric, some in grouped(searched):
        jobs = np.array([found.row.regret_pct for found in some])
        probes = np.mean([found.row.probes for found in some])
        kept = [found.drive.regret_pct(found.drive.final_w) for found in some if found.drive.kept_w is not None]
        of_kept = f"{np.mean(kept):.2f} / {max(kept):.2f}" if kept else "–"
        yield (
            f"| {strategy} | {metric} | {len(some)} | {probes:.1f} | {jobs.mean():.2f} / {jobs.max():.2f} | "
            f"{len(kept)} | {of_kept} |"
        )


def curves(progress: str) -> list[str]:
    """The profiles to run: for `period`, those whose period is at least three updates of their card's sensor."""
    found = []
    for name in profile_names():
        profile = profiles.load(name)
        if progress == "steps" or profile.default_time_s >= UPDATES_A_PERIOD * for_gpu(profile.gpu_name).update_s:
            found.append(name)
    return found
