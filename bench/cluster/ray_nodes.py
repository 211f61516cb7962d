"""Ray with several nodes on one machine: one `ray start` after the other, each with the environment of its node."""

import os
import secrets
import signal
import subprocess
import sys
from importlib.util import find_spec

from autocap.testing.nvml import plain
from autocap.testing.nvml.install import COST_VARIABLE
from bench.cluster import layout
from bench.cluster.layout import Cluster, ClusterError, ray_settings

_STORE_BYTES = 80 * 2**20  # of objects, the least that Ray takes
_START_S, _TRIES = 120.0, 3  # Ray itself gives a node up after 30 s, which a machine that does much else may take
_TELL = 5  # lines of what it said


def missing() -> str | None:
    """What to install before Ray can be started here; `None` where nothing lacks."""
    if find_spec("ray") is None:
        return "Ray is not installed here; pip install 'ray>=2.60,<3'"
    return None


def start(cluster: Cluster) -> None:
    """Start a node after the other; at the same moment some would time out. Raises ClusterError."""
    token = cluster.directory / "ray_token"
    token.touch(0o600)
    token.write_text(secrets.token_hex(32))
    for name in cluster.names:
        start_node(cluster, name)


def start_node(cluster: Cluster, name: str) -> None:
    """Start one, also again. Raises ClusterError."""
    for _ in range(_TRIES):
        told = _started(cluster, name)
        if told is None:
            return
        for left in layout.of_node(cluster, name):
            layout.send(left, signal.SIGKILL)
    raise ClusterError(f"Ray's {name} was not started in {_TRIES} tries; {told}")


def _started(cluster: Cluster, name: str) -> str | None:
    """Start one node, the first one as head; where it does not start, what is said of it."""
    address = f"127.0.0.1:{cluster.port}"
    role = (
        ("--head", f"--port={cluster.port}", "--include-dashboard=false", f"--temp-dir={cluster.directory / 'ray'}")
        if name == cluster.names[0]
        else (f"--address={address}",)
    )
    command = [
        sys.executable, "-m", "ray.scripts.scripts", "start", *role, "--node-ip-address=127.0.0.1",
        f"--node-name={name}", "--num-cpus=1", "--num-gpus=0", f"--object-store-memory={_STORE_BYTES}",
        "--disable-usage-stats",
    ]  # fmt: skip
    own = cluster.on_node(name)
    path = os.pathsep.join(filter(None, (own["PYTHONPATH"], os.environ.get("PYTHONPATH"))))
    inherited = plain("RAY_") | {key: value for key, value in os.environ.items() if key == COST_VARIABLE}
    settings = ray_settings(cluster.directory)
    log = cluster.directory / f"ray-{name}.out"
    with open(log, "w") as out:
        # To a file: the daemons keep what they are given, and a pipe would never end.
        try:
            started = subprocess.run(
                command,
                env={**inherited, **own, **settings, "PYTHONPATH": path},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                timeout=_START_S,
                start_new_session=True,
            ).returncode
        except subprocess.TimeoutExpired:
            started = None
    if started == 0:
        return None
    return f"{log} ends with: {' / '.join(log.read_text().splitlines()[-_TELL:])}"
