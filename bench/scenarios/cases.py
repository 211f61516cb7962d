"""What real training jobs do, drawn at random: a job, its machine, what goes wrong, and what the user asks for."""

from dataclasses import dataclass, replace

import numpy as np

from autocap.devices.model import profile_names, profiles
from autocap.devices.model.profiles import Profile
from autocap.metrics import Metric
from autocap.testing.simulated.job import Episode, SimulatedJob, WorkloadChange
from autocap.testing.simulated.node import LimitChange, SimulatedNode, Spell
from bench.simulation.starvation import Starvation

MAX_SLOWDOWN = 0.05
_METRICS = (Metric(name="energy"), Metric(name="edp"), Metric(name="eds", k=2.0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """One job, its machine and what its user asks for, as drawn from a seed."""

    seed: int
    profile: Profile
    metric: Metric
    job: SimulatedJob
    node: SimulatedNode
    starvation: Starvation | None = None

    @property
    def change(self) -> WorkloadChange | None:
        return self.job.change

    @property
    def foreign(self) -> bool:
        """Whether somebody else sets a limit."""
        return bool(self.node.changes)


def constrained(scenario: Scenario) -> Scenario:
    """The same job, whose user allows a slowdown of 5 %."""
    metric = scenario.metric
    return replace(scenario, metric=Metric(name=metric.name, k=metric.k, max_slowdown=MAX_SLOWDOWN))


def starved(scenario: Scenario) -> Scenario:
    """The same job on a machine with too few cores: throughout in half of the cases, else for some stretches; every
    third without an energy counter."""
    rng = np.random.default_rng([scenario.seed, 7])
    starvation = Starvation(
        spells=_starved_spells(rng, scenario.job),
        gap_s=float(np.exp(rng.uniform(np.log(0.1), np.log(2.0)))),
        spread=float(rng.uniform(0.5, 1.5)),
        bursts=float(rng.uniform(0.0, 0.4)),
        held_up=float(rng.uniform(0.0, 0.3)) if rng.random() < 0.5 else 0.0,
    )
    node = replace(scenario.node, energy_counter=bool(rng.random() >= 1 / 3))
    return replace(scenario, node=node, starvation=starvation)


def _starved_spells(rng: np.random.Generator, job: SimulatedJob) -> tuple[Spell, ...]:
    if rng.random() < 0.5:
        return (Spell(start_s=0.0, end_s=np.inf),)
    lasts_s = job.start_s + (job.iterations or 0) * job.profile.default_time_s
    starts_s = rng.uniform(0.0, 0.9, int(rng.integers(1, 5))) * lasts_s
    lengths_s = rng.uniform(20.0, max(40.0, lasts_s / 3), starts_s.size)
    return tuple(
        Spell(start_s=float(start), end_s=float(start + length))
        for start, length in zip(starts_s, lengths_s, strict=True)
    )


def draw(seed: int) -> Scenario:
    """Warm-up of 5 to 120 s; validation every 50 to 500 iterations, checkpoints of 15 to 55 s, stalls, jitter up to
    10 %, thermal drift, a changed workload, a foreign cap, sensors and cards that fail for a while, each in some of the
    jobs; the end at a random time.
    """
    rng = np.random.default_rng([seed, 6])
    names = profile_names()
    profile = profiles.load(names[int(rng.integers(len(names)))])
    period_s = profile.default_time_s
    metric = _METRICS[int(rng.integers(len(_METRICS)))]
    lasts_s = float(np.exp(rng.uniform(np.log(60.0), np.log(3600.0))))
    iterations = max(20, round(lasts_s / period_s))
    start_s, factor = float(rng.uniform(0.0, 60.0)), float(rng.uniform(1.5, 4.0))
    warming_s = float(rng.uniform(5.0, 120.0)) - start_s
    warm_up = max(0, round(warming_s / period_s / ((1.0 + factor) / 2)))
    change = None
    if rng.random() < 0.35:
        time = float(rng.uniform(1.12, 1.8) if rng.random() < 0.5 else rng.uniform(0.6, 0.88))
        at = warm_up + round(float(rng.uniform(0.1, 0.9)) * iterations)
        change = WorkloadChange(at=at, time=time, power=float(rng.uniform(0.9, 1.0)))
    stalls = rng.random() < 0.3
    job = SimulatedJob(
        profile=profile,
        jitter=float(rng.uniform(0.0, 0.10)),
        stall_chance=float(rng.uniform(0.001, 0.01)) if stalls else 0.0,
        stall_s=float(rng.uniform(0.5, 5.0)),
        start_s=start_s,
        iterations=warm_up + iterations,
        warm_up_iterations=warm_up,
        warm_up_factor=factor,
        episodes=_episodes(rng),
        change=change,
    )
    whole_s = start_s + max(warming_s, 0.0) + lasts_s
    return Scenario(seed=seed, profile=profile, metric=metric, job=job, node=_node(rng, profile, whole_s))


def _episodes(rng: np.random.Generator) -> tuple[Episode, ...]:
    found = []
    if rng.random() < 0.5:
        every, seconds, power = rng.integers(50, 501), rng.uniform(2.0, 20.0), rng.uniform(0.4, 0.9)
        found.append(Episode(every=int(every), duration_s=float(seconds), power=float(power)))
    if rng.random() < 0.4:
        found.append(Episode(every=int(rng.integers(200, 2000)), duration_s=float(rng.uniform(15.0, 55.0))))
    return tuple(found)


def _node(rng: np.random.Generator, profile: Profile, whole_s: float) -> SimulatedNode:
    changes: tuple[LimitChange, ...] = ()
    if rng.random() < 0.1:
        cap_w = float(rng.integers(int(profile.cap_range.min_w), int(profile.cap_range.default_w) + 1))
        changes = (LimitChange(t_s=float(rng.uniform(0.2, 0.9)) * whole_s, cap_w=cap_w),)
    return SimulatedNode(
        leakage=float(rng.uniform(0.0, 0.04)) if rng.random() < 0.5 else 0.0,
        changes=changes,
        hot=_spells(rng, whole_s, 0.15),
        silent=_spells(rng, whole_s, 0.2),
    )


def _spells(rng: np.random.Generator, whole_s: float, chance: float) -> tuple[Spell, ...]:
    if rng.random() >= chance:
        return ()
    starts_s = rng.uniform(0.1, 0.9, int(rng.integers(1, 4))) * whole_s
    return tuple(Spell(start_s=float(start), end_s=float(start + rng.uniform(0.5, 20.0))) for start in starts_s)
