"""python -m bench budget nodes: one budget over four pretended nodes of Slurm or Ray: how soon one that falls by a
quarter is kept, and one fault after the other into others, and what became of them."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from bench.budget_nodes.kinds import dropped, injected, kinds_of
from bench.budget_nodes.scene import Ground, ground
from bench.cluster.up import ENGINES
from bench.faults.outcome import Outcome, table


def main(argv: Sequence[str]) -> int:
    """Measure and print; 1 where a limit was left changed, the budget exceeded for too long, a job harmed, or something
    hung."""
    parser = argparse.ArgumentParser(prog="python -m bench budget nodes", description=__doc__)
    parser.add_argument("--engine", choices=sorted(ENGINES), default="slurm", help="(default: slurm)")
    parser.add_argument("--drops", type=int, default=3, metavar="N", help="budgets that fall (default: %(default)s)")
    parser.add_argument("--hold", type=float, default=10.0, metavar="S", help="how long it is held then (default: 10)")
    parser.add_argument("--injections", type=int, default=22, metavar="N", help="in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the first of each kind (default: 0)")
    parser.add_argument("--kinds", metavar="A;B", help="only these, by the names in the table")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every outcome as a list")
    args = parser.parse_args(argv)
    there = kinds_of(args.engine)
    kinds = tuple(args.kinds.split(";")) if args.kinds else tuple(there)
    unknown = set(kinds) - set(there)
    if unknown:
        parser.error(f"unknown kind {'; '.join(sorted(unknown))}; choose of {'; '.join(there)}")
    began_s = time.monotonic()
    drawn = [
        (kind, args.seed + number // len(kinds)) for number, kind in enumerate(islice(cycle(kinds), args.injections))
    ]
    outcomes: list[Outcome] = []
    with ground(args.engine) as place:
        _drops(place, args.drops, args.hold)
        _inject(place, drawn, outcomes)
    while len(outcomes) < len(drawn):
        with ground(args.engine) as place:
            _inject(place, drawn, outcomes)
    print("\n".join(table(outcomes)))
    for kind in kinds:
        worst_s = max((one.back_s for one in outcomes if one.kind == kind and one.back_s is not None), default=0.0)
        print(f"{kind}: above the budget, or until all is back, {worst_s:.2f} s at most")
    print(f"{len(outcomes)} injections, {time.monotonic() - began_s:.0f} s")
    for one in outcomes:
        for complaint in one.complaints:
            print(f"\n{one.kind}, seed {one.seed}: {complaint}")
            print("\n".join(f"    {text}" for text in one.said[-12:]))
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1))
    return int(any(one.complaints for one in outcomes))


def _drops(place: Ground, count: int, hold_s: float) -> None:
    drops = [dropped(place, place.cluster.directory / f"drop{number}", hold_s) for number in range(count)]
    if drops:
        lowered_s, below_s, above_s = zip(*drops, strict=True)
        for what, times_s in (("all limits lowered", lowered_s), ("the cards draw less", below_s)):
            print(f"budget less 25 %: {what} after {median(times_s):.2f} s (median), {max(times_s):.2f} s (worst)")
        print(f"held for {hold_s:g} s each, {count} times: exceeded for {max(above_s):.2f} s at most", flush=True)


def _inject(place: Ground, drawn: Sequence[tuple[str, int]], outcomes: list[Outcome]) -> None:
    """Those that are not yet among the outcomes, until one ruins the cluster."""
    for kind, seed in drawn[len(outcomes) :]:
        outcomes.append(injected(place, place.cluster.directory / f"run{len(outcomes)}", kind, seed))
        print(f"# {len(outcomes)} of {len(drawn)}: {kind}", file=sys.stderr, flush=True)
        if kinds_of(place.cluster.engine)[kind].ruins:
            return
