"""How busy a job keeps the CPUs that it may use: what stands in for a GPU's load."""

import math
import os
from collections.abc import Iterator
from pathlib import Path

_MEMORY_S = 0.05  # long against the clock's errors at the edges of a slice, short against the sensor's update
_LOOK_S = 1.0  # of running, over which the job's breadth is looked at
_BUSY_SHARE = 0.8  # the quantile of the rate that counts as its breadth: idle and single-threaded phases lie below


class Activity:
    """The share of the CPUs that the job keeps busy when it is at work, over the last moments it could run; 0 to 1.

    A job of one thread on a large machine keeps its emulated GPU as busy as one that uses every core: what counts is
    its own breadth, the most CPUs that it kept busy in any second, in whole CPUs.
    """

    def __init__(self) -> None:
        self._rate = 0.0  # CPU seconds per second
        self._carried_s = 0.0
        self._breadth = 1
        self._looked_s = 0.0
        self._rates: list[float] = []

    def spend(self, run_s: float, cpu_s: float) -> None:
        """Seconds in which the job could run, and the CPU seconds that it used.

        In a stop, pass 0 and what it still used: that counts with the next run.
        """
        self._carried_s += cpu_s
        if run_s > 0:
            keep = math.exp(-run_s / _MEMORY_S)
            rate = self._carried_s / run_s
            self._rate = keep * self._rate + (1.0 - keep) * rate
            self._carried_s = 0.0
            self._look(run_s, rate)

    def share(self, cpus: float) -> float:
        """The activity, where no more than `cpus` may be used."""
        return min(max(self._rate / min(self._breadth, cpus), 0.0), 1.0)

    def _look(self, run_s: float, rate: float) -> None:
        self._rates.append(rate)
        self._looked_s += run_s
        if self._looked_s >= _LOOK_S:
            busy = sorted(self._rates)[int(_BUSY_SHARE * (len(self._rates) - 1))]
            self._breadth = max(self._breadth, round(busy))
            self._rates, self._looked_s = [], 0.0


def usable_cpus(pid: int, proc: Path = Path("/proc"), cgroups: Path = Path("/sys/fs/cgroup")) -> float:
    """How many CPUs a process may keep busy: its affinity, or a quota of its control groups where that is less.

    Raises OSError when the process is gone.
    """
    allowed = len(os.sched_getaffinity(pid))
    return min([float(allowed), *_quotas(pid, proc, cgroups)])


def _quotas(pid: int, proc: Path, cgroups: Path) -> Iterator[float]:
    """The CPU quotas on the way from a process's group up to the root, versions 1 and 2; in CPUs."""
    for line in (proc / str(pid) / "cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            mounts, read = (cgroups, cgroups / "unified"), _quota_v2
        elif "cpu" in controllers.split(","):
            mounts, read = (cgroups / "cpu", cgroups / controllers), _quota_v1
        else:
            continue
        inside = Path(group.lstrip("/"))
        for mount in mounts:
            for folder in (inside, *inside.parents):
                quota = read(mount / folder)
                if quota is not None:
                    yield quota


def _quota_v2(folder: Path) -> float | None:
    numbers = _numbers(folder / "cpu.max")  # "max 100000" where there is none
    return numbers[0] / numbers[1] if len(numbers) == 2 else None


def _quota_v1(folder: Path) -> float | None:
    numbers = _numbers(folder / "cpu.cfs_quota_us") + _numbers(folder / "cpu.cfs_period_us")  # -1 where there is none
    return numbers[0] / numbers[1] if len(numbers) == 2 and numbers[0] > 0 else None


def _numbers(file: Path) -> list[int]:
    try:
        words = file.read_text().split()
    except OSError:  # the root has none, and a container may not see its own group: no limit that we know of
        return []
    return [int(word) for word in words if word.lstrip("-").isdigit()]
