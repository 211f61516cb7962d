"""What real training jobs do, drawn at random: a job, its machine, what goes wrong, and what the user asks for; and
what comes of it under the real controller, against the truth that only a simulation knows.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from autocap import events
from autocap.clock import VirtualClock
from autocap.config import TuneConfig
from autocap.controller.tuning import TUNING
from autocap.devices.model import profile_names, profiles
from autocap.devices.model.profiles import Profile
from autocap.events import State
from autocap.metrics import Metric
from autocap.records import Measurement, TrialState
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import Episode, SimulatedJob, WorkloadChange
from autocap.testing.simulated.node import LimitChange, SimulatedNode, Spell
from bench.simulation.clock import Starvation
from bench.simulation.jobs import Outcome, exact, tune

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


Floats = NDArray[np.float64]
_ANEW, _FAULT = "tuning anew: ", "internal fault"
_STRATEGY = "model"
_LOOK_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What came of one scenario.

    starved: whether the machine had too few cores. held: whether a decision stood when the job ended. kept_w: the
    cap then. regret_pct, over_pct: its true cost above the best for the workload as it was then, and above the
    limit found on arrival's. due: whether the workload changed while a cap was held and went on for long enough to
    be noticed; noticed_after: iterations from then to the search that answered it, without the time that a change
    must last, `None` where none did. retunes, quiet: searches that no change called for, and the iterations while a
    cap was held that might have led to one. saving_off: the reported saving of energy, off the truth by so many of
    its standard errors. excess_pct: the job's time above 1.05 times that at the limit found on arrival, without
    what an aborted trial and the stretch from a change until it was noticed explain; `None` without --max-slowdown.
    back: whether the limits at the end are those found on arrival, or somebody else's. fault: whether something of
    ours went wrong. ended_in: which state. story: what was set, tried, decided and warned of.
    """

    seed: int
    metric: str
    jitter: float
    constrained: bool
    starved: bool
    held: bool
    kept_w: float | None
    regret_pct: float | None
    over_pct: float | None
    due: bool
    noticed_after: float | None
    retunes: int
    quiet: float
    saving_off: float | None
    excess_pct: float | None
    back: bool
    fault: bool
    ended_in: str
    story: str


def play(scenario: Scenario) -> Row:
    """Play a scenario to its end."""
    config = TuneConfig(metric=scenario.metric)
    outcome = tune(scenario.job, config, _STRATEGY, node=scenario.node, seed=scenario.seed,
                   starvation=scenario.starvation)  # fmt: skip
    truth = _Truth(scenario, outcome)
    held = truth.state_at(outcome.wall_s) is State.HOLDING and not truth.gave_up
    regret, over = truth.kept_regret_pct()
    notices = truth.notices()
    return Row(
        seed=scenario.seed,
        metric=scenario.metric.name,
        jitter=scenario.job.jitter,
        constrained=scenario.metric.max_slowdown is not None,
        starved=scenario.starvation is not None,
        held=held,
        kept_w=outcome.final_cap_w,
        regret_pct=regret if held else None,
        over_pct=over if held else None,
        due=truth.due(),
        noticed_after=truth.noticed_after(notices),
        retunes=truth.uncalled_for(notices),
        quiet=truth.quiet(),
        saving_off=truth.saving_off(),
        excess_pct=None if scenario.metric.max_slowdown is None else truth.excess_pct(),
        back=truth.limits_back(),
        fault=truth.fault(),
        ended_in=truth.state_at(outcome.wall_s).value,
        story=outcome.story,
    )


class _Truth:
    """What only the simulation knows about one finished run."""

    def __init__(self, scenario: Scenario, outcome: Outcome) -> None:
        self._scenario, self._outcome = scenario, outcome
        self._profile, self._metric = scenario.profile, scenario.metric
        self._ends_s = outcome.device.true_ends_s()
        self._original_w = self._profile.cap_range.default_w
        states = [event for event in outcome.log.events if isinstance(event, events.StateEntered)]
        self._states = [(event.t_s, event.state) for event in states if event.state is not State.PAUSED]
        self.gave_up = any(
            isinstance(event, events.Warned) and event.text.startswith("tuning ended") for event in outcome.log.events
        )

    def fault(self) -> bool:
        """Whether something of ours went wrong."""
        return any(isinstance(event, events.Warned) and _FAULT in event.text for event in self._outcome.log.events)

    def state_at(self, t_s: float) -> State:
        """The state, pauses aside; DONE, which every end of a job brings, only where it came before that."""
        entered = [state for since_s, state in self._states if since_s <= t_s]
        job_ended_s = min(float(self._ends_s[-1]) if len(self._ends_s) else math.inf, self._outcome.wall_s - 1.0)
        if entered[-1] is State.DONE and len(entered) > 1 and self._states[-1][0] >= job_ended_s:
            return entered[-2]
        return entered[-1]

    def kept_regret_pct(self) -> tuple[float, float]:
        """The kept cap's true cost above the best cap's that is allowed, and above the arrival limit's, percent."""
        worth = 1.0 - self._scenario.node.leakage * (1.0 - np.exp(-self._outcome.wall_s / 120.0))
        base = exact_at(self._profile, self._original_w, worth)
        costs = {}
        for cap_w in (*self._outcome.grid, self._original_w, self._outcome.final_cap_w):
            found = exact_at(self._profile, cap_w, worth)
            if cap_w == self._outcome.final_cap_w or self._metric.allows(found, base):
                costs[cap_w] = self._metric.cost(found, base).value
        kept, at_arrival = costs[self._outcome.final_cap_w], costs[self._original_w]
        return 100 * (kept / min(costs.values()) - 1), 100 * (kept / at_arrival - 1)

    def notices(self) -> list[float]:
        """When a changed workload was answered by a new search."""
        return [
            event.t_s
            for event in self._outcome.log.events
            if isinstance(event, events.Warned) and event.text.startswith(_ANEW)
        ]

    def _change_s(self) -> float | None:
        """When the workload changed; `None` where the job ended before."""
        change = self._scenario.change
        if change is None or len(self._ends_s) <= change.at:
            return None
        return float(self._ends_s[change.at - 1])

    def _done(self, t_s: float) -> float:
        return float(np.searchsorted(self._ends_s, t_s, side="right"))

    def due(self) -> bool:
        """Whether the workload changed while a cap was held, by a tenth or more, with enough iterations left."""
        change, change_s = self._scenario.change, self._change_s()
        if change is None or change_s is None or self._scenario.foreign or self.gave_up:
            return False
        matters = max(abs(change.time - 1), abs(change.time * change.power - 1)) >= 0.10
        return matters and self.state_at(change_s) is State.HOLDING and len(self._ends_s) - change.at > _LOOK_S

    def noticed_after(self, notices: list[float]) -> float | None:
        change, change_s = self._scenario.change, self._change_s()
        if change is None or change_s is None or not self.due():
            return None
        noticed = next((self._done(t_s) for t_s in notices if t_s >= change_s), None)
        if noticed is None:
            return None
        took_s = np.diff(self._ends_s[change.at - 1 : int(noticed)])
        waited = self._lasts_s(change_s) / float(np.median(took_s)) if took_s.size else 0.0  # pauses do not count
        return max(0.0, noticed - change.at - waited)

    def _lasts_s(self, change_s: float) -> float:
        """How long a change had to last: longer, the longer the search took that had led to the cap held then."""
        if self._metric.max_slowdown is not None:
            return 0.0
        before = [(since_s, state) for since_s, state in self._states if since_s <= change_s]
        last = max((place for place, (_, state) in enumerate(before) if state is State.BASELINE), default=0)
        begun_s = next((since_s for since_s, state in before[last:] if state is State.SEARCHING), change_s)
        held_s = next((since_s for since_s, state in before[last:] if state is State.HOLDING), change_s)
        return TUNING.hold_change_lasts * (held_s - begun_s)

    def uncalled_for(self, notices: list[float]) -> int:
        """Searches anew before the change, or beyond the first two after it (a change in the middle of one is seen
        after it). What was measured before the job had reached its speed is rightly measured anew."""
        change_s = self._change_s()
        baselines = [event for event in self._outcome.log.events if isinstance(event, events.BaselineMeasured)]
        measured_s = [event.measurement.start_s for event in baselines]
        warm_up = self._scenario.job.warm_up_iterations
        warm_s = float(self._ends_s[min(warm_up, len(self._ends_s)) - 1]) if warm_up else 0.0
        before = [
            t_s
            for t_s in notices
            if (change_s is None or t_s < change_s) and max((s for s in measured_s if s < t_s), default=0.0) > warm_s
        ]
        after = [t_s for t_s in notices if change_s is not None and t_s >= change_s]
        return len(before) + max(0, len(after) - 2)

    def quiet(self) -> float:
        """Iterations while a cap was held and nothing had changed yet."""
        change_s = self._change_s()
        end_s = self._outcome.wall_s if change_s is None else change_s
        total = 0.0
        for (since_s, state), (until_s, _) in zip(self._states, [*self._states[1:], (end_s, None)], strict=True):
            if state is State.HOLDING:
                total += max(0.0, self._done(min(until_s, end_s)) - self._done(min(since_s, end_s)))
        return total

    def saving_off(self) -> float | None:
        """The last confirmed cap's saving of energy as measured, against the truth, in standard errors."""
        decided = [event for event in self._outcome.log.events if isinstance(event, events.Decided)]
        if not decided or decided[-1].measurement is None or decided[-1].baseline is None:
            return None
        last = decided[-1]
        assert last.measurement is not None
        assert last.baseline is not None
        worth = 1.0 - self._scenario.node.leakage * (1.0 - np.exp(-last.t_s / 120.0))
        energy = Metric(name="energy")
        measured = energy.versus(last.measurement, last.baseline)
        base = exact_at(self._profile, self._original_w, worth)
        true = energy.cost(exact_at(self._profile, last.measurement.setting[0], worth), base).value
        return (measured.value - true) / max(measured.stderr, 1e-9)

    def excess_pct(self) -> float:
        """Time beyond what --max-slowdown explains, percent of that at the limit found on arrival."""
        alone_s = uncapped_ends_s(self._scenario)
        count = min(len(alone_s), len(self._ends_s))
        allowed = 1 + (self._metric.max_slowdown or 0.0)
        beyond_s = self._ends_s[count - 1] - allowed * alone_s[count - 1] - self._aborted_s()
        change, change_s = self._scenario.change, self._change_s()
        if change is not None and change_s is not None:  # counted anew from when it was noticed
            after = [t_s for t_s in self.notices() if t_s >= change_s]
            noticed = int(self._done(after[0])) if after else count
            first, last = change.at - 1, min(noticed, count) - 1
            took_s, took_alone_s = self._ends_s[last] - self._ends_s[first], alone_s[last] - alone_s[first]
            beyond_s -= max(0.0, float(took_s - allowed * took_alone_s))
        return 100 * float(beyond_s / alone_s[count - 1])

    def _aborted_s(self) -> float:
        """The longest trial that was not completed, seconds; the job may have ended in the middle of one."""
        started_s, longest_s = None, 0.0
        for event in self._outcome.log.events:
            if isinstance(event, events.TrialStarted):
                started_s = event.t_s
            elif isinstance(event, events.TrialEnded):
                if started_s is not None and event.trial.state is not TrialState.COMPLETE:
                    longest_s = max(longest_s, event.t_s - started_s)
                started_s = None
        return longest_s if started_s is None else max(longest_s, self._outcome.wall_s - started_s)

    def limits_back(self) -> bool:
        """Whether the limits are those found on arrival, or what somebody else has set."""
        found_w = [reading.requested_w for reading in self._outcome.device.read()]
        others = {change.cap_w for change in self._scenario.node.changes if change.t_s <= self._outcome.wall_s}
        return all(cap_w == self._original_w or cap_w in others for cap_w in found_w)


def exact_at(profile: Profile, cap_w: float, worth: float) -> Measurement:
    """What a cap truly costs on a warm card, whose every watt is worth so much of a cold one's."""
    cold, slower = exact(profile, cap_w), exact(profile, max(cap_w * worth, profile.cap_range.min_w))
    return replace(
        cold,
        duration_s=slower.period_s,
        period_s=slower.period_s,
        energy_per_iteration_j=slower.period_s * cold.power_w,
    )


def uncapped_ends_s(scenario: Scenario) -> Floats:
    """When the iterations end if nobody touches the limits, shape (iterations,)."""
    clock = VirtualClock()
    node = scenario.node
    device = SimulatedDevice(clock, scenario.job, node, seed=scenario.seed)
    while not device.job_ended:
        clock.wait_until(clock.now() + 10.0)
    return device.true_ends_s()
