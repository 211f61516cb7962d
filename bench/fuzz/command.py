"""python -m bench fuzz: hostile clients of the helper, and what must hold whatever they say."""

import argparse
import sys
import time
from collections.abc import Sequence

from bench.fuzz import rounds
from bench.fuzz.rounds import play
from bench.fuzz.speech import Case


def main(argv: Sequence[str]) -> int:
    """Play the cases and print the tables; 1 where something gave way."""
    parser = argparse.ArgumentParser(prog="python -m bench fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=2000, metavar="N", help="conversations (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of all of them (default: 0)")
    parser.add_argument("--case", type=int, metavar="I", help="only the one of this number")
    args = parser.parse_args(argv)
    if args.cases < 1:
        parser.error("--cases is at least 1")
    began_s = time.monotonic()
    cases = [Case(args.seed, index) for index in (range(args.cases) if args.case is None else [args.case])]
    try:
        clients = list(play(cases))
    except KeyboardInterrupt:
        print("bench fuzz: interrupted", file=sys.stderr)
        return 130
    print("\n".join(rounds.table(clients)))
    print(f"{len(cases)} cases, seed {args.seed}, {time.monotonic() - began_s:.0f} s")
    for column, complaint in rounds.complaints(clients):
        print(f"{column}: {complaint[:400]}")
    return int(bool(rounds.complaints(clients)))
