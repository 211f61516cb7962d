"""`python -m bench strategies`: which strategy is best, on cap curves alone or in whole simulated jobs.

*curves* drives strategies alone on cap curves (the twelve seed curves, made-up ones, or a CSV of yours); *jobs* runs
the whole controller, sensors and progress included, on the simulated device.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

from autocap.errors import AutocapError
from autocap.metrics import DEFAULT_K
from bench.common import Given, add_json, played, write_json
from bench.simulation.jobs import every as every_strategy
from bench.simulation.jobs import find
from bench.strategies import curve_cases, job_cases
from bench.strategies.curve_cases import Searched, metric_named, without
from bench.strategies.curve_set import SETS, named, of_families
from bench.strategies.curves import CapCurve, read

_TRIAL_NOISE, _JITTER = 0.005, 0.01  # relative standard deviations: of a trial's time, of an iteration's in a job
_CHUNK = 8
_QUICK = 4  # of the jobs, --quick runs every fourth curve


def main(argv: Sequence[str]) -> int:
    """Run the searches or jobs that the command line asks for, and print their table; the exit status."""
    parser = _parser()
    args = parser.parse_args(argv)
    try:
        for name in args.strategies.split(","):
            find(name)
        for name in args.metrics.split(","):
            metric_named(name, args.k)
        return _curves(args) if args.mode == "curves" else _jobs(args)
    except (AutocapError, ValueError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench strategies", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    every = ",".join(name for name in every_strategy() if name != "fixed")
    parser.add_argument("--mode", choices=["curves", "jobs"], default="curves")
    parser.add_argument(
        "--curves", type=Path, metavar="FILE.csv", help="curve,cap_w,power_w,time_s (default: the seed's)"
    )
    parser.add_argument(
        "--families",
        metavar="A,B",
        help=f"only curves of these families, built in or of FILE.csv; {', '.join(SETS)} and all stand for several "
        "built-in ones (default: seed)",
    )
    parser.add_argument(
        "--leave-out",
        metavar="A,B",
        help="as --families, and the prior of a strategy lacks what stands for the curve's family (of model alone)",
    )
    parser.add_argument(
        "--card",
        choices=[curve_cases.SAME, curve_cases.OTHER],
        help="what searches have shown on the family's other curves, or on those of another family, is known before "
        "(of model alone)",
    )
    parser.add_argument("--by-family", action="store_true", help="a row for each family of curves, too")
    parser.add_argument("--strategies", default=every, help=f"by comma (default: {every})")
    parser.add_argument(
        "--metrics", default="energy,edp,eds", help="by comma; eds_1.5 is eds with that k (default: energy,edp,eds)"
    )
    parser.add_argument("--k", type=float, default=DEFAULT_K, help="for eds (default: 2)")
    parser.add_argument("--seeds", type=int, help="repeats of everything (curves: 20, jobs: 3)")
    parser.add_argument("--iterations", type=int, default=1000, help="of a job, at least 300 s (default: 1000)")
    parser.add_argument("--progress", choices=["steps", "period"], default="steps", help="of jobs")
    parser.add_argument("--remembered", action="store_true", help="of jobs, the second run of each: one came before")
    add_json(parser, "a row for every search or job")
    parser.add_argument("--quick", action="store_true", help="one seed, and of the jobs every fourth curve")
    return parser


def _curves(args: argparse.Namespace) -> int:
    strategies, curves = args.strategies.split(","), _chosen(args)
    if args.leave_out is not None:
        for name, family in product(strategies, dict.fromkeys(curve.family for curve in curves)):
            without(name, family)  # says at once where that cannot be
    cases = [
        curve_cases.CurveCase(
            curve=curve,
            metric=metric,
            k=args.k,
            strategy=name,
            seed=seed,
            noise=_TRIAL_NOISE,
            leave_out=args.leave_out is not None,
            others=() if args.card is None else curve_cases.others_of(curve, curves, args.card),
        )
        for name, metric, curve, seed in product(strategies, args.metrics.split(","), curves, range(_seeds(args, 20)))
    ]
    table = partial(curve_cases.table, by_family=args.by_family)
    return _show(args, curve_cases.run, cases, table, "searches", f"noise {100 * _TRIAL_NOISE:g} %")


def _chosen(args: argparse.Namespace) -> list[CapCurve]:
    """The curves to search."""
    if args.families is not None and args.leave_out is not None:
        raise ValueError("--leave-out names the families itself; leave --families out")
    names = args.families or args.leave_out
    families = None if names is None else names.split(",")
    if args.curves is None:
        return named(families or ["seed"])
    curves = read(args.curves)
    return curves if families is None else of_families(curves, families)


def _jobs(args: argparse.Namespace) -> int:
    if args.curves is not None:
        raise ValueError("--curves belongs to --mode curves")
    if args.families is not None or args.leave_out is not None or args.card is not None or args.by_family:
        raise ValueError("--families, --leave-out, --card and --by-family belong to --mode curves")
    curves = job_cases.curves(args.progress)
    cases = [
        job_cases.JobCase(
            curve=curve,
            metric=metric,
            k=args.k,
            strategy=name,
            seed=seed,
            noise=_JITTER,
            iterations=args.iterations,
            progress=args.progress,
            remembers=args.remembered,
        )
        for name, metric, curve, seed in product(
            args.strategies.split(","),
            args.metrics.split(","),
            curves[::_QUICK] if args.quick else curves,
            range(_seeds(args, 3)),
        )
    ]
    return _show(args, job_cases.run, cases, job_cases.table, "jobs", f"jitter {100 * _JITTER:g} %, simulated power")


def _seeds(args: argparse.Namespace, usual: int) -> int:
    if args.quick:
        return 1
    return usual if args.seeds is None else int(args.seeds)


def _show(
    args: argparse.Namespace,
    run: Callable[[Given], Searched],
    cases: Sequence[Given],
    table: Callable[[Sequence[Searched]], Iterator[str]],
    noun: str,
    note: str,
) -> int:
    """Run the cases; print their table, and write what else is asked for."""
    begin_s = time.perf_counter()
    searched = list(played(run, cases, _CHUNK))
    print("\n".join(table(searched)))
    print(f"\n{len(searched)} {noun} in {time.perf_counter() - begin_s:.0f} s; {note}")
    write_json(args.json, [found.row for found in searched])
    return 0
