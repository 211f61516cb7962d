"""A process that plays the job of an emulated machine: `python -m autocap.testing.nvml.player [options]`.

It has no load of its own. Its iterations end when those of the simulated job do, under the caps that are in force, so
that steps and power agree. It ends with the job's last iteration.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from autocap.testing.nvml.board import FileBoard, PlayedJob
from autocap.testing.nvml.install import STATE_VARIABLE, shared_clock
from autocap.testing.nvml.physics import Physics

_LOOK_S = 0.004


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m autocap.testing.nvml.player")
    parser.add_argument("--steps", action="store_true", help="count iterations with autocap.step()")
    parser.add_argument("--grandchild", action="store_true", help="let a child of this process do it")
    parser.add_argument("--report-pid", type=int, help="the PID that the driver is to show, as of another namespace")
    parser.add_argument("--after", type=float, default=_LOOK_S, help="seconds until its first iteration begins")
    parser.add_argument("--gpus", help="one of several jobs: these cards by index, and no others")
    parser.add_argument("--profile", help="of such a job, instead of the machine's")
    parser.add_argument("--iterations", type=int, help="of such a job, instead of the machine's")
    parser.add_argument("--lines", action="store_true", help="print a line after each iteration")
    args = parser.parse_args(argv)
    if args.grandchild:
        rest = [word for word in argv if word != "--grandchild"]
        return subprocess.run([sys.executable, "-m", "autocap.testing.nvml.player", *rest], check=False).returncode
    board = FileBoard(Path(os.environ[STATE_VARIABLE]))
    start_s = shared_clock(board).now() + args.after
    if args.gpus is None:
        gpu, pid, reported = None, os.getpid(), args.report_pid or os.getpid()
        board.update(lambda state: replace(state, job_pid=pid, reported_pid=reported, start_s=start_s))
    else:
        gpus = tuple(int(word) for word in args.gpus.split(","))
        gpu = gpus[0]
        job = PlayedJob(gpus=gpus, pid=os.getpid(), start_s=start_s, profile=args.profile, iterations=args.iterations)
        board.update(lambda state: state.with_job(job))
    for done in iterations(board, gpu):
        if args.steps:
            from autocap.progress.steps.map import step

            step()
        if args.lines:
            print(f"iteration {done}", flush=True)
    return 0


def iterations(board: FileBoard, gpu: int | None = None) -> Iterator[int]:
    """The number of each iteration of a job that has registered, once it has ended, until the last. gpu: one of its
    cards, `None` where it is the only job."""
    physics, done = Physics(shared_clock(board)), 0
    while True:
        physics.sync(board.whole()[0])
        ended = physics.ended(gpu)  # before the steps are read: the last one may end in between
        reading = physics.steps(gpu)
        while reading is not None and done < reading.count:
            done += 1
            yield done
        if ended:
            return
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
