"""The processes of a pretended cluster, found by the mark in their environment, whoever their parents are by now."""

import os
import signal
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from autocap.job.processes import ProcessId, identify
from autocap.testing.nvml import STATE_VARIABLE
from bench.cluster.layout import MARK, Cluster, ClusterError

_LEAVE_S, _GONE_S, _LOOK_S = 3.0, 10.0, 0.05


def of_cluster(cluster: Cluster) -> list[ProcessId]:
    """All of them, who looks left out."""
    return list(found(f"{MARK}={cluster.folder}", [_log(cluster, name) for name in cluster.names]))


def of_node(cluster: Cluster, name: str) -> list[ProcessId]:
    """Those of one node, its daemon's too."""
    return list(found(f"{STATE_VARIABLE}={cluster.directory / name}.json", [_log(cluster, name)]))


def _log(cluster: Cluster, name: str) -> str:
    """Which slurmd and each slurmstepd of a node hold open; the latter write over their environment."""
    return str(cluster.directory / f"slurmd-{name}.log")


def found(setting: str, logs: Collection[str] = ()) -> Iterator[ProcessId]:
    """Those that have a setting in their environment, or are Slurm's and hold one of these logs."""
    wanted = os.fsencode(setting)
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        process, place = identify(int(entry)), Path("/proc", entry)
        with suppress(OSError):
            marked = wanted in (place / "environ").read_bytes().split(b"\0")
            if (marked or _holds(place, logs)) and process is not None and process.is_alive():
                yield process


def _holds(place: Path, logs: Collection[str]) -> bool:
    if not (place / "comm").read_text().startswith("slurm"):
        return False
    return any(os.readlink(descriptor) in logs for descriptor in (place / "fd").iterdir())


def command(process: ProcessId) -> str:
    """How it was started; empty where it has ended."""
    with suppress(OSError):
        return Path(f"/proc/{process.pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def is_shell(process: ProcessId) -> bool:
    """Whether it is one that only waits for the command that it was given."""
    return command(process).startswith("/bin/sh ")


def send(process: ProcessId, signum: int) -> None:
    """A signal, unless the process has ended."""
    if process.is_alive():
        with suppress(ProcessLookupError):
            os.kill(process.pid, signum)


def end(cluster: Cluster) -> None:
    """End all processes of a cluster: those that do not leave when asked are killed. Raises ClusterError where one
    stays."""
    begun_s = time.monotonic()
    asked: set[ProcessId] = set()
    while running := of_cluster(cluster):
        late_s = time.monotonic() - begun_s
        if late_s > _GONE_S:
            raise ClusterError(f"process {running[0].pid} ({command(running[0])}) of the cluster does not end")
        for process in running:
            if late_s > _LEAVE_S:
                send(process, signal.SIGKILL)
            elif process not in asked:
                send(process, signal.SIGTERM)
                send(process, signal.SIGCONT)
                asked.add(process)
        time.sleep(_LOOK_S)
