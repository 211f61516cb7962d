"""The process beside a run that logs it to one tracker: `python -m autocap.plugins.trackers TRACKER RUN_DIR`.

It prints nothing, whatever a library says, but one line on standard error where it fails.
"""

import os
import signal
import sys
import threading
from pathlib import Path
from types import FrameType

from autocap.plugins.trackers.rows import follow
from autocap.plugins.trackers.sink import new_sink
from autocap.text import printable

_NICE = 10  # the job's own processes come first
_SERVICE = "WANDB_SERVICE"  # of a training script: a process of its own has a service of its own
_LONGEST = 300  # characters of a reason


def main(tracker: str, run_dir: Path) -> int:
    """The whole life of such a process, until the run has ended or SIGTERM says that we are to; its exit status."""
    told = os.dup(2)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(null, stream)
    stop = threading.Event()

    def end(signum: int, frame: FrameType | None) -> None:
        stop.set()

    signal.signal(signal.SIGTERM, end)
    os.nice(_NICE)
    os.environ.pop(_SERVICE, None)
    try:
        follow(run_dir, new_sink(tracker, run_dir), stop)
    except Exception as error:  # noqa: BLE001 - whatever a library raises, it is said
        words = printable(" ".join(f"{type(error).__name__}: {error}".split()))
        os.write(told, f"{words[:_LONGEST]}\n".encode())
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
