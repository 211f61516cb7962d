"""python -m bench budget nodes: one budget over four pretended nodes of Slurm: how soon one that falls by a quarter is
kept, and one fault after the other into others, and what became of them."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from bench.budget_nodes.kinds import KINDS, dropped, injected
from bench.budget_nodes.scene import ground
from bench.faults.outcome import table


def main(argv: Sequence[str]) -> int:
    """Measure and print; 1 where a limit was left changed, the budget exceeded for too long, a job harmed, or something
    hung."""
    parser = argparse.ArgumentParser(prog="python -m bench budget nodes", description=__doc__)
    parser.add_argument("--drops", type=int, default=3, metavar="N", help="budgets that fall (default: %(default)s)")
    parser.add_argument("--hold", type=float, default=10.0, metavar="S", help="how long it is held then (default: 10)")
    parser.add_argument("--injections", type=int, default=22, metavar="N", help="in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the first of each kind (default: 0)")
    parser.add_argument("--kinds", metavar="A,B", help="only these, by the names in the table")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every outcome as a list")
    args = parser.parse_args(argv)
    kinds = tuple(args.kinds.split(";")) if args.kinds else tuple(KINDS)
    unknown = set(kinds) - set(KINDS)
    if unknown:
        parser.error(f"unknown kind {'; '.join(sorted(unknown))}; choose of {'; '.join(KINDS)}")
    began_s = time.monotonic()
    drawn = [
        (kind, args.seed + number // len(kinds)) for number, kind in enumerate(islice(cycle(kinds), args.injections))
    ]
    with ground() as place:
        folder = place.cluster.directory
        drops = [dropped(place, folder / f"drop{number}", args.hold) for number in range(args.drops)]
        if drops:
            lowered_s, below_s, above_s = zip(*drops, strict=True)
            for what, times_s in (("all limits lowered", lowered_s), ("the cards draw less", below_s)):
                print(f"budget less 25 %: {what} after {median(times_s):.2f} s (median), {max(times_s):.2f} s (worst)")
            print(
                f"held for {args.hold:g} s each, {len(drops)} times: exceeded for {max(above_s):.2f} s at most",
                flush=True,
            )
        outcomes = []
        for number, (kind, seed) in enumerate(drawn):
            outcomes.append(injected(place, folder / f"run{number}", kind, seed))
            print(f"# {number + 1} of {len(drawn)}: {kind}", file=sys.stderr, flush=True)
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
