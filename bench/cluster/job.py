"""The lock-step job of a pretended cluster, one process a node: `srun -N4 -n4 python -m bench.cluster.job`.

It has no load of its own: it sleeps. Its iterations end when the slowest card of all nodes has done its part under the
limits that are in force on their boards; so what the boards show, the steps, and what every rank says agree. Each rank
counts them with autocap.step(), begins once all have come, and prints what it did.
"""

import argparse
import json
import os
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import autocap
from autocap.testing.nvml import STATE_VARIABLE, FileBoard
from autocap.testing.nvml.install import shared_clock
from autocap.testing.nvml.player import iterations as iterations_of
from bench.common import waited

_AFTER_S = 1.0  # from a rank's coming to the first iteration, in which the others see that it has come
_WAIT_S = 120.0  # for the others
_ENV = ("SLURM_JOB_ID", "SLURM_STEP_ID")


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """What a rank did. steps: iterations that it counted. took_s: over them."""

    node: str
    steps: int
    took_s: float


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.cluster.job", description=__doc__)
    add_options(parser)
    args = parser.parse_args(argv)
    print(json.dumps(asdict(play(args.iterations, name_of(os.environ)))), flush=True)
    return 0


def add_options(parser: argparse.ArgumentParser) -> None:
    """What the job is told, whatever starts it."""
    parser.add_argument("--iterations", type=int, default=1000, metavar="N", help="of the job (default: 1000)")


def name_of(environment: Mapping[str, str]) -> str:
    """Which job it is, the same for all of its ranks, and no other's."""
    return ".".join(environment.get(name, "") for name in _ENV)


def times_of(board: Path) -> Path:
    """Where the rank of a board's machine writes when it counted each step, on the system's monotonic clock."""
    return board.with_suffix(".steps")


def play(iterations: int, job: str) -> Done:
    """Register with this node's board, and do one rank's iterations. Raises TimeoutError where others do not come."""
    place = Path(os.environ[STATE_VARIABLE])
    board = FileBoard(place)
    clock = shared_clock(board)
    board.update(
        lambda state: replace(
            state,
            machine=replace(state.machine, iterations=iterations),
            job_pid=os.getpid(),
            reported_pid=os.getpid(),
            start_s=clock.now() + _AFTER_S,
            job=job,
        )
    )
    if waited(lambda: board.whole()[0].start_s is not None, _WAIT_S) is None:
        raise TimeoutError(f"not every rank of job {job} came within {_WAIT_S:g} s")
    start_s, done = board.whole()[0].start_s or 0.0, 0
    with open(times_of(place), "w", buffering=1) as times:
        for _ in iterations_of(board):
            done += 1
            autocap.step()
            print(time.monotonic(), file=times)
    return Done(node=place.stem, steps=done, took_s=clock.now() - start_s)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
