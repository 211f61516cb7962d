"""A network for each pretended node, as root: a namespace that a cable joins to a bridge, and that can be cut."""

import shutil
import subprocess

from bench.cluster.layout import Cluster


def missing() -> str | None:
    """What lacks; `None` where nothing does."""
    absent = [name for name in ("ip", "nsenter", "unshare") if shutil.which(name) is None]
    if absent:
        return f"{', '.join(absent)} not installed"
    is_permitted = subprocess.run(["unshare", "--net", "true"], capture_output=True).returncode == 0
    return None if is_permitted else "networks can be made by root alone"


def address(cluster: Cluster, number: int) -> str:
    """Of a node, from 1 on; 0 is what is on none."""
    return f"10.{cluster.port >> 8}.{cluster.port & 255}.{number + 1}"


def within(cluster: Cluster, name: str) -> list[str]:
    """Before the command of what is to be in the network of a node."""
    return ["nsenter", f"--net=/run/netns/{_space(cluster, name)}"] if cluster.networks else []


def lay(cluster: Cluster) -> None:
    """Raises CalledProcessError where that is not permitted."""
    bridge = _bridge(cluster)
    _ip("link", "add", bridge, "type", "bridge")
    _ip("address", "add", f"{address(cluster, 0)}/24", "dev", bridge)
    _ip("link", "set", bridge, "up")
    for number, name in enumerate(cluster.names, 1):
        space, cable = _space(cluster, name), _cable(cluster, name)
        _ip("netns", "add", space)
        _ip("link", "add", cable, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("link", "set", cable, "master", bridge, "up")
        _ip("-n", space, "link", "set", "lo", "up")
        _ip("-n", space, "address", "add", f"{address(cluster, number)}/24", "dev", "eth0")
        _ip("-n", space, "link", "set", "eth0", "up")


def take_away(cluster: Cluster) -> None:
    """Also what is there only in part."""
    for name in cluster.names:
        _ip("link", "del", _cable(cluster, name), check=False)
        _ip("netns", "del", _space(cluster, name), check=False)
    _ip("link", "del", _bridge(cluster), check=False)


def cut(cluster: Cluster, name: str) -> None:
    """Nothing gets from or to a node, until `join`."""
    _ip("link", "set", _cable(cluster, name), "down")


def join(cluster: Cluster, name: str) -> None:
    """The opposite."""
    _ip("link", "set", _cable(cluster, name), "up")


def _ip(*words: str, check: bool = True) -> None:
    subprocess.run(["ip", *words], check=check, capture_output=True)


def _bridge(cluster: Cluster) -> str:
    return f"acb{cluster.port}"


def _cable(cluster: Cluster, name: str) -> str:
    return f"ac{cluster.port}-{cluster.names.index(name) + 1}"


def _space(cluster: Cluster, name: str) -> str:
    return f"ac{cluster.port}-{name}"
