"""Jobs of 0.05 to 60 s a step, each long enough for a search to pay back: is every one of them tuned, and how well?"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from autocap.config import TuneConfig
from autocap.devices.model import profile_names, profiles
from autocap.devices.model.sensor import for_gpu
from autocap.events import Warned
from autocap.metrics import Metric
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.simulated.node import SimulatedNode
from bench.simulation.jobs import regret_pct, tune

_STEPS_S = (0.05, 60.0)
_METRICS = (Metric(name="energy"), Metric(name="edp"), Metric(name="eds", k=2.0))
_SHORTEST_S, _FEWEST = 1800.0, 200.0  # seconds, and steps, of the shortest job
_CLOSE_PCT = 1.0
_READINGS, _SLOWEST_S = 50.0, 1.0  # sensor readings a step, no farther apart: it is the samples that take the time
_BOUNDS_S = (0.0, 1.0, 6.0, 20.0, np.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRow:
    """What came of one job. step_s: its time per step. kept_w: `None` where no cap was kept. regret_pct: the kept
    cap's true cost above the best cap's. search_s: from its start until then. said: the last warning."""

    seed: int
    profile: str
    metric: str
    step_s: float
    steps: int
    jitter: float
    kept_w: float | None
    regret_pct: float | None
    search_s: float
    said: str | None


def play(seed: int) -> StepRow:
    """Draw a job and tune it, until a cap is held."""
    rng = np.random.default_rng([seed, 18])
    names = profile_names()
    name = names[int(rng.integers(len(names)))]
    step_s = float(np.exp(rng.uniform(*np.log(_STEPS_S))))
    profile = replace(profiles.load(name), default_time_s=step_s)
    metric, jitter = _METRICS[int(rng.integers(len(_METRICS)))], float(rng.uniform(0.0, 0.02))
    steps = round(float(rng.uniform(1.0, 3.0)) * max(_SHORTEST_S / step_s, _FEWEST))
    usual = for_gpu(profile.gpu_name)
    update_s = max(usual.update_s, min(step_s / _READINGS, _SLOWEST_S))
    outcome = tune(
        SimulatedJob(profile=profile, jitter=jitter, iterations=steps),
        TuneConfig(metric=metric, iterations=steps),
        "model",
        node=SimulatedNode(sensor=replace(usual, update_s=update_s)),
        seed=seed,
        stop_when_held=True,
    )
    decided = outcome.decided
    kept_w = None if decided is None else decided.setting
    default_w = profile.cap_range.default_w
    return StepRow(
        seed=seed,
        profile=name,
        metric=metric.name,
        step_s=step_s,
        steps=steps,
        jitter=jitter,
        kept_w=kept_w,
        regret_pct=None if kept_w is None else regret_pct(profile, metric, outcome.grid, kept_w, default_w),
        search_s=outcome.wall_s,
        said=next((event.text for event in reversed(outcome.log.events) if isinstance(event, Warned)), None),
    )


def report(rows: Sequence[StepRow]) -> Iterator[str]:
    """A Markdown table by step length, and the jobs that were not tuned well."""
    quality = "kept a cap | within 1 % of the best | regret, mean / worst %"
    yield f"| s a step | jobs | {quality} | min, median / p90 / longest |"
    yield "|---|---|---|---|---|---|"
    for low_s, high_s in pairwise(_BOUNDS_S):
        yield from _line(f"{low_s:g} to {high_s:g}", [row for row in rows if low_s <= row.step_s < high_s])
    yield from _line("all", rows)
    for row in rows:
        if not _good(row):
            yield (
                f"  seed {row.seed}: {row.profile}, {row.metric}, {row.steps} steps of {row.step_s:.3g} s, jitter "
                f"{100 * row.jitter:.1f} %, kept {row.kept_w}, regret {row.regret_pct}, {row.said}"
            )


def promised(rows: Sequence[StepRow]) -> bool:
    """Whether a cap was kept in all, and is within 1 % of the best in 95 %."""
    return all(row.kept_w is not None for row in rows) and sum(map(_good, rows)) >= 0.95 * len(rows)


def _good(row: StepRow) -> bool:
    return row.regret_pct is not None and row.regret_pct <= _CLOSE_PCT


def _line(name: str, rows: Sequence[StepRow]) -> Iterator[str]:
    regrets = [row.regret_pct for row in rows if row.regret_pct is not None]
    if regrets:
        median, most = np.quantile([row.search_s for row in rows], [0.5, 0.9]) / 60
        longest = max(row.search_s for row in rows) / 60
        yield (
            f"| {name} | {len(rows)} | {len(regrets)} | {sum(map(_good, rows))} | {np.mean(regrets):.2f} / "
            f"{max(regrets):.2f} | {median:.1f} / {most:.1f} / {longest:.1f} |"
        )
