"""Where a pretended cluster keeps what, and what it was told to be."""

import json
import os
import pwd
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from autocap.errors import AutocapError
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
