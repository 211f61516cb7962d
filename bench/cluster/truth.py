"""What a job on emulated machines really did, played again from their boards, and whether its steps were counted so."""

import csv
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from autocap.testing.nvml import FileBoard
from autocap.testing.nvml.install import shared_clock
from autocap.testing.nvml.physics import Physics
from bench.cluster.job import times_of

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
