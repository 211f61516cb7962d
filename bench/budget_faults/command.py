"""python -m bench budget faults: one fault after the other into power budgets of real processes, and what became of
them; before that, how soon a budget that falls by a quarter is kept, by a word and by the events of a VTN."""

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from statistics import median

from bench.budget_faults.demand import followed
from bench.budget_faults.kinds import KINDS, dropped, injected
from bench.faults import injections

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
    injections.add_options(parser, 300)
    parser.add_argument("--drops", type=int, default=5, metavar="N", help="budgets that fall (default: %(default)s)")
    parser.add_argument(
        "--events", type=int, default=3, metavar="N", help="VTNs that are followed (default: %(default)s)"
    )
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="budgets (default: %(default)s)")
    args = parser.parse_args(argv)
    kinds = injections.chosen(parser, args.kinds, KINDS)
    began_s = time.monotonic()
    drops = [dropped(args.seed + number) for number in range(args.drops)]
    if drops:
        tell_drops(*zip(*drops, strict=True))
    events = [followed(args.seed + 3 * number) for number in range(args.events)]
    for name, what in _FOLLOWED.items() if events else ():
        known_s = [getattr(one, name) for one in events]
        print(f"event less 25 %: {what} after {median(known_s):.2f} s (median), {max(known_s):.2f} s (worst)")
    drawn = injections.drawn(kinds, args.injections, args.seed)
    with ThreadPoolExecutor(args.at_once) as threads:
        outcomes = list(threads.map(lambda one: injected(*one), drawn))
    return injections.report(outcomes, began_s, args.json, back=partial(injections.longest, kinds), said=8)


def tell_drops(lowered_s: Sequence[float], below_s: Sequence[float]) -> None:
    """How long budgets that fell took."""
    for what, times_s in (("all limits lowered", lowered_s), ("the cards draw less", below_s)):
        print(f"budget less 25 %: {what} after {median(times_s):.2f} s (median), {max(times_s):.2f} s (worst)")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
