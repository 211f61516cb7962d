"""python -m bench machines: whole jobs on machines drawn at random from what drivers, firmware, containers and other
agents do, in virtual time; and what became of each."""

import argparse
import json
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path

from bench.machines.drawn import drawn, pairs
from bench.machines.played import Played, played

_TITLES = ("tuned", "refused", "wrongly", "cause", "limit", "harmed", "hang", "error")
_WITHIN = 2.0  # standard errors


def main(argv: Sequence[str]) -> int:
    """Play and print; 1 where something is to be complained of."""
    parser = argparse.ArgumentParser(prog="python -m bench machines", description=__doc__)
    parser.add_argument("--count", type=int, default=60, metavar="N", help="machines (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the first (default: %(default)s)")
    parser.add_argument("--manners", type=int, metavar="N", help="that go wrong on each (default: 0 to 2 by chance)")
    parser.add_argument("--pairs", action="store_true", help="each two manners once, on a plain machine, instead")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every outcome as a list")
    args = parser.parse_args(argv)
    began_s = time.monotonic()
    if args.pairs:
        machines = pairs(args.seed)
    else:
        machines = [drawn(args.seed + number, args.manners) for number in range(args.count)]
    with ProcessPoolExecutor(os.cpu_count(), initializer=_be_quiet) as pool:
        found = list(pool.map(played, machines))
    for line in table(found):
        print(line)
    for one in found:
        for complaint in one.complaints:
            what = " + ".join((one.drawn.kind, *one.drawn.manners))
            print(f"seed {one.drawn.seed}, {what}: {complaint}")
    off = [number for one in found for number in one.off]
    if off:
        share = sum(number <= _WITHIN for number in off) / len(off)
        print(f"{100 * share:.1f} % of {len(off)} stated energies and times within {_WITHIN:g} errors")
    print(f"{len(found)} machines, {time.monotonic() - began_s:.0f} s")
    if args.json is not None:
        args.json.write_text(json.dumps([_as_json(one) for one in found], default=str))
    return 1 if any(one.complaints for one in found) else 0


def table(found: Iterable[Played]) -> list[str]:
    """A row a kind of machine and a manner, each with all of its jobs, and the totals."""
    rows: dict[str, list[Played]] = {}
    every = list(found)
    for one in every:
        for name in (one.drawn.kind, *one.drawn.manners):
            rows.setdefault(name, []).append(one)
    lines = [f"{'machine or manner':44}{'jobs':>6}" + "".join(f"{title:>9}" for title in _TITLES)]
    for name, group in (*sorted(rows.items()), ("all", every)):
        kinds = Counter(complaint.partition(":")[0] for one in group for complaint in one.complaints)
        tuned = sum(one.tuned for one in group)
        counts = (tuned, len(group) - tuned, kinds["refused wrongly"], *(kinds[title] for title in _TITLES[3:]))
        lines.append(f"{name:44}{len(group):6}" + "".join(f"{count:9}" for count in counts))
    return lines


def _be_quiet() -> None:
    logging.getLogger("autocap").addHandler(logging.NullHandler())


def _as_json(one: Played) -> dict[str, object]:
    given = one.drawn
    return {
        **asdict(one),
        "drawn": {"seed": given.seed, "kind": given.kind, "manners": given.manners, "metric": given.metric},
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
