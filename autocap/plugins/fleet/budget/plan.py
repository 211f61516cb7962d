"""What a budget would do to jobs that come and go, before one promises it. Pure: a simulation in which a job works at
the speed of its curve at the cap that it has, and nothing else happens.

Caps are shared anew when jobs come or go, but not more often than `Plan.every_s` unless a newcomer has no room; until
then it has its lowest cap, and what a job that ended leaves stays unused. So the sum of all caps is at most the budget
wherever the lowest caps are.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from autocap.plugins.fleet.budget.shares import Curves, Floats, JobCurve, Shares, share
from autocap.plugins.fleet.config import Policy

EVERY_S = 10.0
_DONE_S = 1e-6  # of work that is left
Rule = Callable[[Curves, float], Shares]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """One job. arrive_s: seconds from the beginning. work_s: how long it takes at its baseline. curve: the name of
    one."""

    name: str
    arrive_s: float
    work_s: float
    curve: str
    devices: int = 1
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCurve:
    """What jobs of one kind do under caps. draw_w: a device's at their baseline, watts."""

    curve: JobCurve
    draw_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of all jobs. Arrays have shape (jobs,), in the order of the jobs.

    slowdown: whole job, over its work at its baseline, less 1. wall_s: until the last one had ended. throughput: work
    done, over what would have been done at the baselines in the same time; devices count. energy: joules of the devices
    for it, over what the baselines would take. spread: highest less lowest slowdown, each times its weight, of the jobs
    that ran at one time, in the mean over time, by the curves. peak_w: highest sum of caps. short_s: time in which even
    the lowest caps were above the budget. shares: how often caps were shared anew.
    """

    slowdown: Floats
    wall_s: float
    throughput: float
    energy: float
    spread: float
    peak_w: float
    short_s: float
    shares: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Jobs, their curves by name, and how often caps are shared anew at most, seconds."""

    jobs: Sequence[PlannedJob]
    curves: Mapping[str, PlannedCurve]
    every_s: float = EVERY_S

    @property
    def asked_w(self) -> float:
        """The highest sum of the caps that jobs ask for at one time, if each runs as at its baseline; watts."""
        watts = np.array([job.devices * self.curves[job.curve].curve.caps_w[-1] for job in self.jobs])
        come_s = np.array([job.arrive_s for job in self.jobs])
        gone_s = come_s + [job.work_s for job in self.jobs]
        order = np.argsort(np.concatenate([gone_s, come_s]), kind="stable")  # who goes makes room first
        return float(np.max(np.cumsum(np.concatenate([-watts, watts])[order]), initial=0.0))

    def play(self, budget_w: float, rule: Policy | Rule = Policy.FAIR) -> Outcome:
        """Let all jobs come, work and go under a budget, watts. rule: how it is shared."""
        chosen: Rule = partial(share, policy=rule) if isinstance(rule, Policy) else rule
        return _played(self, budget_w, chosen)


def uniform(curves: Curves, budget_w: float) -> Shares:
    """The same share of the cap that each asks for: what is done where nobody knows curves. Nobody gets less than its
    lowest cap; those who have it leave the less to the others."""
    lowest_w, asked_w = curves.caps_w[:, 0], curves.caps_w[:, -1]
    low, high = 0.0, 1.0
    for _ in range(40):
        fraction = (low + high) / 2
        if float(curves.devices @ np.maximum(lowest_w, fraction * asked_w)) > budget_w:
            high = fraction
        else:
            low = fraction
    caps_w = asked_w if float(curves.devices @ asked_w) <= budget_w else np.maximum(lowest_w, low * asked_w)
    return Shares(
        caps_w=caps_w,
        slowdown=curves.slowdown_at(caps_w),
        short_w=max(0.0, float(curves.devices @ lowest_w) - budget_w),
    )


def _played(plan: Plan, budget_w: float, rule: Rule) -> Outcome:
    """Arrays over all jobs, and the numbers of those that run."""
    names = {name: number for number, name in enumerate(plan.curves)}
    tables = Curves.of([each.curve for each in plan.curves.values()])
    kind = np.array([names[job.curve] for job in plan.jobs], dtype=int)
    devices = np.array([job.devices for job in plan.jobs], dtype=float)
    weight = np.array([job.weight for job in plan.jobs], dtype=float)
    come_s = np.array([job.arrive_s for job in plan.jobs], dtype=float)
    work_s = np.array([job.work_s for job in plan.jobs], dtype=float)
    left_s = work_s.copy()
    end_s = np.zeros(len(plan.jobs))
    order = np.argsort(come_s, kind="stable")
    drawn_w = np.array([each.draw_w for each in plan.curves.values()])[kind]  # at their baselines, by each device

    def tables_of(jobs: "np.ndarray[tuple[int], np.dtype[np.intp]]") -> Curves:
        free = np.full(len(jobs), np.inf)
        return replace(tables.of_jobs(kind[jobs]), devices=devices[jobs], weight=weight[jobs], most_slowdown=free)

    running = np.empty(0, dtype=int)
    caps_w, slowdown, energy = np.empty(0), np.empty(0), np.empty(0)
    t_s, shared_s, come = (float(come_s[order[0]]) if len(order) else 0.0), -np.inf, 0
    begin_s, done, spent, spread_s, short_s, peak_w, shares, stale = t_s, 0.0, 0.0, 0.0, 0.0, 0.0, 0, False
    while come < len(order) or running.size:
        new = []
        while come < len(order) and come_s[order[come]] <= t_s:
            new.append(order[come])
            come += 1
        if new:
            running, stale = np.concatenate([running, new]), True
            lowest = tables_of(np.array(new))
            caps_w = np.concatenate([caps_w, lowest.caps_w[:, 0]])
            slowdown = np.concatenate([slowdown, lowest.slowdown[:, 0]])
            energy = np.concatenate([energy, lowest.energy[:, 0]])
        crowded = new and float(devices[running] @ caps_w) > budget_w
        if stale and running.size and (crowded or t_s >= shared_s + plan.every_s):
            curves = tables_of(running)
            given = rule(curves, budget_w)
            caps_w, slowdown, energy = given.caps_w, given.slowdown, curves.energy_at(given.caps_w)
            shared_s, stale, shares = t_s, False, shares + 1
        charged_w = float(devices[running] @ caps_w)
        peak_w = max(peak_w, charged_w)
        next_s = float(come_s[order[come]]) if come < len(order) else np.inf
        if stale:
            next_s = min(next_s, max(t_s, shared_s + plan.every_s))
        speed = 1 / (1 + slowdown)
        if running.size:
            next_s = min(next_s, t_s + float(np.min(left_s[running] / speed)))
        passed_s = next_s - t_s
        left_s[running] -= speed * passed_s
        done += float(devices[running] @ speed) * passed_s
        spent += float((devices[running] * drawn_w[running] * energy) @ speed) * passed_s
        spread_s += (float(np.ptp(slowdown * weight[running])) if running.size else 0.0) * passed_s
        short_s += passed_s if charged_w > budget_w * (1 + 1e-9) else 0.0
        t_s = next_s
        ended = left_s[running] <= _DONE_S
        if ended.any():
            end_s[running[ended]] = t_s
            running, caps_w, slowdown, energy = (each[~ended] for each in (running, caps_w, slowdown, energy))
            stale = running.size > 0
    wall_s = t_s - begin_s
    work = float(devices @ work_s)
    base_j = float((devices * drawn_w) @ work_s)
    taken_s = end_s - come_s
    return Outcome(
        slowdown=taken_s / work_s - 1,
        wall_s=wall_s,
        throughput=work / float(devices @ taken_s) if work else 1.0,
        energy=spent / base_j if base_j else 1.0,
        spread=spread_s / wall_s if wall_s else 0.0,
        peak_w=peak_w,
        short_s=short_s,
        shares=shares,
    )
