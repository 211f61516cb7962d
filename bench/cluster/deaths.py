"""python -m bench cluster deaths: one part after the other of a tuned job on several nodes dies or stops, at random
moments, and what became of limits, job and processes."""

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

from bench.cluster import up
from bench.cluster.injection import KINDS, Stage
from bench.faults import injections
from bench.faults.outcome import Outcome

_INJECTIONS = 100
_AT_ONCE = 3  # clusters
_PROFILE = "quadro-rtx-6000/alexnet"


def main(argv: Sequence[str]) -> int:
    """Inject and print; 1 where a limit was left changed, a job harmed, or something hung or stayed."""
    parser = argparse.ArgumentParser(prog="python -m bench cluster deaths", description=__doc__)
    up.add_options(parser)
    parser.set_defaults(profile=_PROFILE)
    injections.add_options(parser, _INJECTIONS, "of each kind")
    parser.add_argument("--at-once", type=int, default=_AT_ONCE, metavar="N", help="clusters (default: %(default)s)")
    args = parser.parse_args(argv)
    there = [
        name
        for name, kind in KINDS.items()
        if kind.engine in (None, args.engine) and (kind.needs is None or getattr(args, kind.needs))
    ]
    kinds = injections.chosen(parser, args.kinds, there)
    drawn = injections.drawn(kinds, args.injections * len(kinds), args.seed)
    began_s = time.monotonic()
    with ThreadPoolExecutor(args.at_once) as threads:
        shares = [drawn[first :: args.at_once] for first in range(args.at_once)]
        outcomes = [one for some in threads.map(lambda share: _several(args, share), shares) for one in some]
    return injections.report(outcomes, began_s, args.json, back=_backs, said=6)


def _backs(backs_s: dict[str, list[float]]) -> Iterator[str]:
    for name, took_s in sorted(backs_s.items()):
        times = f"{median(took_s):.2f} s (median), {max(took_s):.2f} s (worst of {len(took_s)})"
        yield f"{name}: limits that were away were back on all living nodes after {times}"


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
