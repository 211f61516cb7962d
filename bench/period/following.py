"""A period that is followed while a cap is held: what that costs, whether it counts right for hours, and how soon a job
that changes is noticed. In virtual time, with what asks for the samples and what looks for a change as in a real run.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from autocap.clock import VirtualClock
from autocap.controller.holding import Hold
from autocap.controller.intake import Pace
from autocap.devices.model import profiles
from autocap.devices.model.profiles import Profile
from autocap.devices.model.sensor import PRESETS, SensorModel
from autocap.measurement.metering import Metering
from autocap.progress import Mark
from autocap.progress.period.progress import PeriodProgress
from autocap.records import Sample
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import DEEP, SHALLOW, Episode, Phase, SimulatedJob, WorkloadChange
from autocap.testing.simulated.node import SimulatedNode
from bench.common import played
from bench.simulation.jobs import certain

SENSORS = {
    "20 ms": PRESETS["v100"],
    "100 ms": PRESETS["turing"],
    "25 of 100 ms": PRESETS["a100"],
    "counter": PRESETS["average-1s"],
}
_PROFILE, _SHARE = "tesla-v100/resnet50", 0.8  # of the default limit, that is held
_FORWARD_BACKWARD = (Phase(share=0.05, power=0.4), Phase(share=0.35, power=0.9), Phase(share=0.6, power=1.15))
_WAITING = (Phase(share=0.25, power=0.3), Phase(share=0.75, power=1.2))
_WAVEFORMS = {"deep": DEEP, "two": _FORWARD_BACKWARD, "wait": _WAITING, "shallow": SHALLOW}
_EPISODES = (Episode(every=300, duration_s=9.0, power=0.5), Episode(every=500, duration_s=8.0))
_ARRIVAL_S, _ARRIVAL_CYCLES = 45.0, 26.0  # at the limit found on arrival
_SETTLE_S, _HELD_CYCLES = 110.0, 35.0  # at the cap, before anything is looked at
_AFTER_S, _AFTER_CYCLES = 60.0, 60.0
KINDS = ("period", "small", "waveform", "level", "batch", "validation")
_PERIODS_S = (0.3, 0.6, 1.5, 4.0, 10.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A job that is held, and what changes: what of KINDS, "" for nothing within the hours. time, power: factors."""

    sensor: str
    period_s: float
    waveform: str
    jitter: float
    seed: int
    kind: str = ""
    time: float = 1.0
    power: float = 1.0
    then: str = ""
    hours: float = 0.0
    disturbed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """followed: that it was counted when the change came, or to the end. noticed_s: after it, `None` for never. core:
    share of it that following takes; hz: samples a second. times: iterations in one that is counted; off: counted
    beyond the true ones, over these. alarms: reasons to tune anew without a change."""

    case: Case
    followed: bool
    noticed_s: float | None
    core: float
    hz: float
    times: int
    off: float
    alarms: int


class _Job:
    """One job until a moment, and another from then on, on the same device."""

    def __init__(self, clock: VirtualClock, sensor: SensorModel, jobs: Sequence[SimulatedJob], seed: int) -> None:
        self._clock, node = clock, SimulatedNode(sensor=sensor)
        self._devices = [SimulatedDevice(clock, job, node, seed=seed + place) for place, job in enumerate(jobs)]
        self.changes_s = np.inf
        self.profile, self.sensor = jobs[0].profile, self._devices[0].sensor
        self._beyond_j: float | None = None

    def set_cap(self, cap_w: float) -> None:
        for device in self._devices:
            device.limits().set_limit_w(device.gpus[0].uuid, cap_w)

    def sample(self) -> Sample:
        readings = [device.read() for device in self._devices]
        if self._clock.now() < self.changes_s:
            return Sample(t_s=self._clock.now(), readings=readings[0])
        before, after = readings[0][0], readings[-1][0]
        if self._beyond_j is None:
            self._beyond_j = (before.energy_j or 0.0) - (after.energy_j or 0.0)
        return Sample(
            t_s=self._clock.now(), readings=(replace(after, energy_j=(after.energy_j or 0.0) + self._beyond_j),)
        )

    def true_iterations(self, start_s: float, end_s: float) -> float:
        return self._devices[0].true_iterations(start_s, end_s)


def run(case: Case) -> Outcome:
    """Hold a cap under one job."""
    clock, jobs = VirtualClock(), list(_jobs(case))
    job = _Job(clock, SENSORS[case.sensor], jobs, case.seed)
    progress, metering, pace = PeriodProgress(job.sensor), Metering(), Pace(job.sensor)
    cap_w = round(_SHARE * job.profile.cap_range.default_w)
    hold: Hold | None = None
    hold_s = max(_ARRIVAL_S, _ARRIVAL_CYCLES * case.period_s)
    looked_s = hold_s + max(_SETTLE_S, _HELD_CYCLES * case.period_s)
    time_s = float(job.profile.time_s(cap_w))
    rng = np.random.default_rng([case.seed, 7])
    if case.kind:
        job.changes_s = looked_s + (30 + 10 * float(rng.random())) * time_s
        end_s = job.changes_s + max(_AFTER_S, _AFTER_CYCLES * time_s * max(case.time, 1.0))
    else:
        end_s = looked_s + 3600 * case.hours
    seen = _Seen(case, job.changes_s, time_s)
    before, times = list[Mark](), 0
    spent_s, samples, first, last, alarms, followed = 0.0, 0, None, None, 0, False
    while clock.now() < end_s and seen.noticed_s is None:
        held = hold is not None and hold.is_calm
        clock.wait_until(clock.now() + pace.interval_s(
            held=held, follows_power=True, iteration_s=case.period_s, step_s=progress.step_s
        ))  # fmt: skip
        now_s = clock.now()
        if hold is None and now_s >= hold_s:
            job.set_cap(cap_w)
            hold = _holding(job.profile, cap_w, time_s, now_s)
        sample = job.sample()
        pace.take(sample)
        begun_s = time.process_time()
        marks = progress.marks(sample)
        taken_s = time.process_time() - begun_s
        metered = metering.meter(sample, marks, progress.kind, (cap_w,))
        anew = None if hold is None else hold.why_anew(metered, progress.changed)
        if hold is not None and now_s < looked_s:
            before += marks
        elif hold is not None and times == 0:
            times = _multiple(job, before)
            hold = _holding(job.profile, cap_w, times * time_s, now_s)
        if looked_s <= now_s < job.changes_s:
            spent_s, samples = spent_s + taken_s, samples + 1
            alarms += anew is not None
            followed = progress.trouble is None
            first, last = first or (marks[0] if marks else None), marks[-1] if marks else last
            if anew is not None:
                hold = _holding(job.profile, cap_w, times * time_s, now_s)
        elif now_s >= job.changes_s:
            seen.see(now_s, marks, progress.trouble, anew)
    looked_for_s = min(clock.now(), job.changes_s) - looked_s
    return Outcome(
        case=case,
        followed=followed,
        noticed_s=seen.noticed_s,
        core=spent_s / looked_for_s,
        hz=samples / looked_for_s,
        times=times,
        off=times * (1.0 + _off(job, first, last)) - 1.0,
        alarms=alarms,
    )


def _holding(profile: Profile, cap_w: float, period_s: float, now_s: float) -> Hold:
    reference = certain((cap_w,), period_s, period_s * float(profile.power_w(cap_w)))
    return Hold(reference, now_s, retune="auto", settle_s=30.0)


def _multiple(job: _Job, marks: Sequence[Mark]) -> int:
    """How many iterations one that is counted is; the same at each cap, so that any up to four will do."""
    if len(marks) < 2 or marks[-1].iterations <= marks[0].iterations:
        return 1
    true = job.true_iterations(marks[0].t_s, marks[-1].t_s)
    return min(4, max(1, round(true / (marks[-1].iterations - marks[0].iterations))))


def _off(job: _Job, first: Mark | None, last: Mark | None) -> float:
    if first is None or last is None or last.t_s <= first.t_s:
        return np.nan
    return (last.iterations - first.iterations) / job.true_iterations(first.t_s, last.t_s) - 1.0


class _Seen:
    """When a change was noticed: something says that there is one, or nothing is counted any more, or the iterations
    that are counted have the new length rather than the old one; validation: where the count stands still."""

    def __init__(self, case: Case, changed_s: float, time_s: float) -> None:
        self._case, self._changed_s, self._time_s = case, changed_s, time_s
        self._marks: list[Mark] = []
        self.noticed_s: float | None = None

    def see(self, now_s: float, marks: Sequence[Mark], trouble: str | None, anew: str | None) -> None:
        self._marks += [mark for mark in marks if mark.t_s >= self._changed_s]
        if trouble is not None or anew is not None or self._by_marks():
            self.noticed_s = now_s - self._changed_s

    def _by_marks(self) -> bool:
        marks = self._marks
        if self._case.kind == "validation":
            return any(one.iterations == other.iterations for one, other in pairwise(marks))
        if len(marks) < 2 or self._case.time == 1.0 or marks[-1].iterations - marks[0].iterations < 8.0:
            return False
        mean_s = (marks[-1].t_s - marks[0].t_s) / (marks[-1].iterations - marks[0].iterations)
        return (mean_s / self._time_s - 1.0) / (self._case.time - 1.0) > 0.5


def _jobs(case: Case) -> Iterator[SimulatedJob]:
    """The job, and the one that it becomes."""
    profile = replace(profiles.load(_PROFILE), default_time_s=case.period_s)
    disturbed = _EPISODES if case.disturbed else ()
    job = SimulatedJob(
        profile=profile,
        jitter=case.jitter,
        waveform=_WAVEFORMS[case.waveform],
        episodes=disturbed,
        stall_chance=0.005 if case.disturbed else 0.0,
        stall_s=2.0 * case.period_s,
    )
    yield job
    if case.kind:
        yield replace(
            job,
            waveform=_WAVEFORMS[case.then or case.waveform],
            change=WorkloadChange(at=0, time=case.time, power=case.power),
            episodes=(Episode(every=25, duration_s=max(6.0, 3 * case.period_s), power=0.5),)
            if case.kind == "validation"
            else disturbed,
        )


def changes(seeds: range, each: int) -> Iterator[Case]:
    """So many of each kind a seed, through the sensors in turn."""
    for seed in seeds:
        for place, kind in enumerate(KINDS):
            for number in range(each):
                rng = np.random.default_rng([seed, place, number])
                sensor = list(SENSORS)[(number + place) % len(SENSORS)]
                least_s = 3.5 * max(SENSORS[sensor].update_s, SENSORS[sensor].energy_update_s * (sensor == "counter"))
                least_s = max(0.33, 2 * least_s if sensor == "counter" else least_s)
                period_s = float(least_s * (4.0 / least_s) ** rng.random())
                sign = 1 if rng.random() < 0.5 else -1
                size = {"period": rng.uniform(0.07, 0.5), "small": rng.uniform(0.03, 0.07), "batch": 1.0}.get(kind, 0.0)
                factor = 1 + sign * size if kind != "batch" else (2.0, 0.5, 1.5)[number % 3]
                shapes = ["deep", "two", "wait"]
                waveform = shapes[int(rng.integers(3))]
                yield Case(
                    sensor=sensor,
                    period_s=period_s,
                    waveform=waveform,
                    jitter=float(rng.choice([0.003, 0.01, 0.03])),
                    seed=1000 * seed + 100 * place + number,
                    kind=kind,
                    time=float(factor),
                    power=float(1 + sign * rng.uniform(0.12, 0.25)) if kind == "level" else 1.0,
                    then=shapes[(shapes.index(waveform) + 1) % 3] if kind == "waveform" else "",
                )


def holds(seeds: range, hours: float) -> Iterator[Case]:
    """Unchanged jobs: every sensor and period, undisturbed; and disturbed by validation, checkpoints and waits."""
    for seed in seeds:
        for sensor in SENSORS:
            for period_s in _PERIODS_S:
                if period_s < 7 * SENSORS[sensor].update_s and sensor == "counter":
                    continue
                for disturbed in (False, True):
                    yield Case(
                        sensor=sensor, period_s=period_s, waveform="deep", jitter=0.02 if disturbed else 0.01,
                        seed=seed, hours=hours, disturbed=disturbed,
                    )  # fmt: skip


def main(seeds: range, *, quick: bool) -> list[str]:
    """Run them all; the tables."""
    held = list(played(run, holds(seeds, 0.1 if quick else 1.0)))
    changed = list(played(run, changes(seeds, 4 if quick else 34)))
    return [*held_table(held), "", *changes_table(changed)]


def held_table(outcomes: Iterable[Outcome]) -> list[str]:
    """A line per sensor and period."""
    lines = [
        "A cap is held under a job that does not change: what following its period takes, and what it counts",
        f"{'sensor':14}{'period s':>9}{'disturbed':>11}{'% of a core':>13}{'samples/s':>11}{'of':>5}{'count off %':>13}"
        f"{'alarms':>8}",
    ]
    for one in outcomes:
        cells = f"{100 * one.core:>13.3f}{one.hz:>11.1f}{one.times:>4}x{100 * one.off:>13.2f}{one.alarms:>8}"
        lines.append(
            f"{one.case.sensor:14}{one.case.period_s:>9g}{'yes' if one.case.disturbed else 'no':>11}"
            + (cells if one.followed else f"{'not followed':>24}" + cells[24:])
        )
    return lines


def changes_table(outcomes: Sequence[Outcome]) -> list[str]:
    """A line per kind of change."""
    lines = [
        "A job that changes while a cap is held: whether that is noticed, and after how long",
        f"{'what changes':22}{'jobs':>6}{'followed':>10}{'noticed':>9}{'median s':>10}{'p95 s':>8}{'worst s':>9}",
    ]
    for kind in (*KINDS, "all"):
        chosen = [one for one in outcomes if kind in (one.case.kind, "all")]
        before = [one for one in chosen if one.followed]
        noticed_s = [one.noticed_s for one in before if one.noticed_s is not None]
        times = [f"{float(np.quantile(noticed_s, q)):.1f}" for q in (0.5, 0.95, 1.0)] if noticed_s else ["-"] * 3
        lines.append(
            f"{_TOLD.get(kind, kind):22}{len(chosen):>6}{len(before):>10}{len(noticed_s):>9}"
            f"{times[0]:>10}{times[1]:>8}{times[2]:>9}"
        )
    missed = [one.case for one in outcomes if one.followed and one.noticed_s is None]
    return [*lines, *(f"  missed: {case}" for case in missed)]


_TOLD = {
    "period": "period by 7 to 50 %",
    "small": "period by 3 to 7 %",
    "level": "power by 12 to 25 %",
    "batch": "batch size",
    "validation": "validation begins",
}
