"""A process that plays the job of an emulated machine: `python -m bench.nvml_emulation.player [options]`.

It has no load of its own. Its iterations end when those of the simulated job do, under the caps that are in force, so
that steps and power agree. It ends with the job's last iteration.
"""

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bench.nvml_emulation.board import FileBoard
from bench.nvml_emulation.install import STATE_VARIABLE, shared_clock
from bench.nvml_emulation.physics import Physics

_LOOK_S = 0.004


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.nvml_emulation.player")
    parser.add_argument("--steps", action="store_true", help="count iterations with autocap.step()")
    parser.add_argument("--grandchild", action="store_true", help="let a child of this process do it")
    parser.add_argument("--report-pid", type=int, help="the PID that the driver is to show, as of another namespace")
    parser.add_argument("--after", type=float, default=_LOOK_S, help="seconds until its first iteration begins")
    parser.add_argument("--lines", action="store_true", help="print a line after each iteration")
    args = parser.parse_args(argv)
    if args.grandchild:
        rest = [word for word in argv if word != "--grandchild"]
        return subprocess.run([sys.executable, "-m", "bench.nvml_emulation.player", *rest], check=False).returncode
    play(FileBoard(Path(os.environ[STATE_VARIABLE])), args.steps, args.lines, args.report_pid, args.after)
    return 0


def play(board: FileBoard, steps: bool, lines: bool, report_pid: int | None, after_s: float) -> None:
    """Register as the job, and do its iterations."""
    clock = shared_clock(board)
    board.update(
        lambda state: replace(
            state, job_pid=os.getpid(), reported_pid=report_pid or os.getpid(), start_s=clock.now() + after_s
        )
    )
    physics, done = Physics(clock), 0
    while True:
        physics.sync(board.read())
        ended = physics.ended()  # before the steps are read: the last one may end in between
        reading = physics.steps()
        while reading is not None and done < reading.count:
            done += 1
            if steps:
                import autocap

                autocap.step()
            if lines:
                print(f"iteration {done}", flush=True)
        if ended:
            return
        time.sleep(_LOOK_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
