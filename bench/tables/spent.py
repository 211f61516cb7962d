"""What a tuned job spends beyond the best static cap, and on what: `python -m bench tables --spent`.

A job of each network on both cards is tuned by the real controller in virtual time. What it spends more than it would
at the best cap, known from the start, is split by what went on: waiting for the job and its baseline, baselines at the
limits found on arrival later on, trials, windows of a confirmation at the cap, and the cap that was kept. The parts are
the metric's change, to first order in energy and time, so that they add up to the whole but for a second order.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from autocap import events
from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.metrics import Metric
from autocap.testing.simulated.job import SimulatedJob
from bench.common import markdown, played
from bench.simulation.jobs import Outcome, exact, true_costs
from bench.strategies import job_cases

PARTS = ("waiting", "baseline", "trials", "confirmation", "kept cap")
_STEP = 1e-5  # of ln energy and ln time, for the slopes of the metric


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """One job. total_pct: above the best static cap by the metric. parts_pct, parts_s: of PARTS, shape (parts,) each,
    percent of the job's cost and seconds. kept: whether a cap was confirmed and kept."""

    job: str
    total_pct: float
    parts_pct: tuple[float, ...]
    parts_s: tuple[float, ...]
    trials: int
    kept: bool


def stretches(outcome: Outcome, default_w: float) -> Iterator[tuple[float, float, float, str]]:
    """What went on in a job: from when to when, seconds, at which common cap, watts, and which of PARTS that was."""
    begin_s, cap_w, state, tries = 0.0, default_w, events.State.WAITING, False
    ended = [(outcome.wall_s, None)]
    for t_s, event in [*((event.t_s, event) for event in outcome.log.events), *ended]:
        if t_s > begin_s:
            yield begin_s, t_s, cap_w, _part(state, tries, is_default=cap_w == default_w)
            begin_s = t_s
        match event:
            case events.CapSet(setting=settings):
                cap_w = settings[0]
            case events.StateEntered(state=state):
                tries = False
            case events.TrialStarted():
                tries = True
            case events.TrialEnded():
                tries = False


def _part(state: events.State, tries: bool, *, is_default: bool) -> str:
    if state in (events.State.WAITING, events.State.BASELINE):
        return "waiting"
    if state in (events.State.HOLDING, events.State.DONE):
        return "kept cap"
    if is_default and not tries:
        return "baseline"
    return "confirmation" if state is events.State.CONFIRMING else "trials"


@dataclass(frozen=True, slots=True, kw_only=True)
class Jobs:
    """Which jobs. seconds: each takes at the default limit. jitter: of an iteration's time. progress: how iterations
    are found, steps or period. remembers: whether an earlier run of the job is in the memory."""

    metric: Metric
    seconds: float
    jitter: float
    progress: str
    remembers: bool


def spend(name: str, jobs: Jobs, seed: int) -> Spent:
    """Tune one job of a profile."""
    metric = jobs.metric
    profile = profiles.load(name)
    default_w = profile.cap_range.default_w
    iterations = round(jobs.seconds / float(profile.time_s(default_w)))
    job = SimulatedJob(profile=profile, jitter=jobs.jitter, iterations=iterations)
    config = TuneConfig(metric=metric)
    outcome = job_cases.tuned(job, config, "model", seed, jobs.progress, remembers=jobs.remembers)
    costs = true_costs(profile, metric, outcome.grid, default_w)
    base, best = exact(profile, default_w), exact(profile, outcome.grid[int(np.argmin(costs))])

    def value(energy_j: float, time_s: float) -> float:
        return metric.value(energy_j / base.energy_per_iteration_j, time_s / base.period_s, base) / float(costs.min())

    joules, duration_s = best.energy_per_iteration_j, best.period_s
    by_energy = (value(joules * (1 + _STEP), duration_s) - 1) / _STEP
    by_time = (value(joules, duration_s * (1 + _STEP)) - 1) / _STEP
    pct, lasted_s = dict.fromkeys(PARTS, 0.0), dict.fromkeys(PARTS, 0.0)
    for begin_s, end_s, cap_w, part in stretches(outcome, default_w):
        done = (end_s - begin_s) / float(profile.time_s(cap_w))
        used_j = sum(outcome.device.true_energy_j(begin_s, end_s))
        more = by_energy * (used_j / joules - done) + by_time * ((end_s - begin_s) / duration_s - done)
        pct[part] += 100 * more / iterations
        lasted_s[part] += end_s - begin_s
    whole_j = sum(outcome.device.true_energy_j(0.0, outcome.wall_s))
    return Spent(
        job=name,
        total_pct=100 * (value(whole_j / iterations, outcome.wall_s / iterations) - 1),
        parts_pct=tuple(pct.values()),
        parts_s=tuple(lasted_s.values()),
        trials=len(outcome.trials),
        kept=outcome.decided is not None and outcome.decided.confirmed and outcome.decided.setting is not None,
    )


def every(jobs: Jobs, seeds: int) -> list[Spent]:
    """Of all profiles whose iterations can be found so, with so many seeds each."""
    each = [partial(spend, name, jobs, seed) for name in job_cases.curves(jobs.progress) for seed in range(seeds)]
    return list(played(_call, each, 2))


def _call(job: "partial[Spent]") -> Spent:
    return job()


def lines(found: Sequence[Spent]) -> Iterator[str]:
    """A row for each job, the mean of its seeds, and what all come to."""
    yield from markdown("job", "above the best cap %", *(f"{part} %, s" for part in PARTS), "trials", "kept")
    for name in dict.fromkeys(one.job for one in found):
        yield _line(name, [one for one in found if one.job == name])
    yield _line("mean", found)
    total = np.array([one.total_pct for one in found])
    yield ""
    high = np.percentile(total, 90)
    yield (
        f"above the best static cap: median {np.median(total):.2f} %, 90th percentile {high:.2f} %, "
        f"worst {total.max():.2f} %; {sum(one.kept for one in found)} of {len(found)} jobs kept a cap"
    )


def _line(name: str, some: Sequence[Spent]) -> str:
    pct = np.mean([one.parts_pct for one in some], axis=0)
    lasted_s = np.mean([one.parts_s for one in some], axis=0)
    cells = " | ".join(f"{one:.2f}, {s:.1f}" for one, s in zip(pct, lasted_s, strict=True))
    total, trials = np.mean([one.total_pct for one in some]), np.mean([one.trials for one in some])
    return f"| {name} | {total:.2f} | {cells} | {trials:.1f} | {sum(one.kept for one in some)} of {len(some)} |"
