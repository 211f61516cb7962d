"""Where a pretended cluster keeps what, what it was told to be, and its processes, found by the mark in their
environment, whoever their parents are by now."""

import json
import os
import pwd
import signal
import tempfile
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from autocap.errors import AutocapError
from autocap.job.processes import ProcessId, identify
from autocap.testing.nvml import SHIM, STATE_VARIABLE
from autocap.wire.codec import decode, encode

USER = "nobody"
MARK = "PRETENDED_CLUSTER"  # in the environment of every process of a cluster: its folder
ROOT = Path(__file__).resolve().parents[2]
_LONGEST = 40  # bytes of the folder's name: Ray adds 65 to it for its sockets, which may have 107
_FILE = "cluster.json"


class ClusterError(AutocapError):
    """A cluster that cannot be started, or is not there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """engine: "slurm" or "ray". nodes, gpus: how many, and how many in each. port: of the first daemon; Slurm's nodes
    have the following ones. folder: of all of its files. helper: jobs are USER's, who may set no limit, and
    root's helper of each node does it. networks: each node has one of its own."""

    engine: str
    nodes: int
    gpus: int
    profile: str
    spread: float
    port: int
    folder: str
    helper: bool = False
    networks: bool = False

    @property
    def directory(self) -> Path:
        return Path(self.folder)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"node{number}" for number in range(1, self.nodes + 1))

    @property
    def boards(self) -> tuple[Path, ...]:
        return tuple(self.directory / f"{name}.json" for name in self.names)

    def on_node(self, name: str) -> dict[str, str]:
        """What the environment of a node's processes holds; PYTHONPATH is to be put before theirs."""
        settings = {
            MARK: self.folder,
            STATE_VARIABLE: str(self.directory / f"{name}.json"),
            "AUTOCAP_STATE_DIR": str(self.directory / f"state-{name}"),
            "PYTHONPATH": os.pathsep.join((str(SHIM), str(ROOT))),
        }
        return settings | ({"AUTOCAP_HELPER": str(self.helper_folder(name) / "socket")} if self.helper else {})

    def helper_folder(self, name: str) -> Path:
        """Of the helper of a node."""
        return self.directory / f"helper-{name}"

    def for_user(self) -> dict[str, str]:
        """What the environment of whoever uses the cluster should hold."""
        own = {"AUTOCAP_STATE_DIR": str(self.directory / "state"), "PYTHONPATH": str(ROOT)}
        if self.engine == "slurm":
            return own | {"SLURM_CONF": str(self.directory / "slurm.conf")}
        return own | ray_settings(self.directory) | {"RAY_ADDRESS": f"127.0.0.1:{self.port}"}

    def as_user(self, command: Sequence[str]) -> list[str]:
        """A command as whoever the jobs' user is."""
        if not self.helper:
            return list(command)
        return ["setpriv", f"--reuid={USER}", f"--regid={pwd.getpwnam(USER).pw_gid}", "--clear-groups", *command]

    def write(self) -> None:
        (self.directory / _FILE).write_text(json.dumps(encode(self)))


def ray_settings(directory: Path) -> dict[str, str]:
    """Nobody without the token gets in, and nothing is told to anybody."""
    return {
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN_PATH": str(directory / "ray_token"),
        "RAY_USAGE_STATS_ENABLED": "0",
    }


def default_directory() -> Path:
    return Path(tempfile.gettempdir()) / f"autocap-cluster-{os.getuid()}"


def found(directory: Path) -> Cluster:
    """The cluster of a folder. Raises ClusterError where there is none."""
    try:
        return decode(Cluster, json.loads((directory / _FILE).read_text()))
    except FileNotFoundError:
        raise ClusterError(
            f"there is no cluster in {directory}; start one with 'python -m bench cluster up', or name its folder "
            f"with --dir"
        ) from None


def require_free(directory: Path) -> None:
    """Raises ClusterError where a cluster is in a folder already, or its name is too long."""
    if (directory / _FILE).exists():
        raise ClusterError(
            f"a cluster is in {directory} already; end it with 'down', or name another folder with --dir"
        )
    if len(os.fsencode(directory)) > _LONGEST:
        raise ClusterError(
            f"the folder {directory} has {len(os.fsencode(directory))} bytes in its name, and sockets in it could not "
            f"be opened; name one of at most {_LONGEST} with --dir"
        )


_LEAVE_S, _GONE_S, _LOOK_S = 3.0, 10.0, 0.05


def of_cluster(cluster: Cluster) -> list[ProcessId]:
    """All of them, who looks left out."""
    return list(marked(f"{MARK}={cluster.folder}", [_log(cluster, name) for name in cluster.names]))


def of_node(cluster: Cluster, name: str) -> list[ProcessId]:
    """Those of one node, its daemon's too."""
    return list(marked(f"{STATE_VARIABLE}={cluster.directory / name}.json", [_log(cluster, name)]))


def _log(cluster: Cluster, name: str) -> str:
    """Which slurmd and each slurmstepd of a node hold open; the latter write over their environment."""
    return str(cluster.directory / f"slurmd-{name}.log")


def marked(setting: str, logs: Collection[str] = ()) -> Iterator[ProcessId]:
    """Those that have a setting in their environment, or are Slurm's and hold one of these logs."""
    wanted = os.fsencode(setting)
    for entry in os.listdir("/proc"):
        if not entry.isdigit() or int(entry) == os.getpid():
            continue
        process, place = identify(int(entry)), Path("/proc", entry)
        with suppress(OSError):
            is_marked = wanted in (place / "environ").read_bytes().split(b"\0")
            if (is_marked or _holds(place, logs)) and process is not None and process.is_alive():
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
