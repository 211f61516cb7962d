"""python -m bench fuzz: hostile input for every command and every file format, and what came of it."""

import argparse
import gc
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import NoReturn

from bench.fuzz import helper as hostile
from bench.fuzz import specimens
from bench.fuzz.case import COLUMNS, Case, Outcome
from bench.fuzz.confined import Confined
from bench.fuzz.helper import report
from bench.fuzz.interpreter import become
from bench.fuzz.kinds import KINDS

_CASES = 2000
_SHARES = {**{kind: share for kind, (_, share) in KINDS.items()}, hostile.KIND: 2.0}
_WARM = (
    *("autocap.cli.run", "autocap.cli.sweep", "autocap.cli.devices", "autocap.cli.restore", "autocap.cli.report"),
    *("autocap.cli.runs", "autocap.cli.recorded_runs", "autocap.cli.help", "autocap.reports.comparison"),
    *("autocap.cli.period", "autocap.cli.follow", "autocap.session.modes", "autocap.sweep.session"),
    *("autocap.reports.rendering", "autocap.reports.text", "autocap.reports.live.terminal", "autocap.devices.nvml"),
    *("autocap.reports.prometheus.exporter", "autocap.devices.rapl", "autocap.devices.emulated"),
    *("autocap.runlog.traces", "autocap.progress.regex", "bench.strategies.command"),
)


def main(argv: Sequence[str]) -> int:
    """Play the cases and print the table; 1 where something gave way."""
    parser = argparse.ArgumentParser(prog="python -m bench fuzz", description=__doc__)
    parser.add_argument("--cases", type=int, default=_CASES, metavar="N", help="in all (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of all cases (default: 0)")
    parser.add_argument("--kinds", metavar="A,B", help="only these, by the names in the table")
    parser.add_argument("--case", type=int, metavar="I", help="only the one of this number, of each kind")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the inputs of failures there")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="cases at a time (default: 2)")
    args = parser.parse_args(argv)
    kinds = tuple(args.kinds.split(",")) if args.kinds else tuple(_SHARES)
    if unknown := set(kinds) - set(_SHARES):
        parser.error(f"unknown kind {', '.join(sorted(unknown))}; choose from {', '.join(_SHARES)}")
    if args.cases < 1 or args.jobs < 1:
        parser.error("--cases and --jobs are at least 1")
    cases = drawn(kinds, args.cases, args.seed) if args.case is None else [Case(k, args.seed, args.case) for k in kinds]
    if args.keep is not None:
        args.keep.mkdir(parents=True, exist_ok=True)
    began_s = time.monotonic()
    try:
        outcomes = play([case for case in cases if case.kind in KINDS], keep=args.keep, at_once=args.jobs)
        clients = report.played(sorted(case for case in cases if case.kind == hostile.KIND))
    except KeyboardInterrupt:
        print("bench fuzz: interrupted", file=sys.stderr)
        return 130
    if outcomes:
        print("\n".join(table(outcomes)))
    if clients:
        print("\n".join(report.table(clients)))
    print(f"{len(cases)} cases, seed {args.seed}, {time.monotonic() - began_s:.0f} s")
    for one in sorted(outcomes, key=lambda one: one.case):
        for column, complaint in one.complaints.items():
            words = "" if one.call is None else " ".join(one.call.words)
            print(f"{column}: {one.case}: {words[:160]!a}: {complaint[:300]!a}")
    for column, complaint in report.complaints(clients):
        print(f"{column}: {complaint[:400]}")
    gave_way = [*(one.complaints for one in outcomes), report.complaints(clients)]
    return int(any(gave_way))


def drawn(kinds: Sequence[str], count: int, seed: int) -> list[Case]:
    """That many cases, each kind by its share and at least once, the kinds mixed."""
    whole = sum(_SHARES[kind] for kind in kinds)
    of_kind = {kind: max(1, round(count * _SHARES[kind] / whole)) for kind in kinds}
    cases = [(index / of_kind[kind], Case(kind, seed, index)) for kind in kinds for index in range(of_kind[kind])]
    return [case for _, case in islice(sorted(cases), count)]


def play(cases: Sequence[Case], *, keep: Path | None = None, at_once: int = 2) -> list[Outcome]:
    """What came of each case; one that took too long is played once more, alone."""
    if not cases:
        return []
    for name in _WARM:
        import_module(name)
    made = Path(tempfile.mkdtemp(prefix="autocap-fuzz-"))  # no object that would remove it at the end of each child
    try:
        return _all(cases, made, keep, at_once)
    finally:
        shutil.rmtree(made)


def _all(cases: Sequence[Case], made: Path, keep: Path | None, at_once: int) -> list[Outcome]:
    there = specimens.make(made)

    def one(case: Case, folder: Path) -> NoReturn:
        maker, _ = KINDS[case.kind]
        become(maker(case.random(), folder, there), folder)

    root = made / "cases" if keep is None else keep.absolute()
    root.mkdir(exist_ok=True)
    gc.collect()
    gc.freeze()  # so that forked processes share it all
    with Confined(one, root, at_once=at_once, keep=keep is not None) as confined:
        outcomes = list(_told(confined.outcomes(cases), len(cases)))
    late = [outcome.case for outcome in outcomes if COLUMNS[1] in outcome.complaints]
    with Confined(one, root, at_once=1, keep=keep is not None) as confined:
        again = {outcome.case: outcome for outcome in confined.outcomes(late)}
    return [again.get(outcome.case, outcome) for outcome in outcomes]


def _told(outcomes: Iterable[Outcome], count: int) -> Iterator[Outcome]:
    """How far it is, where somebody looks on."""
    for number, outcome in enumerate(outcomes, 1):
        if number % 100 == 0 and os.isatty(2):
            print(f"\r{number} of {count}", end="", file=sys.stderr, flush=True)
        # The words of a case that went well may be a million, and each process that is forked later would hold them.
        yield outcome if outcome.complaints else replace(outcome, call=None)
    if os.isatty(2):
        print("\r", end="", file=sys.stderr)


def table(outcomes: Sequence[Outcome]) -> Iterator[str]:
    """A row per kind, and one of all."""
    yield f"{'kind':<15}{'cases':>7}" + "".join(f"{name:>16}" for name in COLUMNS) + f"{'peak':>10}{'longest':>10}"
    rows = {kind: [one for one in outcomes if one.case.kind == kind] for kind in KINDS}
    for name, of_kind in {**rows, "all": list(outcomes)}.items():
        if of_kind:
            counts = "".join(f"{sum(column in one.complaints for one in of_kind):>16}" for column in COLUMNS)
            peak_mb, longest_s = max(one.peak_mb for one in of_kind), max(one.wall_s for one in of_kind)
            yield f"{name:<15}{len(of_kind):>7}{counts}{peak_mb:>7.0f} MB{longest_s:>8.1f} s"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
