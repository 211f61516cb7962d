"""python -m bench cluster jobs: whole jobs on pretended nodes, in real time, against the oracle and one node's.

Each seed is another set of cards and another noise. Its job runs once with all cards in one machine, and once on each
engine with the same cards spread over the nodes. What is compared is the truth that only the simulation knows.
"""

import argparse
import csv
import gzip
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from autocap.clock import VirtualClock
from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.metrics import DEFAULT_K, Metric
from autocap.records import Measurement
from autocap.session.search_space import cap_grid
from autocap.testing.nvml import FileBoard
from autocap.testing.nvml.install import shared_clock
from autocap.testing.nvml.physics import Physics
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.simulated.node import SimulatedNode
from bench.cluster import runs, up
from bench.cluster.job import times_of
from bench.common import Late, add_json, add_seeds, seeds_of, write_json
from bench.pergpu import Case, truth
from bench.simulation.jobs import certain
from bench.strategies.curve_cases import metric_named


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """Of the cards of one cluster and one metric. found: at the limits found on arrival. best: at the best cap."""

    case: Case
    metric: Metric
    found: Measurement
    best: Measurement

    def regret_pct(self, cap_w: float) -> float:
        """How much worse a common cap is than the best one, percent."""
        return self._worse_pct(truth(self.case, (cap_w,) * self.case.gpus))

    def job_regret_pct(self, *, period_s: float, energy_j: float) -> float:
        """How much worse a whole job was than all of it at the best cap, percent, by what it took per iteration."""
        return self._worse_pct(certain(self.best.setting, period_s, energy_j))

    def _worse_pct(self, one: Measurement) -> float:
        best = self.metric.cost(self.best, self.found).value
        return 100 * (self.metric.cost(one, self.found).value / best - 1)


def oracle(profile: str, *, cards: int, spread: float, seed: int, metric: Metric) -> Oracle:
    """The best cap of the grid that autocap searches, for cards as `whole_machine` has them."""
    case = Case(metric=metric.name, seed=seed, profile=profile, gpus=cards, spread=spread, jitter=0.0)
    job, node = SimulatedJob(profile=profiles.load(profile)), SimulatedNode(gpus=cards)
    device = SimulatedDevice(VirtualClock(), job, node)
    default_w = job.profile.cap_range.default_w
    caps_w: Sequence[float] = cap_grid(TuneConfig(metric=metric), device.gpus, (default_w,) * cards)
    found = truth(case, (default_w,) * cards)
    costs = {one: metric.cost(one, found).value for one in (truth(case, (cap_w,) * cards) for cap_w in caps_w)}
    return Oracle(case=case, metric=metric, found=found, best=min(costs, key=lambda one: costs[one]))


_DIGIT_S = 1e-6  # of times in samples.csv.gz


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """ends_s: of the iterations, on the machines' clock. energy_j: of all cards over all of them, joules."""

    start_s: float
    ends_s: tuple[float, ...]
    energy_j: float

    @property
    def period_s(self) -> float:
        return (self.ends_s[-1] - self.start_s) / len(self.ends_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted:
    """What autocap counted. total, seen: iterations in result.json, and those that it saw from the baseline on. off_s:
    how far the time of a count lay outside of those at which the ranks counted that very iteration, at worst."""

    total: float
    seen: int
    off_s: float


def played(board: Path) -> Truth:
    """A job that has ended. board: of any of its machines."""
    file = FileBoard(board)
    state = file.whole()[0]
    assert state.start_s is not None  # it ran
    physics = Physics(shared_clock(file))
    physics.sync(state)
    ends_s = physics.ends_s()
    return Truth(start_s=state.start_s, ends_s=ends_s, energy_j=sum(physics.used_j(state.start_s, ends_s[-1])))


def counted(out: Path, result: Mapping[str, Any], boards: Sequence[Path]) -> Counted:
    """How a run counted the job. out: its run directory. boards: of all nodes."""
    rows = _rows(out)
    begun_s = next(state["start_s"] for state in result["states"] if state["name"] == "BASELINE")
    first = max(steps for t_s, steps, _ in rows if t_s <= begun_s + _DIGIT_S)
    fastest, slowest = ([ends(times) for times in _ranks(boards)] for ends in (min, max))
    middle_s = median(ahead_s(out, boards))
    off_s = [
        max(fastest[steps - 1] - (step_s - middle_s), (step_s - middle_s) - slowest[steps - 1], 0.0)
        for _, steps, step_s in rows
        if steps
    ]
    return Counted(total=result["totals"]["iterations"], seen=rows[-1][1] - first, off_s=max(off_s))


def ahead_s(out: Path, boards: Sequence[Path]) -> list[float]:
    """By how much the run's clock was ahead of the ranks' by each count, in order; its own began at some other time."""
    slowest = [max(times) for times in _ranks(boards)]
    return sorted(step_s - slowest[steps - 1] for _, steps, step_s in _rows(out) if steps)


def _ranks(boards: Sequence[Path]) -> list[tuple[float, ...]]:
    """Of each iteration, when each rank counted it."""
    ranks = [[float(line) for line in times_of(board).read_text().split()] for board in boards]
    return list(zip(*ranks, strict=False))  # a job that was ended has ranks that were ahead


def _rows(out: Path) -> list[tuple[float, int, float]]:
    """When each sample with a count was taken, the count, and its time."""
    with gzip.open(out / "samples.csv.gz", "rt") as file:
        return [
            (float(row["t_s"]), int(row["steps"]), float(row["step_t_s"]))
            for row in csv.DictReader(file)
            if row["steps"]
        ]


_ONE = "one node"
_ENGINES = (_ONE, *sorted(up.ENGINES, reverse=True))
_PROFILE = "quadro-rtx-6000/alexnet"
_ITERATIONS = 3000  # of 0.11 to 0.15 s
_LONGEST_S = 1500.0
_OFF_S = 0.01  # of a count; iterations differ by more from cap to cap
_KEPT_PCT, _BEHIND_PCT = 0.5, 0.5  # what is asked: of the kept cap, and of the whole job against one node's


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One job. kept_w: `None` where no cap was kept. kept_pct, job_pct: regrets against the oracle. ranks: how many
    iterations each did. counted: by autocap. took_s: until the last one's end. after_s: from then to autocap's."""

    where: str
    seed: int
    kept_w: float | None
    best_w: float
    kept_pct: float | None
    job_pct: float
    ranks: tuple[int, ...]
    counted: Counted
    took_s: float
    after_s: float

    @property
    def exact(self) -> bool:
        """Whether no step was lost, and none counted in another iteration's place."""
        return self.counted.total == self.counted.seen and self.counted.off_s < _OFF_S


def main(argv: Sequence[str]) -> int:
    """Run the jobs and print a row each; 1 where one is not as asked."""
    parser = argparse.ArgumentParser(prog="python -m bench cluster jobs", description=__doc__)
    up.add_options(parser)
    parser.set_defaults(profile=_PROFILE)
    parser.add_argument("--where", default=",".join(_ENGINES), metavar="A,B", help="(default: %(default)s)")
    add_seeds(parser, 1, "sets of cards", 1)
    parser.add_argument("--iterations", type=int, default=_ITERATIONS, metavar="N", help="(default: %(default)s)")
    parser.add_argument("--metric", default="energy", help="that autocap minimises (default: energy)")
    parser.add_argument("--at-once", type=int, default=3, metavar="N", help="jobs (default: 3)")
    add_json(parser, "every row")
    args = parser.parse_args(argv)
    places = args.where.split(",")
    if unknown := set(places).difference(_ENGINES):
        parser.error(f"unknown place {', '.join(sorted(unknown))}; there are {', '.join(_ENGINES)}")
    with ThreadPoolExecutor(args.at_once) as threads:
        running = [threads.submit(_played, args, where, seed) for seed in seeds_of(args) for where in places]
        rows = [one.result() for one in running]
    print("\n".join(table(rows)))
    write_json(args.json, rows)
    return int(any(complaints(rows)))


def _played(args: argparse.Namespace, where: str, seed: int) -> Row:
    metric = metric_named(args.metric, DEFAULT_K)
    cards = args.nodes * args.gpus
    judge = oracle(args.profile, cards=cards, spread=args.spread, seed=seed, metric=metric)
    with tempfile.TemporaryDirectory(prefix="acj-") as folder:
        out, options = Path(folder, "run"), ("--metric", args.metric)
        job = ("--iterations", str(args.iterations))
        if where == _ONE:
            board = Path(folder, "machine.json")
            up.create([board], up.whole_machine(args.profile, cards=cards, spread=args.spread, seed=seed))
            run = runs.on_one_node(board, out, options, job)
            return _row(run, where, seed, judge, [board])
        cluster = up.cluster_of(argparse.Namespace(**{**vars(args), "engine": where}), Path(folder, "c"))
        with up.started(cluster):
            up.new_boards(cluster, seed)
            with runs.allocation(cluster) as allocated:
                run = runs.on_cluster(cluster, allocated, out, options, job)
                return _row(run, where, seed, judge, cluster.boards)


def _row(run: runs.Started, where: str, seed: int, judge: Oracle, places: Sequence[Path]) -> Row:
    status, over_s = run.wait(_LONGEST_S), time.monotonic()
    ranks = run.ranks()
    if status != 0 or not ranks:
        raise Late(f"the job on {where} ended with {status}: {run.told()}")
    result, truth = run.result(), played(places[0])
    kept_w = None if result["chosen"] is None else float(result["chosen"]["cap_w"][0])
    return Row(
        where=where,
        seed=seed,
        kept_w=kept_w,
        best_w=judge.best.setting[0],
        kept_pct=None if kept_w is None else judge.regret_pct(kept_w),
        job_pct=judge.job_regret_pct(period_s=truth.period_s, energy_j=truth.energy_j / len(truth.ends_s)),
        ranks=tuple(rank.steps for rank in ranks),
        counted=counted(run.out, result, places),
        took_s=truth.ends_s[-1] - truth.start_s,
        after_s=over_s - FileBoard(places[0]).read().origin_s - truth.ends_s[-1],
    )


def table(rows: Sequence[Row]) -> Iterator[str]:
    """A line a job, as Markdown, and what is not as asked."""
    yield (
        "| seed | where | cap kept, W | best, W | kept cap's regret % | whole job's % | beyond one node's | "
        "iterations of the ranks | counted / of | worst count off, ms | job s | over after, s |"
    )
    yield "|" + "---|" * 12
    for row in sorted(rows, key=lambda row: (row.seed, _ENGINES.index(row.where))):
        kept = ("–", "–") if row.kept_w is None else (f"{row.kept_w:g}", f"{row.kept_pct:.2f}")
        behind = _behind_pct(row, rows)
        done = ", ".join(str(steps) for steps in sorted(set(row.ranks)))
        yield (
            f"| {row.seed} | {row.where} | {kept[0]} | {row.best_w:g} | {kept[1]} | {row.job_pct:.2f} | "
            f"{'–' if behind is None else f'{behind:+.2f}'} | "
            f"{done} | {row.counted.total:g} / {row.counted.seen} | "
            f"{1000 * row.counted.off_s:.0f} | {row.took_s:.0f} | {row.after_s:.1f} |"
        )
    yield ""
    yield from complaints(rows) or ["all as asked"]


def complaints(rows: Sequence[Row]) -> list[str]:
    """What is not as asked."""
    said = []
    for row in rows:
        behind, name = _behind_pct(row, rows), f"{row.where}, seed {row.seed}"
        if row.kept_pct is None or row.kept_pct > _KEPT_PCT:
            said.append(f"{name}: the cap kept is not within {_KEPT_PCT} % of the best")
        if behind is not None and behind > _BEHIND_PCT:
            said.append(f"{name}: the whole job is {behind:.2f} points behind one node's")
        if not row.exact:
            said.append(f"{name}: the steps were not counted exactly: {row.counted}")
    return said


def _behind_pct(row: Row, rows: Sequence[Row]) -> float | None:
    alone = [one.job_pct for one in rows if one.seed == row.seed and one.where == _ONE]
    return row.job_pct - alone[0] if alone and row.where != _ONE else None
