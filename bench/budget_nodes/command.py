"""python -m bench budget nodes: one budget over four pretended nodes of Slurm or Ray: how soon one that falls by a
quarter is kept, and one fault after the other into others, and what became of them."""

import argparse
import sys
import time
from collections.abc import Sequence
from functools import partial

from bench.budget_faults.command import tell_drops
from bench.budget_nodes.kinds import dropped, injected, kinds_of
from bench.budget_nodes.scene import Ground, ground
from bench.cluster.up import ENGINES
from bench.faults import injections
from bench.faults.outcome import Outcome


def main(argv: Sequence[str]) -> int:
    """Measure and print; 1 where a limit was left changed, the budget exceeded for too long, a job harmed, or something
    hung."""
    parser = argparse.ArgumentParser(prog="python -m bench budget nodes", description=__doc__)
    parser.add_argument("--engine", choices=sorted(ENGINES), default="slurm", help="(default: slurm)")
    parser.add_argument("--drops", type=int, default=3, metavar="N", help="budgets that fall (default: %(default)s)")
    parser.add_argument("--hold", type=float, default=10.0, metavar="S", help="how long it is held then (default: 10)")
    injections.add_options(parser, 22, separator=";")
    args = parser.parse_args(argv)
    kinds = injections.chosen(parser, args.kinds, kinds_of(args.engine), ";")
    began_s = time.monotonic()
    drawn = injections.drawn(kinds, args.injections, args.seed)
    outcomes: list[Outcome] = []
    with ground(args.engine) as place:
        _drops(place, args.drops, args.hold)
        _inject(place, drawn, outcomes)
    while len(outcomes) < len(drawn):
        with ground(args.engine) as place:
            _inject(place, drawn, outcomes)
    return injections.report(outcomes, began_s, args.json, back=partial(injections.longest, kinds), said=12)


def _drops(place: Ground, count: int, hold_s: float) -> None:
    drops = [dropped(place, place.cluster.directory / f"drop{number}", hold_s) for number in range(count)]
    if drops:
        lowered_s, below_s, above_s = zip(*drops, strict=True)
        tell_drops(lowered_s, below_s)
        print(f"held for {hold_s:g} s each, {count} times: exceeded for {max(above_s):.2f} s at most", flush=True)


def _inject(place: Ground, drawn: Sequence[tuple[str, int]], outcomes: list[Outcome]) -> None:
    """Those that are not yet among the outcomes, until one ruins the cluster."""
    for kind, seed in drawn[len(outcomes) :]:
        outcomes.append(injected(place, place.cluster.directory / f"run{len(outcomes)}", kind, seed))
        print(f"# {len(outcomes)} of {len(drawn)}: {kind}", file=sys.stderr, flush=True)
        if kinds_of(place.cluster.engine)[kind].ruins:
            return
