"""python -m bench period: how often the detector is right, how precise, and how well it knows; beside plain methods."""

import argparse
import time
from collections.abc import Iterable, Sequence

import numpy as np

from bench.common import add_json, add_seeds, seeds_of, write_json
from bench.period import cases as period_cases
from bench.period import evidence as period_evidence
from bench.period import following as period_following
from bench.period import jobs as period_jobs
from bench.period import real_cases as real_cases
from bench.period.cases import OURS, RIVALS, SLOWDOWNS, Row
from bench.period.evidence import Found
from bench.period.real_cases import RealRow
from bench.period.real_signals import FAMILIES
from bench.period.signals import DISTURBANCES, JITTERS, NULLS, SENSORS, WAVEFORMS

_RIGHT = 0.03
_REPEATS = 8  # signals of each real-like family and window
_FLAT = "near-flat"
_HEADER = ("", "signals", "called %", "right %", "multiple %", "median %", "p99 %", "within 2σ %", "ms")


def main(argv: list[str]) -> int:
    """Run the benchmark and print its tables; the exit status."""
    parser = _parser()
    options = parser.parse_args(argv)
    if options.known_window and options.real is None:
        parser.error("--known-window goes with --real: other signals always come with their sensor")
    seeds, begin_s = seeds_of(options), time.monotonic()
    lines, rows, noun = _played(options, seeds)
    print("\n".join(lines))
    count = f"{len(rows)} {noun}, " if noun else ""
    print(f"\n{count}seeds {seeds.start} to {seeds.stop - 1}, {time.monotonic() - begin_s:.0f} s")
    if noun:
        write_json(options.json, rows)
    return 0


def _played(options: argparse.Namespace, seeds: range) -> tuple[list[str], Sequence[Row | Found | RealRow], str]:
    """The tables that are asked for, the rows that they are made of, and what these are."""
    if options.following:
        return period_following.main(seeds, quick=options.quick), (), ""
    if options.jobs:
        return period_jobs.main(seeds, quick=options.quick), (), ""
    if options.real is not None:
        names = options.real or [family.name for family in FAMILIES]
        repeats = 1 if options.quick else _REPEATS
        found = list(real_cases.rows(seeds, repeats, names, known=options.known_window))
        return real_cases.report(found), found, "signals"
    if not options.rivals:
        columns = options.columns or period_evidence.COLUMNS
        seen = period_evidence.found(seeds, *((1, 2) if options.quick else (6, 56)), columns=columns)
        return period_evidence.report(seen), seen, "windows"
    periods, stride, repeats = (1, 3, 1) if options.quick else (3, 1, 10)
    rows = list(period_cases.absolute(seeds, periods, stride))
    rows += period_cases.ratios(seeds, periods, stride)
    rows += period_cases.nulls(seeds, repeats)
    return report(rows), rows, "results"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench period", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a smaller grid, under 30 s")
    parser.add_argument(
        "--rivals", action="store_true", help="beside plain methods, by waveform, jitter and disturbance"
    )
    parser.add_argument("--columns", nargs="+", choices=period_evidence.COLUMNS, help="only these of the first tables")
    parser.add_argument("--following", action="store_true", help="periods followed while a cap is held, some minutes")
    parser.add_argument("--jobs", action="store_true", help="whole jobs tuned by their period alone, minutes")
    parser.add_argument(
        "--real",
        nargs="*",
        metavar="FAMILY",
        type=_family,
        help="signals like those of real cards instead, some minutes; all families, or those named",
    )
    parser.add_argument(
        "--known-window", action="store_true", help="with --real: the detector knows what a reading averages over"
    )
    add_seeds(parser, 1, "repeats of the whole grid", 1000)
    add_json(parser)
    return parser


def _family(name: str) -> str:
    known = [family.name for family in FAMILIES]
    if name not in known:
        raise argparse.ArgumentTypeError(f"no family '{name}'; there are {', '.join(known)}")
    return name


def report(rows: Sequence[Row]) -> list[str]:
    """The tables, line by line."""
    within = [row for row in rows if _in_reach(row)]
    shaped = [row for row in within if row.waveform != _FLAT]
    ours = [row for row in within if row.method == OURS]
    lines = ["Period of 3 updates or more, jitter up to 3 %, undisturbed, 12 cycles or more; multiples count as right"]
    lines += table([(method, [row for row in within if row.method == method]) for method in (OURS, *RIVALS)])
    lines += ["", "The same without the near-flat waveform"]
    lines += table([(method, [row for row in shaped if row.method == method]) for method in (OURS, *RIVALS)])
    lines += ["", "Ours by waveform, sensor and jitter"]
    lines += table(
        [
            *((name, [row for row in ours if row.waveform == name]) for name in WAVEFORMS),
            *((name, [row for row in ours if row.sensor == name]) for name in SENSORS),
            *((f"jitter {jitter:.0%}", _jittered(rows, jitter)) for jitter in JITTERS),
        ]
    )
    lines += ["", "Disturbed, jitter 1 %, against the mean iteration time realised in the window"]
    lines += table(
        [
            (f"{method}, {name}", _disturbed(rows, method, name))
            for name in DISTURBANCES[1:]
            for method in (OURS, *RIVALS)
        ]
    )
    lines += ["", "Ratio of two caps"]
    ratios = [row for row in rows if row.kind == "ratio"]
    lines += table(
        [(f"+{slowdown - 1:.0%}", [row for row in ratios if row.slowdown == slowdown]) for slowdown in SLOWDOWNS]
        + [("all", ratios)],
        quantile=0.95,
    )
    lines += ["", "Nothing repeats: called periodic, %"]
    lines += nulls_table([row for row in rows if row.kind == "null"])
    lines += ["", _cpu(rows)]
    return lines


def table(groups: Iterable[tuple[str, Sequence[Row]]], quantile: float = 0.99) -> list[str]:
    """One line a group."""
    header = tuple(title.replace("p99", f"p{100 * quantile:.0f}") for title in _HEADER)
    lines = [f"{header[0]:26}" + "".join(f"{title:>12}" for title in header[1:])]
    for name, rows in groups:
        if rows:
            lines.append(f"{name:26}" + "".join(f"{cell:>12}" for cell in _cells(rows, quantile)))
    return lines


def _cells(rows: Sequence[Row], quantile: float) -> list[str]:
    claims = [row for row in rows if row.called and row.error is not None]
    errors = np.array([abs(row.error or 0.0) for row in claims])
    right = errors < _RIGHT
    cells = [str(len(rows)), f"{100 * sum(row.called for row in rows) / len(rows):.1f}"]
    if not claims:
        return [*cells, *["-"] * 5, f"{_milliseconds(rows):.1f}"]
    stated = [(abs(row.error or 0.0), row.rel_stderr) for row in claims if row.rel_stderr is not None]
    covered = [error <= 2 * stderr for error, stderr in stated]
    return [
        *cells,
        f"{100 * right.mean():.2f}",
        f"{100 * np.mean([row.multiple > 1 for row in claims]):.1f}",
        f"{100 * float(np.median(errors)):.3f}",
        f"{100 * float(np.quantile(errors, quantile)):.2f}",
        f"{100 * float(np.mean(covered)):.1f}" if covered else "-",
        f"{_milliseconds(rows):.1f}",
    ]


def nulls_table(rows: Sequence[Row]) -> list[str]:
    """One line per kind of noise, one column per method."""
    methods = (OURS, *RIVALS)
    lines = [f"{'':26}" + "".join(f"{method:>18}" for method in methods)]
    for kind in (*NULLS, "all"):
        cells = [_called([r for r in rows if r.method == method and kind in (r.waveform, "all")]) for method in methods]
        lines.append(f"{kind:26}" + "".join(f"{cell:>18}" for cell in cells))
    return lines


def _called(rows: Sequence[Row]) -> str:
    return f"{100 * sum(row.called for row in rows) / len(rows):.1f} of {len(rows)}" if rows else "-"


def _milliseconds(rows: Sequence[Row]) -> float:
    return 1000 * float(np.mean([row.cpu_s for row in rows]))


def _in_reach(row: Row) -> bool:
    return row.kind == "absolute" and row.updates >= 3 and row.jitter <= 0.03 and row.disturbance == "none"


def _jittered(rows: Sequence[Row], jitter: float) -> list[Row]:
    ours = [row for row in rows if row.kind == "absolute" and row.method == OURS and row.disturbance == "none"]
    return [row for row in ours if row.updates >= 3 and row.jitter == jitter]


def _disturbed(rows: Sequence[Row], method: str, name: str) -> list[Row]:
    return [row for row in rows if row.method == method and row.disturbance == name and row.updates >= 3]


def _cpu(rows: Sequence[Row]) -> str:
    ours = [row.cpu_s for row in rows if row.method == OURS and row.kind != "unlocked"]
    return f"CPU per call: mean {1000 * np.mean(ours):.0f} ms, worst {1000 * max(ours):.0f} ms"
