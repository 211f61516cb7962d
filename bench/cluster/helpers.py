"""Root's helper on each pretended node, started again when it dies: `python -m bench.cluster.helpers NODE FOLDER`."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from bench.cluster.layout import Cluster, ClusterError, found
from bench.common import waited
from bench.helper.served import Served

_READY_S, _LOOK_S = 20.0, 0.05


def start(cluster: Cluster) -> None:
    """Start one on each node, and wait until all listen. Raises ClusterError."""
    for name in cluster.names:
        with open(cluster.directory / f"helper-{name}.out", "a") as out:
            subprocess.run(
                ["setsid", "--fork", sys.executable, "-P", "-m", "bench.cluster.helpers", name, cluster.folder],
                env={**os.environ, **cluster.on_node(name)},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd="/",
                check=True,
            )
    sockets = [cluster.helper_folder(name) / "socket" for name in cluster.names]
    if waited(lambda: all(socket.exists() for socket in sockets), _READY_S, _LOOK_S) is None:
        raise ClusterError(f"not every helper listens within {_READY_S:g} s; see {cluster.folder}/helper-*.out")


def main(argv: Sequence[str]) -> int:
    """Serve one node until SIGTERM."""
    name, folder = argv
    cluster = found(Path(folder))
    over = threading.Event()
    for signum in (signal.SIGTERM, signal.SIGINT):
        signal.signal(signum, lambda signum, frame: over.set())
    with Served(cluster.helper_folder(name), cluster.directory / f"{name}.json") as served:
        served.socket.chmod(0o666)
        over.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
