"""A process that holds limits, for tests that kill or stop it: sets caps one after the other, then beats.

    python -m tests.doubles.file_device.holder STATE_DIR UUID[,UUID…] CAP[,CAP…] [options]

It says on stdout, a line each: `ready`, `set CAP`, `put back` when a beat told it so (then it sets its last cap again).
With --knob, caps are settings of that knob. The POINT of --die is `requested N`, `setting N`, `set N` or `fsync N`: the
N-th such call (from 0), at which it kills itself.
"""

import argparse
import ctypes
import os
import signal
import subprocess
import time
from contextlib import ExitStack
from pathlib import Path

import psutil

from autocap.devices.base import LimitPort
from autocap.devices.plugged import as_limits
from autocap.job.processes import identify
from autocap.job.shared_files import SharedFile
from autocap.knobs import POWER_LIMIT
from autocap.limits import Guardian
from autocap.limits.fork_server import ForkedWatchdogs
from autocap.limits.heartbeat import Heartbeat, StartWatch
from autocap.limits.keeper.process import Standby
from autocap.records import CapRange, GpuInfo
from tests.doubles.file_device import CLOCK, MODE, FileKnob, FileLimits, KeptLimits


class Fuse:
    """Kills this very process at one point of its work; both: its watchdog first."""

    def __init__(self, point: str | None, both: bool) -> None:
        self._both = both
        name, _, count = (point or "never 0").partition(" ")
        self._name, self._left = name, int(count)

    def reach(self, name: str) -> None:
        if name == self._name:
            if self._left == 0:
                for watchdog in psutil.Process().children() if self._both else ():
                    watchdog.kill()
                    watchdog.wait()
                os.kill(os.getpid(), signal.SIGKILL)
            self._left -= 1


class FusedLimits(FileLimits):
    def __init__(self, fuse: Fuse) -> None:
        self._fuse = fuse

    def requested_w(self, uuid: str) -> float | None:
        self._fuse.reach("requested")
        return super().requested_w(uuid)

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        self._fuse.reach("setting")
        super().set_limit_w(uuid, cap_w)
        self._fuse.reach("set")


class FusedKnob(FileKnob):
    def __init__(self, fuse: Fuse, name: str) -> None:
        super().__init__(name)
        self._fuse = fuse

    def set(self, uuid: str, value: float) -> None:
        self._fuse.reach("setting")
        super().set(uuid, value)
        self._fuse.reach("set")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("state_dir", type=Path)
    parser.add_argument("uuids")
    parser.add_argument("caps")
    parser.add_argument("--die")
    parser.add_argument("--both", action="store_true", help="kill the watchdog as well")
    parser.add_argument("--leak", choices=("fork", "raw fork", "exec"), help="have a child that outlives us")
    parser.add_argument("--stop-watchdog", action="store_true", help="which then hears of no cap")
    parser.add_argument("--fork-server", action="store_true", help="have the watchdog forked")
    parser.add_argument("--standby", action="store_true", help="have a standby, as a keeper has")
    parser.add_argument("--kept", action="store_true", help="have the device open, and open nothing to set it")
    parser.add_argument("--knob", choices=("clock", "mode"), help="turn that instead of the power limit")
    parser.add_argument("--emulated", type=int, metavar="PID", help="be of the kind emulated, with that job")
    parser.add_argument(
        "--shared-file", type=Path, metavar="DIRECTORY", help="make one there, and name it: `made PATH`"
    )
    args = parser.parse_args()
    fuse = Fuse(args.die, args.both)
    if args.shared_file is not None:
        shared = SharedFile(args.shared_file, 64)
        say(f"made {shared.path}")

    def sync(fd: int) -> None:
        fuse.reach("fsync")

    cap_range = CapRange(min_w=100.0, max_w=400.0, default_w=300.0)
    gpus = [GpuInfo(index=i, uuid=u, name="file", cap_range=cap_range) for i, u in enumerate(args.uuids.split(","))]
    limits: LimitPort = KeptLimits(args.uuids) if args.kept else FusedLimits(fuse)
    if args.knob is not None:
        limits = as_limits(FusedKnob(fuse, args.knob))
    start_watch: StartWatch = Heartbeat
    with ExitStack() as stack:
        if args.fork_server:
            start_watch = stack.enter_context(ForkedWatchdogs(["file"])).start
        if args.standby:
            start_watch = Standby().start
        guardian = stack.enter_context(
            Guardian(
                kind="file" if args.emulated is None else "emulated",
                gpus=gpus,
                limits=limits,
                job=None if args.emulated is None else identify(args.emulated),
                state_dir=args.state_dir,
                sync=sync,
                start_watch=start_watch,
                knob={"clock": CLOCK, "mode": MODE}.get(args.knob, POWER_LIMIT),
            )
        )
        say("ready")
        if args.leak is not None:
            leak(args.leak)
        if args.stop_watchdog:
            psutil.Process().children()[0].suspend()
        for cap_w in map(float, args.caps.split(",")):
            guardian.set_caps([cap_w] * len(gpus))
            say(f"set {cap_w:g}")
        while True:
            time.sleep(0.05)
            if guardian.beat():
                say("put back")
                guardian.set_caps([cap_w] * len(gpus))
                say(f"set {cap_w:g}")


def leak(how: str) -> None:
    """A child that outlives us by 3 s: of Python's fork, of one that Python does not know of, or of a program."""
    if how == "exec":
        subprocess.Popen(["sleep", "3"], close_fds=False, stdout=subprocess.DEVNULL)
    elif (os.fork if how == "fork" else ctypes.CDLL(None).fork)() == 0:
        os.close(1)
        time.sleep(3)
        os._exit(0)


def say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
