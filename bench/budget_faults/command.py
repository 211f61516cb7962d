"""python -m bench budget faults: one fault after the other into power budgets of real processes, and what became of
them; before that, how soon a budget that falls by a quarter is kept, by a word and by the events of a VTN."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from bench.budget_faults.demand import followed
from bench.budget_faults.kinds import KINDS, dropped, injected
from bench.faults.outcome import table

_FOLLOWED = {
    "begun_s": "its start, all limits lowered",
    "begun_draw_s": "its start, the cards draw less",
    "told_s": "begins at once and asked for every 10 s, all limits lowered",
    "deleted_s": "deleted, the budget as it was",
}


def main(argv: Sequence[str]) -> int:
    """Inject and print; 1 where a limit was left changed, the budget exceeded for too long, a job harmed, or something
    hung."""
    parser = argparse.ArgumentParser(prog="python -m bench budget faults", description=__doc__)
    parser.add_argument("--injections", type=int, default=300, metavar="N", help="in all (default: %(default)s)")
    parser.add_argument("--drops", type=int, default=5, metavar="N", help="budgets that fall (default: %(default)s)")
    parser.add_argument(
        "--events", type=int, default=3, metavar="N", help="VTNs that are followed (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the first of each kind (default: 0)")
    parser.add_argument("--kinds", metavar="A,B", help="only these, by the names in the table")
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="budgets (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every outcome as a list")
    args = parser.parse_args(argv)
    kinds = tuple(args.kinds.split(",")) if args.kinds else tuple(KINDS)
    unknown = set(kinds) - set(KINDS)
    if unknown:
        parser.error(f"unknown kind {', '.join(sorted(unknown))}; choose of {', '.join(KINDS)}")
    began_s = time.monotonic()
    drops = [dropped(args.seed + number) for number in range(args.drops)]
    if drops:
        for what, times_s in zip(("all limits lowered", "the cards draw less"), zip(*drops, strict=True), strict=True):
            print(f"budget less 25 %: {what} after {median(times_s):.2f} s (median), {max(times_s):.2f} s (worst)")
    events = [followed(args.seed + 3 * number) for number in range(args.events)]
    for name, what in _FOLLOWED.items() if events else ():
        known_s = [getattr(one, name) for one in events]
        print(f"event less 25 %: {what} after {median(known_s):.2f} s (median), {max(known_s):.2f} s (worst)")
    drawn = [
        (kind, args.seed + number // len(kinds)) for number, kind in enumerate(islice(cycle(kinds), args.injections))
    ]
    with ThreadPoolExecutor(args.at_once) as threads:
        outcomes = list(threads.map(lambda one: injected(*one), drawn))
    if outcomes:
        print("\n".join(table(outcomes)))
    for kind in kinds if outcomes else ():
        worst_s = max((one.back_s for one in outcomes if one.kind == kind and one.back_s is not None), default=0.0)
        print(f"{kind}: above the budget, or until all is back, {worst_s:.2f} s at most")
    print(f"{len(outcomes)} injections, {time.monotonic() - began_s:.0f} s")
    for one in outcomes:
        for complaint in one.complaints:
            print(f"\n{one.kind}, seed {one.seed}: {complaint}")
            print("\n".join(f"    {text}" for text in one.said[-8:]))
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1))
    return int(any(one.complaints for one in outcomes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
