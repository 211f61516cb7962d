"""Whole jobs tuned by the period in their power alone, on every pair of profile and sensor, in virtual time.

A pair is within reach when a period at the limit found on arrival is at least three updates of the sensor, or of the
energy counter where the sensor blurs, and the sensor lets it through. There, a run is good when it keeps a cap whose
true cost is within 1 % of the best on the grid. Elsewhere the limit found on arrival must stay. A kept cap that is
further off is wrong anywhere. Sensors as logs show them come with utilisation, and with an energy counter where the
card has one.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, product

from autocap import config, events
from autocap.config import TuneConfig
from autocap.devices.model import profile_names, profiles
from autocap.devices.model.profiles import Profile
from autocap.devices.model.sensor import PRESETS, SensorModel
from autocap.events import State
from autocap.metrics import DEFAULT_K
from autocap.progress.period.progress import PeriodProgress
from autocap.records import Measurement
from autocap.testing.logged_sensors import LOGGED
from autocap.testing.simulated.job import Episode, SimulatedJob, WorkloadChange
from autocap.testing.simulated.node import SimulatedNode
from bench.common import played
from bench.simulation.jobs import Outcome as Tuned
from bench.simulation.jobs import regret_pct, tune
from bench.strategies.curve_cases import metric_named
from bench.strategies.job_cases import UPDATES_A_PERIOD

_NEAR_PCT = 1.0
_END_S = 3000.0
_METRICS = ("energy", "edp", "eds")
_NO_COUNTER = ("titan-x", "k40m", "laptop")  # cards before Volta, and one whose log has none
_BLURRED_S = 0.5  # a window from which on the energy counter has to show the cycle
_LET_THROUGH = 0.3  # of a cycle's amplitude, by a low pass
_SAME_MULTIPLE = 0.2
_CHANGE_S = 150.0  # when another batch size comes


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One job: a profile seen through a sensor of PRESETS or LOGGED, tuned for a metric. disturbed: by validation every
    120 iterations, checkpoints every 200, and iterations that wait; in every second one another batch size comes.
    """

    profile: str
    sensor: str
    metric: str
    seed: int
    disturbed: bool = False

    @property
    def model(self) -> SensorModel:
        return (PRESETS | LOGGED)[self.sensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a job. kept: a cap was confirmed; regret_pct: its true cost above the best. why: no cap is held.
    first_s: when the search began, held_s: when it was over, seconds. trials: that were measured. astray: those of them
    whose period was another multiple of the true one than the baseline's, against which they were compared.
    """

    case: Case
    reachable: bool
    kept: bool
    regret_pct: float
    why: str
    first_s: float
    held_s: float
    trials: int
    astray: int

    @property
    def wrong(self) -> bool:
        return self.kept and self.regret_pct > _NEAR_PCT


def cases(seeds: range, *, disturbed: bool = False) -> Iterator[Case]:
    """Every pair once a seed, the metrics in turn; first with the sensors of PRESETS, then with those of LOGGED."""
    for sensors in (PRESETS, LOGGED):
        for number, (seed, (profile, sensor)) in enumerate(product(seeds, product(profile_names(), sensors))):
            yield Case(
                profile=profile,
                sensor=sensor,
                metric=_METRICS[(number + seed) % len(_METRICS)],
                seed=seed,
                disturbed=disturbed,
            )


def tuned_by_period(case: Case, *, end_s: float = _END_S) -> Tuned:
    """Tune one job until a cap is held, or none is to be, so many seconds at most."""
    return tune(
        _job(case, profiles.load(case.profile)),
        TuneConfig(metric=metric_named(case.metric, DEFAULT_K)),
        config.STRATEGY,
        node=SimulatedNode(sensor=case.model, energy_counter=_has_counter(case), utilisation=case.sensor in LOGGED),
        seed=case.seed,
        progress=PeriodProgress(case.model.info()),
        end_s=end_s,
        stop_when_held=True,
    )


def _has_counter(case: Case) -> bool:
    return case.sensor not in _NO_COUNTER


def run(case: Case) -> Outcome:
    """Tune one job, and say what became of it."""
    profile, metric, tuned = profiles.load(case.profile), metric_named(case.metric, DEFAULT_K), tuned_by_period(case)
    decided = tuned.decided
    kept = decided is not None and decided.confirmed and tuned.final_cap_w != profile.cap_range.default_w
    said = [event.text for event in tuned.log.events if isinstance(event, events.Warned)]
    entered = [event for event in tuned.log.events if isinstance(event, events.StateEntered)]
    why = "" if kept else (decided.reason if decided is not None else None) or (said or ["the job ended before"])[-1]
    return Outcome(
        case=case,
        reachable=_reachable(profile.default_time_s, case.model, _has_counter(case)),
        kept=kept,
        regret_pct=regret_pct(profile, metric, tuned.grid, tuned.final_cap_w, profile.cap_range.default_w),
        why=why,
        first_s=next((one.t_s for one in entered if one.state is State.SEARCHING), math.inf),
        held_s=tuned.wall_s,
        trials=sum(event.trial.measurement is not None for event in tuned.trials),
        astray=_astray(tuned, profile),
    )


def _job(case: Case, profile: Profile) -> SimulatedJob:
    if not case.disturbed:
        return SimulatedJob(profile=profile, jitter=0.01)
    period_s = profile.default_time_s
    return SimulatedJob(
        profile=profile,
        jitter=0.01,
        stall_chance=0.01,
        stall_s=2.0 * period_s,
        episodes=(Episode(every=120, duration_s=6.0, power=0.4), Episode(every=200, duration_s=8.0)),
        change=WorkloadChange(at=int(_CHANGE_S / period_s), time=1.5) if case.seed % 2 else None,
    )


def _reachable(period_s: float, sensor: SensorModel, counter: bool) -> bool:
    if sensor.window_s >= _BLURRED_S:
        return counter and period_s >= UPDATES_A_PERIOD * sensor.energy_update_s
    passed = 1.0 / math.hypot(1.0, 2 * math.pi * sensor.response_s / period_s)
    return period_s >= UPDATES_A_PERIOD * sensor.update_s and passed >= _LET_THROUGH


def _astray(tuned: Tuned, profile: Profile) -> int:
    """Trials at another multiple of the true period than the baseline before them."""
    count, usual = 0, 1.0
    for event in tuned.log.events:
        if isinstance(event, events.BaselineMeasured):
            usual = _multiple(event.measurement, profile)
        elif isinstance(event, events.TrialEnded) and event.trial.measurement is not None:
            count += abs(_multiple(event.trial.measurement, profile) / usual - 1.0) > _SAME_MULTIPLE
    return count


def _multiple(measurement: Measurement, profile: Profile) -> float:
    return measurement.period_s / profile.time_s(measurement.setting[0])


def main(seeds: range, *, quick: bool = False) -> list[str]:
    """Run them all, two at a time, or every third; the tables."""
    lines: list[str] = []
    for disturbed, what in ((False, "Whole jobs"), (True, "Jobs with validation, checkpoints, waits and changes")):
        outcomes = list(played(run, islice(cases(seeds, disturbed=disturbed), 0, None, 3 if quick else 1)))
        ideal = [outcome for outcome in outcomes if outcome.case.sensor in PRESETS]
        logged = [outcome for outcome in outcomes if outcome.case.sensor in LOGGED]
        lines += ["", *table(f"{what} by period alone, until a cap is held", ideal)]
        lines += ["", *table("The same through sensors as logs show them", logged)]
    return lines[1:]


def table(title: str, outcomes: Sequence[Outcome]) -> list[str]:
    """A line per sensor, and one for every run that kept the limit found on arrival although it was within reach."""
    lines = [
        title,
        f"{'sensor':18}{'in reach':>9}{'kept':>6}{f'within {_NEAR_PCT:g} %':>14}{'worst %':>9}{'first cap':>11}"
        f"{'held after':>12}"
        f"{'out of reach':>14}{'kept':>6}{'wrong':>7}{'trials':>8}{'astray':>8}",
    ]
    for sensor in (*dict.fromkeys(outcome.case.sensor for outcome in outcomes), "all"):
        chosen = [outcome for outcome in outcomes if sensor in (outcome.case.sensor, "all")]
        lines.append(f"{sensor:18}" + _cells(chosen))
    stayed = [
        f"  {o.case.profile} {o.case.sensor} {o.case.metric} seed {o.case.seed}: "
        + (f"wrong by {o.regret_pct:.2f} %" if o.wrong else o.why)
        for o in outcomes
        if (o.reachable and not o.kept) or o.wrong
    ]
    if stayed:
        lines += ["", "In reach, and the limit found on arrival stayed (or a wrong cap was kept):", *stayed]
    return lines


def _cells(outcomes: Iterable[Outcome]) -> str:
    inside = [outcome for outcome in outcomes if outcome.reachable]
    outside = [outcome for outcome in outcomes if not outcome.reachable]
    kept = [outcome for outcome in inside if outcome.kept]
    good = [outcome for outcome in kept if not outcome.wrong]
    worst = max((outcome.regret_pct for outcome in kept), default=0.0)
    held_s = sorted(outcome.held_s for outcome in kept)
    first_s = sorted(outcome.first_s for outcome in kept)
    first, middle = (f"{times[len(times) // 2]:.0f} s" if times else "-" for times in (first_s, held_s))
    share = f"{100 * len(good) / len(inside):.0f} %" if inside else "-"
    every = (*inside, *outside)
    wrong, trials, astray = (sum(count) for count in zip(*((o.wrong, o.trials, o.astray) for o in every), strict=True))
    return (
        f"{len(inside):>9}{len(kept):>6}{share:>14}{worst:>9.2f}{first:>11}{middle:>12}"
        f"{len(outside):>14}{sum(outcome.kept for outcome in outside):>6}{wrong:>7}"
        f"{trials:>8}{astray:>8}"
    )
