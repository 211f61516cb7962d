"""python -m bench tables: tables 2 and 3 of Krzywaniak et al. 2022, by the core of `autocap sweep`.

Every network on both cards is swept on the simulated device: all caps at 5 W, whole runs of as many iterations as the
paper's epoch had, power read every 0.5 s, as its authors did. A published row is met where energy and time at its cap
lie within 2 %, and where the cap that the sweep finds best is at most one step away, or its metric within 0.3 % of
that at the published cap.

With --spent, instead, a job of each is tuned while it runs: what it spends beyond the best static cap, and on what.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autocap.devices.model import profiles
from autocap.reports.summary.gains import METRICS
from autocap.sweep.summary import Panel
from bench.common import markdown
from bench.simulation.sweep import Command, sweep
from bench.strategies.curve_cases import metric_named
from bench.tables import spent
from bench.tables.fit_profiles import STEP_W, Table, profile_name, read_tables

PUBLISHED = Path(__file__).parents[1] / "data/krzywaniak2022_tables_2_3.csv"
_ROWS = {"min E": "energy", "min EDP": "edp", "min EDS(k=2.0)": "eds_2", "min EDS(k=1.5)": "eds_1.5"}
_HEADINGS = (
    *("network", "target", "power cap W", "average power W", "energy kJ", "vs default %", "time s", "vs default %"),
    *("energy, time off by %", "best cap found W", "excess %"),
)
_MOST_OFF_PCT = 2.0
_MOST_EXCESS_PCT = 0.3
_REPEATS = 5  # as published
_JITTER = 0.01
_SECONDS, _SEEDS = 400.0, 3  # of jobs that are tuned


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A published row beside what the sweep measured at its cap.

    power_w, energy_j, time_s: measured, *_pct: against the measured default. energy_off_pct, time_off_pct: against the
    published values. best_w: the cap that the sweep finds best. excess_pct: by how much the metric at the published
    cap is above that at best_w, measured.
    """

    gpu: str
    network: str
    target: str
    cap_w: float
    power_w: float
    energy_j: float
    energy_pct: float
    time_s: float
    time_pct: float
    energy_off_pct: float
    time_off_pct: float
    best_w: float
    excess_pct: float

    @property
    def values_met(self) -> bool:
        """Whether energy and time are the published ones."""
        return max(abs(self.energy_off_pct), abs(self.time_off_pct)) <= _MOST_OFF_PCT

    @property
    def cap_met(self) -> bool:
        """Whether the best cap is."""
        return abs(self.best_w - self.cap_w) <= STEP_W or self.excess_pct <= _MOST_EXCESS_PCT


def rows(table: Table, panel: Panel) -> Iterator[Row]:
    """The rows of one network on one card."""
    assert panel.baseline is not None  # every cap was run
    base = panel.baseline.measurement
    best = {one.metric: one.setting[0] for one in panel.best_by_metric}
    published = zip(table.rows, table.cap_w, table.energy_j, table.time_s, strict=True)
    for target, cap_w, energy_j, time_s in published:
        at = panel.row(float(cap_w)).measurement
        best_w, excess_pct = float(cap_w), 0.0
        if target in _ROWS:
            metric = METRICS[_ROWS[target]]
            best_w = best[_ROWS[target]]
            lowest = metric.cost(panel.row(best_w).measurement, base).value
            excess_pct = 100 * (metric.cost(at, base).value / lowest - 1)
        yield Row(
            gpu=table.gpu_name,
            network=table.network,
            target=target,
            cap_w=float(cap_w),
            power_w=at.power_w,
            energy_j=at.energy_per_iteration_j,
            energy_pct=100 * (at.energy_per_iteration_j / base.energy_per_iteration_j - 1),
            time_s=at.period_s,
            time_pct=100 * (at.period_s / base.period_s - 1),
            energy_off_pct=100 * (at.energy_per_iteration_j / float(energy_j) - 1),
            time_off_pct=100 * (at.period_s / float(time_s) - 1),
            best_w=best_w,
            excess_pct=excess_pct,
        )


def lines(found: Sequence[Row]) -> Iterator[str]:
    """The tables of both cards as the paper prints them, with how far off each row is, and what was missed."""
    for gpu in dict.fromkeys(row.gpu for row in found):
        yield from ("", f"{gpu} (simulated)", "")
        yield from markdown(*_HEADINGS)
        yield from (_line(row) for row in found if row.gpu == gpu)
    yield ""
    yield from _verdict(found)


def _line(row: Row) -> str:
    values = f"{row.energy_off_pct:+.2f}, {row.time_off_pct:+.2f}{_mark(row.values_met)}"
    if row.target not in _ROWS:
        changes, best = ("–", "–"), "– | –"
    else:
        changes = f"{row.energy_pct:+.1f}", f"{row.time_pct:+.1f}"
        best = f"{row.best_w:g} | {row.excess_pct:.2f}{_mark(row.cap_met)}"
    measured = f"{row.power_w:.1f} | {row.energy_j / 1000:.3f} | {changes[0]} | {row.time_s:.1f} | {changes[1]}"
    return f"| {row.network} | {row.target} | {row.cap_w:g} | {measured} | {values} | {best} |"


def _mark(met: bool) -> str:
    return "" if met else " ✗"


def _verdict(found: Sequence[Row]) -> Iterator[str]:
    ranked = [row for row in found if row.target in _ROWS]
    energy, times = (max(found, key=key) for key in (lambda r: abs(r.energy_off_pct), lambda r: abs(r.time_off_pct)))
    yield (
        f"energy and time within {_MOST_OFF_PCT:g} %: {sum(row.values_met for row in found)} of {len(found)} rows; "
        f"worst {abs(energy.energy_off_pct):.2f} % and {abs(times.time_off_pct):.2f} %"
    )
    yield (
        f"best cap within {STEP_W:g} W or {_MOST_EXCESS_PCT:g} % of the metric: {sum(row.cap_met for row in ranked)} "
        f"of {len(ranked)} rows; the others:"
    )
    for row in ranked:
        if not row.cap_met:
            yield (
                f"  {row.gpu}, {row.network}, {row.target}: published {row.cap_w:g} W is {row.excess_pct:.2f} % above "
                f"{row.best_w:g} W"
            )


def main(argv: Sequence[str]) -> int:
    """Sweep, and print; 1 where an energy or a time is not the published one."""
    parser = argparse.ArgumentParser(prog="python -m bench tables", description=__doc__)
    parser.add_argument("--tables", type=Path, default=PUBLISHED, metavar="TABLES.csv", help="the published rows")
    parser.add_argument("--networks", metavar="LIST", help="only these, by comma, as the tables name them")
    parser.add_argument("--repeats", type=int, default=_REPEATS, help=f"runs of each cap (default: {_REPEATS})")
    parser.add_argument("--jitter", type=float, default=_JITTER, help=f"of an iteration (default: {_JITTER:g})")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--spent", action="store_true", help="what tuned jobs spend, and on what")
    parser.add_argument("--metric", default="energy", help="of these: energy, edp, eds or eds_1.5 (default: energy)")
    parser.add_argument("--seconds", type=float, default=_SECONDS, help=f"of each, uncapped (default: {_SECONDS:g})")
    parser.add_argument("--progress", choices=("steps", "period"), default="steps", help="of each (default: steps)")
    parser.add_argument("--remembered", action="store_true", help="the second run of each: one came before")
    parser.add_argument("--seeds", type=int, default=_SEEDS, help=f"jobs of each (default: {_SEEDS})")
    args = parser.parse_args(argv)
    if args.spent:
        begin_s = time.monotonic()
        jobs = spent.Jobs(
            metric=metric_named(args.metric, 2.0),
            seconds=args.seconds,
            jitter=args.jitter,
            progress=args.progress,
            remembers=args.remembered,
        )
        for line in spent.lines(spent.every(jobs, args.seeds)):
            print(line)
        which = f"by {args.progress}, {'second runs of ' * args.remembered}jobs of {args.seconds:g} s"
        print(f"\n{args.metric}, {which}, jitter {100 * args.jitter:g} %, {time.monotonic() - begin_s:.0f} s")
        return 0
    tables = read_tables(args.tables)
    if args.networks is not None:
        wanted = args.networks.split(",")
        unknown = sorted(set(wanted) - {table.network for table in tables})
        if unknown:
            parser.error(f"--networks {unknown[0]}: choose of {', '.join(dict.fromkeys(t.network for t in tables))}")
        tables = [table for table in tables if table.network in wanted]
    begin_s = time.monotonic()
    found = [row for table in tables for row in rows(table, _swept(table, args.jitter, args.repeats, args.seed))]
    for line in lines(found):
        print(line)
    print(f"\n{args.repeats} runs of each cap, jitter {100 * args.jitter:g} %, {time.monotonic() - begin_s:.0f} s")
    return 0 if all(row.values_met for row in found) else 1


def _swept(table: Table, jitter: float, repeats: int, seed: int) -> Panel:
    iterations = round(table.samples / table.batch_size)
    profile = profiles.load(profile_name(table.gpu_name, table.network))
    return sweep(Command(profile=profile, iterations=iterations, jitter=jitter), repeats, seed)
