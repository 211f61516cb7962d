"""The pure parts, at their largest: one solution for many jobs, and a day of many jobs planned."""

import time
from collections.abc import Iterator

import numpy as np

from autocap.plugins.fleet.budget.plan import Plan, PlannedCurve, PlannedJob
from autocap.plugins.fleet.budget.shares import Curves, share
from autocap.plugins.fleet.config import Policy
from bench.budget.curves import seed_kinds, truth

_DAY_S = 86400.0
_REPEATS = 5
_SHARE = 0.8


def main(jobs: int) -> int:
    """Print how long each takes; CPU time, as others may use the core as well."""
    print("\n".join(solved(jobs)))
    print()
    print("\n".join(planned(jobs)))
    return 0


def fleet_of(jobs: int, seed: int = 0) -> Curves:
    """Jobs of the seed curves."""
    kinds = np.random.default_rng(seed).integers(len(seed_kinds()), size=jobs)
    tables, ones = seed_kinds().tables, np.ones(jobs)
    return Curves(
        caps_w=tables.caps_w[kinds][:, ::3],
        slowdown=tables.slowdown[kinds][:, ::3],
        energy=tables.energy[kinds][:, ::3],
        devices=np.random.default_rng(seed).choice([1.0, 2.0, 4.0, 8.0], size=jobs),
        weight=ones,
        most_slowdown=ones * np.inf,
    )


def solved(jobs: int) -> Iterator[str]:
    """A line a policy: the CPU time of one solution, the least of a few."""
    curves = fleet_of(jobs)
    budget_w = _SHARE * float(curves.devices @ curves.caps_w[:, -1])
    yield f"| policy | jobs | points | CPU, ms | of the budget charged |\n|{'---|' * 5}"
    for policy in Policy:
        taken_s = []
        for _ in range(_REPEATS):
            begin_s = time.process_time()
            given = share(curves, budget_w, policy)
            taken_s.append(time.process_time() - begin_s)
        charged = float(curves.devices @ given.caps_w) / budget_w
        yield f"| {policy} | {jobs} | {curves.caps_w.shape[1]} | {1e3 * min(taken_s):.0f} | {100 * charged:.2f} % |"


def planned(jobs: int) -> Iterator[str]:
    """A line a policy: a day in which so many jobs arrive, each for an hour or two."""
    curves = {
        profile.name: PlannedCurve(curve=truth(profile), draw_w=float(seed_kinds().draws_w(np.array([row]))[0]))
        for row, profile in enumerate(seed_kinds().profiles)
    }
    rng, names = np.random.default_rng(0), list(curves)
    plan = Plan(
        jobs=[
            PlannedJob(
                name=str(number),
                arrive_s=float(rng.uniform(0, _DAY_S)),
                work_s=float(rng.uniform(1800, 7200)),
                devices=int(rng.choice([1, 2, 4, 8])),
                curve=names[int(rng.integers(len(names)))],
            )
            for number in range(jobs)
        ],
        curves=curves,
    )
    yield f"| policy | jobs | shared anew | CPU, s | mean slowdown | spread | short |\n|{'---|' * 7}"
    for policy in Policy:
        begin_s = time.process_time()
        came = plan.play(_SHARE * plan.asked_w, policy)
        taken_s = time.process_time() - begin_s
        yield (
            f"| {policy} | {jobs} | {came.shares} | {taken_s:.1f} | {100 * float(came.slowdown.mean()):.2f} % | "
            f"{100 * came.spread:.2f} points | {came.short_s:.0f} s |"
        )
