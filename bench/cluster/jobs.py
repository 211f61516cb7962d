"""python -m bench cluster jobs: whole jobs on pretended nodes, in real time, against the oracle and one node's.

Each seed is another set of cards and another noise. Its job runs once with all cards in one machine, and once on each
engine with the same cards spread over the nodes. What is compared is the truth that only the simulation knows.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from autocap.metrics import DEFAULT_K
from autocap.testing.nvml import FileBoard
from bench.cluster import boards, runs, up
from bench.cluster.oracle import Oracle, oracle
from bench.cluster.truth import Counted, counted, played
from bench.common import add_json, add_seeds, seeds_of, write_json
from bench.strategies.cases import metric_named
from bench.waiting import Late

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
            boards.create([board], boards.whole_machine(args.profile, cards=cards, spread=args.spread, seed=seed))
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
