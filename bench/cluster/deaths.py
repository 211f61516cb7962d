"""python -m bench cluster deaths: one part after the other of a tuned job on several nodes dies or stops, at random
moments, and what became of limits, job and processes."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from itertools import cycle, islice
from pathlib import Path
from statistics import median

from bench.cluster import up
from bench.cluster.injection import KINDS, Stage
from bench.faults.outcome import Outcome, table

_INJECTIONS = 100
_AT_ONCE = 3  # clusters
_PROFILE = "quadro-rtx-6000/alexnet"


def main(argv: Sequence[str]) -> int:
    """Inject and print; 1 where a limit was left changed, a job harmed, or something hung or stayed."""
    parser = argparse.ArgumentParser(prog="python -m bench cluster deaths", description=__doc__)
    up.add_options(parser)
    parser.set_defaults(profile=_PROFILE)
    parser.add_argument(
        "--injections", type=int, default=_INJECTIONS, metavar="N", help="of each kind (default: %(default)s)"
    )
    parser.add_argument("--kinds", metavar="A,B", help="(default: all of the engine's)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the first of each kind (default: 0)")
    parser.add_argument("--at-once", type=int, default=_AT_ONCE, metavar="N", help="clusters (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write every outcome as a list")
    args = parser.parse_args(argv)
    there = [
        name
        for name, kind in KINDS.items()
        if kind.engine in (None, args.engine) and (kind.needs is None or getattr(args, kind.needs))
    ]
    kinds = args.kinds.split(",") if args.kinds else there
    if unknown := set(kinds).difference(there):
        parser.error(f"unknown kind {', '.join(sorted(unknown))}; under {args.engine} there are {', '.join(there)}")
    drawn = [
        (kind, args.seed + number // len(kinds))
        for number, kind in enumerate(islice(cycle(kinds), args.injections * len(kinds)))
    ]
    began_s = time.monotonic()
    with ThreadPoolExecutor(args.at_once) as threads:
        shares = [drawn[first :: args.at_once] for first in range(args.at_once)]
        outcomes = [one for some in threads.map(lambda share: _several(args, share), shares) for one in some]
    _print(outcomes, time.monotonic() - began_s)
    if args.json is not None:
        args.json.write_text(json.dumps([asdict(one) for one in outcomes], indent=1))
    return int(any(one.complaints for one in outcomes))


def _several(args: argparse.Namespace, drawn: Sequence[tuple[str, int]]) -> list[Outcome]:
    """Injections one after the other into a cluster, or into a new one where it was left in no good state."""
    outcomes: list[Outcome] = []
    rest = list(drawn)
    while rest:
        with tempfile.TemporaryDirectory(prefix="acd-") as folder:
            Path(folder).chmod(0o777 if args.helper else 0o700)
            cluster = up.cluster_of(args, Path(folder, "c"))
            with up.started(cluster):
                stage = Stage(cluster, Path(folder))
                while rest and stage.is_sound:
                    outcomes.append(one := stage.injected(*rest.pop(0)))
                    print(f"{one.kind}, seed {one.seed}: {'; '.join(one.complaints) or 'fine'}", file=sys.stderr)
    return outcomes


def _print(outcomes: Sequence[Outcome], took_s: float) -> None:
    print("\n".join(table(outcomes)))
    for name in sorted({one.kind for one in outcomes if one.back_s is not None}):
        back_s = [one.back_s for one in outcomes if one.kind == name and one.back_s is not None]
        times = f"{median(back_s):.2f} s (median), {max(back_s):.2f} s (worst of {len(back_s)})"
        print(f"{name}: limits that were away were back on all living nodes after {times}")
    print(f"{len(outcomes)} injections, {took_s:.0f} s")
    for one in outcomes:
        for complaint in one.complaints:
            print(f"\n{one.kind}, seed {one.seed}: {complaint}")
            print("\n".join(f"    {text}" for text in one.said[-6:]))
