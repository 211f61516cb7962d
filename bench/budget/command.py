"""`python -m bench budget`: many jobs under one power budget, in virtual time, under autocap's ledger and other rules.

fleet: ten to a thousand jobs at a time that come, go and pause, with curves that real searches have found, a tenth of
them those of other jobs; live: one job of each seed curve, each with its own controller, sensors and cards; drop:
five jobs of four cards, one of them not tuned, on a node whose budget falls by a quarter while they are searched;
plan: the pure parts for ten thousand jobs. faults: into budgets of real processes. nodes: one over four nodes of Slurm
or Ray. demo: two trainings under one, as `make demo-budget` runs it.
"""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence

import numpy as np

from autocap.errors import UsageError
from autocap.plugins.fleet.budget.plan import Plan, PlannedCurve, PlannedJob
from autocap.plugins.fleet.budget.shares import Curves, share
from autocap.plugins.fleet.config import Policy
from bench.budget import demo, node
from bench.budget.curves import Kinds, kinds_of, seed_kinds, truth
from bench.budget.fleet import story
from bench.budget.live import Manager
from bench.budget.play import RULES, Result, play
from bench.budget_faults import command as faults
from bench.budget_nodes import command as nodes
from bench.common import add_seeds
from bench.strategies.curve_set import named

_DAY_S = 86400.0
_REPEATS = 5
_SHARE = 0.8


def pure_parts(jobs: int) -> int:
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


_DROP_S, _END_S = 420.1, 480.0


def main(argv: Sequence[str]) -> int:
    """Print the tables that the command line asks for; the exit status."""
    if argv[:1] == ["faults"]:
        return faults.main(argv[1:])
    if argv[:1] == ["nodes"]:
        return nodes.main(argv[1:])
    if argv[:1] == ["demo"]:
        return demo.main(argv[1:])
    parser = _parser()
    args = parser.parse_args(argv)
    if args.part == "plan":
        return pure_parts(args.jobs)
    try:
        shares = [float(part) / 100 for part in args.budgets.split(",")]
        places = [int(part) for part in args.places.split(",")]
        unknown = [name for name in args.rules.split(";") if name not in RULES]
        if unknown or min(shares) <= 0 or min(places) < 2:
            raise ValueError(
                f"there is no rule {unknown[0]!r}" if unknown else "budgets are above 0 %, places 2 or more"
            )
        curves = seed_kinds() if args.families is None else kinds_of(named(args.families.split(",")))
    except UsageError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except ValueError as error:
        print(f"bench: {error}; --rules takes of {'; '.join(RULES)}, by semicolon", file=sys.stderr)
        return 2
    if args.part == "live":
        lines = live(1 if args.quick else args.seeds, args.seed_base)
    elif args.part == "drop":
        lines = node.table([Policy.FAIR, Policy.ENERGY], range(args.seed_base, args.seed_base + args.seeds))
    else:
        places, shares = ([10], [0.8]) if args.quick else (places, shares)
        seeds = 1 if args.quick else args.seeds
        lines = fleet(curves, places, shares, args.rules.split(";"), seeds, args.seed_base)
    for line in lines:
        print(line, flush=True)
    return 0


def fleet(
    curves: Kinds, places: Sequence[int], shares: Sequence[float], rules: Sequence[str], seeds: int, base: int
) -> Iterator[str]:
    """A line for each rule, number of places and budget, the mean over seeds; of times and joules the largest."""
    yield (
        "| jobs | budget | rule | spread, median / 95 % | worst slowdown | of the optimum | work | above, J | "
        "above, s | lowered, s | below, s |"
    )
    yield "|" + "---|" * 11
    for count in places:
        for part in shares:
            stories = [story(curves, count, part, base + seed, drop_s=_DROP_S, end_s=_END_S) for seed in range(seeds)]
            for name in rules:
                came = [play(one, name, base + seed) for seed, one in enumerate(stories)]
                yield f"| {count} | {100 * part:.0f} % | {name} | {_cells(came)} |"


def _cells(came: Sequence[Result]) -> str:
    def mean(values: Sequence[float]) -> float:
        return sum(values) / len(values)

    def worst(values: Sequence[float | None], digits: int) -> str:
        return "–" if None in values else f"{max(value for value in values if value is not None):.{digits}f}"

    spreads = [one.spread_pct for one in came if one.spread_pct is not None]
    spread = " / ".join(f"{mean(some):.1f}" for some in zip(*spreads, strict=True)) or "–"
    optima = [one.optimum for one in came if one.optimum is not None]
    optimum = f"{100 * mean(optima):.1f} %" if optima else "–"
    return " | ".join(
        [
            spread,
            f"{mean([one.worst_pct for one in came]):.1f} %",
            optimum,
            f"{100 * mean([one.work for one in came]):.1f} %",
            worst([one.over_j for one in came], 0),
            worst([one.over_s for one in came], 1),
            worst([one.lowered_s for one in came], 1),
            worst([one.below_s for one in came], 1),
        ]
    )


def live(seeds: int, base: int) -> Iterator[str]:
    """A line for each way in which the budget begins, and each seed."""
    yield "| policy | budget from | seed | judged | spread, at the end / median | above, s | lowered, s | below, s |"
    yield "|" + "---|" * 8
    for policy, cold in ((Policy.FAIR, False), (Policy.FAIR, True), (Policy.THROUGHPUT, False)):
        for seed in range(base, base + seeds):
            came = Manager(policy, 100 * seed, cold=cold).play()
            begun = "the start" if cold else "300 s on"
            spread = f"{came.spread_pct[0]:.1f} / {came.spread_pct[1]:.1f}"
            yield (
                f"| {policy} | {begun} | {seed} | {came.judged} | {spread} | {came.over_s:.2f} | "
                f"{came.lowered_s:.2f} | {came.below_s:.2f} |"
            )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench budget", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", nargs="?", choices=["fleet", "live", "drop", "plan"], default="fleet")
    parser.add_argument("--places", default="10,100", metavar="LIST", help="jobs at a time (default 10,100)")
    parser.add_argument(
        "--budgets", default="60,70,80,95", metavar="LIST", help="percent of the draw (default 60,70,80,95)"
    )
    parser.add_argument(
        "--families", metavar="LIST",
        help="of a fleet's curves: those of bench strategies, or their sets, as knees (default: the published twelve)",
    )  # fmt: skip
    parser.add_argument("--rules", default=";".join(RULES), metavar="LIST", help="by semicolon (default: all)")
    add_seeds(parser, 1, "stories of each kind")
    parser.add_argument("--jobs", type=int, default=10_000, metavar="N", help="of plan (default 10000)")
    parser.add_argument("--quick", action="store_true", help="ten jobs at 80 %%, or one seed")
    return parser
