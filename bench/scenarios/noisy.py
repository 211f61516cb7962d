"""Jobs on noisy machines: is what is said of them true, and is what is kept worth it?

Readings of power and times of iterations scatter by 5 to 40 %, other load comes in bursts, starts are slow.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from autocap import events
from autocap.config import TuneConfig
from autocap.devices.model import profile_names, profiles
from autocap.devices.model.profiles import Profile
from autocap.devices.model.sensor import for_gpu
from autocap.metrics import Metric, slowdown
from autocap.records import Measurement
from autocap.reports.summary.gains import ENERGY, METRICS, TIME, costs_by_cap
from autocap.reports.summary.summarise import measured_trials
from autocap.testing.simulated.job import SimulatedJob, WorkloadChange
from autocap.testing.simulated.node import SimulatedNode
from bench.simulation.jobs import Outcome, exact, regret_pct, tune

_NOISE = (0.05, 0.40)
_METRICS = (Metric(name="energy"), Metric(name="edp"), Metric(name="eds", k=2.0))
_CLOSE_PCT, _BEYOND_PCT = 3.0, 20.0
_CLOSE_SHARE = 0.90
_WITHIN = (0.93, 0.97)  # of two standard errors, as 95.45 % of a normal are
_ENERGY = METRICS[ENERGY]


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyRow:
    """What came of one job. jitter, noise: of an iteration's time and of a reading of power, relative. decided: whether
    a cap was kept or refused before the job ended. kept_w: `None` where none was. reason: why none was. regret_pct: the
    kept cap's true cost above the best cap's. beyond_pct: its true time above what was said of it, in points of the
    baseline's. energy_off, time_off: what was said of the kept cap, off the truth by so many of its standard errors.
    table_off: the same of all rows of the table of measured caps, energy and time.
    """

    seed: int
    profile: str
    metric: str
    jitter: float
    noise: float
    decided: bool
    kept_w: float | None
    reason: str | None
    regret_pct: float | None
    beyond_pct: float | None
    energy_off: float | None
    time_off: float | None
    table_off: tuple[float, ...]
    story: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoisyJob:
    """A job, its machine, and what its user asks for, as drawn from a seed."""

    profile: Profile
    metric: Metric
    job: SimulatedJob
    node: SimulatedNode
    noise: float


def draw(seed: int) -> NoisyJob:
    """Steps of 0.1 to 2 s for 15 to 60 min; scatter of times and of readings drawn apart; bursts of other load of 3 to
    60 s that lengthen a step to as much as 2.5 times, up to a quarter of the time; up to 60 s before the first step and
    as long until the job has reached its speed; a third of the cards with an energy counter, whose readings do not
    scatter."""
    rng = np.random.default_rng([seed, 38])
    names = profile_names()
    usual = profiles.load(names[int(rng.integers(len(names)))])
    step_s = float(np.exp(rng.uniform(*np.log((0.1, 2.0)))))
    profile = replace(usual, default_time_s=step_s)
    lasts_s = float(np.exp(rng.uniform(*np.log((900.0, 3600.0)))))
    steps = round(lasts_s / step_s)
    low, high = map(math.log, _NOISE)
    jitter, noise = (math.exp(one) for one in rng.uniform(low, high, 2))
    warming_s, factor = float(rng.uniform(0.0, 60.0)), float(rng.uniform(1.5, 4.0))
    job = SimulatedJob(
        profile=profile,
        jitter=jitter,
        jitter_correlation=float(rng.uniform(0.0, 0.5)),
        start_s=float(rng.uniform(0.0, 60.0)),
        iterations=steps,
        warm_up_iterations=round(warming_s / step_s / ((1 + factor) / 2)),
        warm_up_factor=factor,
        bursts=tuple(_bursts(rng, lasts_s, step_s)),
    )
    node = SimulatedNode(
        sensor=replace(for_gpu(profile.gpu_name), noise=noise), energy_counter=bool(rng.random() < 1 / 3)
    )
    return NoisyJob(profile=profile, metric=_METRICS[int(rng.integers(len(_METRICS)))], job=job, node=node, noise=noise)


def _bursts(rng: np.random.Generator, lasts_s: float, step_s: float) -> Iterator[WorkloadChange]:
    """None overlaps another, or they would be more than was said."""
    share, at_s = float(rng.uniform(0.0, 0.25)), 0.0
    if share < 0.01:
        return
    while True:
        length_s = float(np.exp(rng.uniform(*np.log((3.0, 60.0)))))
        at_s += float(rng.exponential(20.0 * (1 - share) / share))
        if at_s > lasts_s:
            return
        until_s = at_s + length_s
        time = float(rng.uniform(1.1, 2.5))
        yield WorkloadChange(
            at=round(at_s / step_s), until=round(until_s / step_s), time=time, power=float(rng.uniform(1 / time, 1.0))
        )
        at_s = until_s


def play(seed: int) -> NoisyRow:
    """Draw a job and tune it to its end."""
    noisy = draw(seed)
    outcome = tune(noisy.job, TuneConfig(metric=noisy.metric), "model", node=noisy.node, seed=seed)
    log = outcome.log.events
    decided = next((event for event in reversed(log) if isinstance(event, events.Decided)), None)
    kept_w = None if decided is None else decided.setting
    default_w = noisy.profile.cap_range.default_w
    base = exact(noisy.profile, default_w)
    energy_off = time_off = beyond = None
    if decided is not None and decided.setting is not None and decided.measurement and decided.baseline:
        true = exact(noisy.profile, decided.setting)
        energy, (time, time_stderr) = _ENERGY.versus(decided.measurement, decided.baseline), _said_time(decided)
        true_time = true.period_s / base.period_s
        energy_off = _off(energy.value, energy.stderr, _ENERGY.cost(true, base).value)
        time_off, beyond = _off(time, time_stderr, true_time), 100 * (true_time - time)
    return NoisyRow(
        seed=seed,
        profile=noisy.profile.name,
        metric=noisy.metric.name,
        jitter=noisy.job.jitter,
        noise=noisy.noise,
        decided=decided is not None,
        kept_w=kept_w,
        reason=None if decided is None or kept_w is not None else decided.reason,
        regret_pct=(
            None if kept_w is None else regret_pct(noisy.profile, noisy.metric, outcome.grid, kept_w, default_w)
        ),
        beyond_pct=beyond,
        energy_off=energy_off,
        time_off=time_off,
        table_off=tuple(_table_off(noisy, outcome, base)),
        story=outcome.story,
    )


def _said_time(decided: events.Decided) -> tuple[float, float]:
    assert decided.measurement is not None
    assert decided.baseline is not None
    return slowdown(decided.measurement, decided.baseline)


def _table_off(noisy: NoisyJob, outcome: Outcome, base: Measurement) -> Iterator[float]:
    """What reports say of each measured cap."""
    log = outcome.log.events
    baseline = next((event.measurement for event in log if isinstance(event, events.BaselineMeasured)), None)
    if baseline is None:
        return
    for row in costs_by_cap(measured_trials(log), baseline, {ENERGY: _ENERGY}):
        if row.setting == baseline.setting:
            continue
        true = exact(noisy.profile, max(row.setting))
        energy, time = row.costs[ENERGY], row.costs[TIME]
        yield _off(energy.value, energy.stderr, _ENERGY.cost(true, base).value)
        yield _off(time.value, time.stderr, true.period_s / base.period_s)


def _off(said: float, stderr: float, true: float) -> float:
    return (said - true) / max(stderr, 1e-9)


def promises(rows: Sequence[NoisyRow]) -> Iterator[tuple[str, bool]]:
    """Each promise with its numbers, and whether it was kept."""
    for what, off in (
        ("energy of kept caps", [row.energy_off for row in rows]),
        ("time of kept caps", [row.time_off for row in rows]),
        ("energy and time in the table of measured caps", [one for row in rows for one in row.table_off]),
    ):
        yield from _stated(what, off)
    kept = [row.regret_pct for row in rows if row.regret_pct is not None]
    none = [row for row in rows if row.decided and row.kept_w is None]
    close = sum(regret <= _CLOSE_PCT for regret in kept)
    if kept:
        yield (
            f"kept caps within {_CLOSE_PCT:g} % of the best: {close} of {len(kept)} "
            f"({100 * _CLOSE_SHARE:g} % aimed at); mean {np.mean(kept):.2f} %, worst {max(kept):.2f} %",
            close >= _CLOSE_SHARE * len(kept),
        )
    said = sum(bool(row.reason) for row in none)
    yield f"no cap kept: {len(none)}, with the reason in {said} (all aimed at)", said == len(none)
    yield f"ended before a decision: {sum(not row.decided for row in rows)} of {len(rows)}", True
    beyond = [row.beyond_pct for row in rows if row.beyond_pct is not None]
    slower = sum(one > _BEYOND_PCT for one in beyond)
    worst = f", worst {max(beyond):+.1f}" if beyond else ""
    more = f"{_BEYOND_PCT:g} points more time than was said"
    yield f"kept caps that take {more}: {slower} (0 aimed at){worst}", not slower


def promised(rows: Sequence[NoisyRow]) -> bool:
    """Whether all were kept."""
    return all(kept for _, kept in promises(rows))


def _stated(what: str, off: Iterable[float | None]) -> Iterator[tuple[str, bool]]:
    sizes = np.abs([one for one in off if one is not None])
    if sizes.size:
        share = float(np.mean(sizes <= 2))
        low, high = _WITHIN
        yield (
            f"{what}, within two standard errors of the truth: {100 * share:.1f} % of {sizes.size} "
            f"({100 * low:g} to {100 * high:g} % aimed at), worst {sizes.max():.1f}",
            # What so many would show by chance, two standard deviations each way, is no broken promise.
            low - _chance(low, sizes.size) <= share <= high + _chance(high, sizes.size),
        )


def _chance(share: float, count: int) -> float:
    return 2 * math.sqrt(share * (1 - share) / count)


def report(rows: Sequence[NoisyRow], listed: int = 12) -> Iterator[str]:
    """The promises, and the jobs that broke one, as lines."""
    for text, kept in promises(rows):
        yield f"{'  ' if kept else '✗ '}{text}"
    broken = [row for row in rows if (row.regret_pct or 0) > _CLOSE_PCT or (row.beyond_pct or 0) > _BEYOND_PCT]
    for row in broken[:listed]:
        yield (
            f"  seed {row.seed}: {row.profile}, {row.metric}, jitter {100 * row.jitter:.0f} %, noise "
            f"{100 * row.noise:.0f} %, kept {row.kept_w:g} W, regret {row.regret_pct:.2f} %, time beyond what was said "
            f"{0.0 if row.beyond_pct is None else row.beyond_pct:+.1f} points"
        )
