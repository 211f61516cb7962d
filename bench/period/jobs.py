"""Whole jobs tuned by the period in their power alone, on every pair of profile and sensor, in virtual time.

A pair is within reach when a period at the limit found on arrival is at least three updates of the sensor, or of the
energy counter where the sensor blurs. There, a run is good when it keeps a cap whose true cost is within 1.5 % of the
best on the grid. Elsewhere the limit found on arrival must stay. A kept cap that is further off is wrong anywhere.
"""

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import product

from autocap import config, events
from autocap.config import TuneConfig
from autocap.devices.model import profile_names, profiles
from autocap.devices.model.sensor import PRESETS
from autocap.devices.simulated.device import SimulatedJob, SimulatedNode
from autocap.metrics import DEFAULT_K
from autocap.progress.period.progress import PeriodProgress
from bench.simulation.jobs import regret_pct, tune
from bench.strategies.cases import metric_named
from bench.strategies.job_cases import UPDATES_A_PERIOD

_NEAR_PCT = 1.5
_END_S = 3000.0
_METRICS = ("energy", "edp", "eds")


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job: a profile seen through a sensor preset, tuned for a metric."""

    profile: str
    sensor: str
    metric: str
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a job. kept: a cap was confirmed; regret_pct: its true cost above the best. why: no cap is held.
    held_s: when the search was over, seconds.
    """

    case: Case
    reachable: bool
    kept: bool
    regret_pct: float
    why: str
    held_s: float

    @property
    def wrong(self) -> bool:
        return self.kept and self.regret_pct > _NEAR_PCT


def cases(seeds: range) -> Iterator[Case]:
    """Every pair once a seed, the metrics in turn."""
    for number, (seed, (profile, sensor)) in enumerate(product(seeds, product(profile_names(), PRESETS))):
        yield Case(profile=profile, sensor=sensor, metric=_METRICS[(number + seed) % len(_METRICS)], seed=seed)


def run(case: Case) -> Outcome:
    """Tune one job until a cap is held, or none is to be."""
    profile, sensor = profiles.load(case.profile), PRESETS[case.sensor]
    metric = metric_named(case.metric, DEFAULT_K)
    progress = PeriodProgress(sensor.info())
    outcome = tune(
        SimulatedJob(profile=profile, jitter=0.01),
        TuneConfig(metric=metric),
        config.STRATEGY,
        node=SimulatedNode(sensor=sensor),
        seed=case.seed,
        progress=progress,
        end_s=_END_S,
        stop_when_held=True,
    )
    decided = outcome.decided
    kept = decided is not None and decided.confirmed and outcome.final_cap_w != profile.cap_range.default_w
    said = [event.text for event in outcome.log.events if isinstance(event, events.Warned)]
    why = "" if kept else (decided.reason if decided is not None else None) or (said or ["the job ended before"])[-1]
    return Outcome(
        case=case,
        reachable=profile.default_time_s >= UPDATES_A_PERIOD * sensor.info().update_s,
        kept=kept,
        regret_pct=regret_pct(profile, metric, outcome.grid, outcome.final_cap_w, profile.cap_range.default_w),
        why=why,
        held_s=outcome.wall_s,
    )


def main(seeds: range) -> list[str]:
    """Run them all, two at a time; the table."""
    with ProcessPoolExecutor() as pool:
        return table(list(pool.map(run, cases(seeds), chunksize=1)))


def table(outcomes: Sequence[Outcome]) -> list[str]:
    """A line per sensor, and one for every run that kept the limit found on arrival although it was within reach."""
    lines = [
        "Whole jobs by period alone, until a cap is held",
        f"{'sensor':14}{'in reach':>9}{'kept':>6}{f'within {_NEAR_PCT:g} %':>14}{'worst %':>9}{'held after':>12}"
        f"{'out of reach':>14}{'kept':>6}{'wrong':>7}",
    ]
    for sensor in (*PRESETS, "all"):
        chosen = [outcome for outcome in outcomes if sensor in (outcome.case.sensor, "all")]
        lines.append(f"{sensor:14}" + _cells(chosen))
    lines += ["", "In reach, and the limit found on arrival stayed (or a wrong cap was kept):"]
    lines += [
        f"  {o.case.profile} {o.case.sensor} {o.case.metric} seed {o.case.seed}: "
        + (f"wrong by {o.regret_pct:.2f} %" if o.wrong else o.why)
        for o in outcomes
        if (o.reachable and not o.kept) or o.wrong
    ]
    return lines


def _cells(outcomes: Iterable[Outcome]) -> str:
    inside = [outcome for outcome in outcomes if outcome.reachable]
    outside = [outcome for outcome in outcomes if not outcome.reachable]
    kept = [outcome for outcome in inside if outcome.kept]
    good = [outcome for outcome in kept if not outcome.wrong]
    worst = max((outcome.regret_pct for outcome in kept), default=0.0)
    held_s = sorted(outcome.held_s for outcome in kept)
    middle = f"{held_s[len(held_s) // 2]:.0f} s" if held_s else "-"
    share = f"{100 * len(good) / len(inside):.0f} %" if inside else "-"
    wrong = sum(outcome.wrong for outcome in (*inside, *outside))
    return (
        f"{len(inside):>9}{len(kept):>6}{share:>14}{worst:>9.2f}{middle:>12}"
        f"{len(outside):>14}{sum(outcome.kept for outcome in outside):>6}{wrong:>7}"
    )
