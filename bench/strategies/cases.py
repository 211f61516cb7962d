"""What both modes of `python -m bench strategies` have in common: a case to run, and the search that came of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from autocap.metrics import Metric
from bench.strategies.curves import Drive


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One search to run. metric, k: as `metric_named` takes them. noise: relative sd of a time, see the mode."""

    metric: str
    k: float
    strategy: str
    seed: int
    noise: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One finished search, as `--json` writes it.

    probes: trials beyond the baseline. final_cap_w: the cap held at the end, the highest where none was kept.
    regret_pct: of that cap (curves), or of the finished job, search and all, against the best static cap from the
    start (jobs). exploration_regret_pct: the trials' mean excess over the best cap. iterations, progress: of whole jobs
    only. state: what became of the search.
    """

    mode: str
    curve: str
    metric: str
    strategy: str
    seed: int
    probes: int
    final_cap_w: float
    regret_pct: float
    exploration_regret_pct: float
    iterations: int | None
    progress: str | None
    state: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Searched:
    """A row, and the search that it sums up. family: of its curve, `None` in whole jobs."""

    row: Row
    drive: Drive
    family: str | None = None


def metric_named(name: str, k: float) -> Metric:
    """The metric of that name, with k for eds. `eds_1.5` is eds with a k of its own, as in `result.json`."""
    base, _, own_k = name.partition("_")
    return Metric(name=base, k=float(own_k or k) if base == "eds" else None)


def grouped(searched: Sequence[Searched]) -> Iterator[tuple[str, str, list[Searched]]]:
    """Strategy, metric, and their searches, in the order of the first of each."""
    groups: dict[tuple[str, str], list[Searched]] = {}
    for found in searched:
        groups.setdefault((found.row.strategy, found.row.metric), []).append(found)
    return ((*names, some) for names, some in groups.items())
