"""Slurm with several nodes on one machine, as root or as an ordinary user, without systemd.

As root the processes of a step are held in a cgroup where that is possible, as on real clusters: there Slurm sends a
signal to the first process of each task alone. Without, it sends it to all that descend from them.

Each node may have a network of its own, as root: a namespace that a cable joins to a bridge, and that can be cut.
"""

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from autocap.testing.nvml import CARDS_VARIABLE, plain
from bench.cluster.layout import Cluster, ClusterError
from bench.common import waited


def lacks_for_networks() -> str | None:
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


_PROGRAMS = {"munged": "munge", "slurmctld": "slurmctld", "slurmd": "slurmd", "srun": "slurm-client"}  # Debian packages
_SBIN = "/usr/sbin"  # not on an ordinary user's path
_KEY_BYTES = 128
_READY_S, _LOOK_S = 60.0, 0.2
_TELL = 3  # lines of a log
_FREEZER = Path("/sys/fs/cgroup/freezer")  # by which Slurm 22.05 holds processes under cgroups of version 1

_CONF = """\
ClusterName=pretended
SlurmctldHost={host}({controller})
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmctldPort={port}
FirstJobId={port}000
MpiDefault=none
ProctrackType=proctrack/{tracked}
TaskPlugin=task/none
TaskProlog={folder}/task_prolog
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
GresTypes=gpu
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/slurm-state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
SlurmdTimeout=30
KillWait=5
{nodes}
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""
_NODE = "NodeName={name} NodeHostname={host} NodeAddr={address} Port={port} CPUs=2 RealMemory=2000 Gres=gpu:{gpus}"


def missing() -> str | None:
    """What to install before Slurm can be started here; `None` where nothing lacks."""
    packages = [package for program, package in _PROGRAMS.items() if _path(program) is None]
    if not packages:
        return None
    return f"Slurm is not wholly installed here; on Debian or Ubuntu: apt install {' '.join(packages)}"


def start(cluster: Cluster) -> None:
    """Start the daemons, and wait until every node takes jobs. Raises ClusterError."""
    _write(cluster)
    folder = cluster.directory
    _run(
        cluster,
        "munged",
        "--foreground", "--force", f"--key-file={folder}/munge.key", f"--socket={folder}/munge.sock",
        f"--pid-file={folder}/munged.pid", f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed",
    )  # fmt: skip
    _until(cluster, (folder / "munge.sock").exists, "munged")
    start_controller(cluster)
    for name in cluster.names:
        start_node(cluster, name)
    _until(cluster, lambda: _idle(cluster) == cluster.nodes, "slurmctld")


def start_controller(cluster: Cluster) -> None:
    """Start Slurm's controller, also anew."""
    _run(cluster, "slurmctld", "-D")


def start_node(cluster: Cluster, name: str) -> None:
    """Start one node's daemon, also anew."""
    _run(cluster, "slurmd", "-D", "-N", name, before=within(cluster, name))


def _write(cluster: Cluster) -> None:
    host = socket.gethostname().split(".")[0]
    folder = cluster.directory
    nodes = [
        _NODE.format(
            name=name, host=host, port=cluster.port + number, gpus=cluster.gpus, address=_address(cluster, number)
        )
        for number, name in enumerate(cluster.names, 1)
    ]
    user = pwd.getpwuid(os.getuid()).pw_name
    in_cgroups = os.access(_FREEZER, os.W_OK)
    text = _CONF.format(
        host=host,
        user=user,
        folder=folder,
        port=cluster.port,
        controller=_address(cluster, 0),
        tracked="cgroup" if in_cgroups else "linuxproc",
        nodes="\n".join(nodes),
    )
    (folder / "slurm.conf").write_text(text)
    (folder / "cgroup.conf").write_text(f"CgroupPlugin=cgroup/v1\nCgroupMountpoint={_FREEZER.parent}\n")
    _write_gpus(cluster)
    (folder / "slurm-state").mkdir()
    for name in cluster.names:
        (folder / f"spool-{name}").mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(_KEY_BYTES))
    _write_prolog(cluster)


def _address(cluster: Cluster, number: int) -> str:
    return address(cluster, number) if cluster.networks else "127.0.0.1"


def _write_gpus(cluster: Cluster) -> None:
    """As Slurm counts them, by the numbers of their files; those of terminals stand in, which are everywhere."""
    last = cluster.gpus - 1
    lines = [f"NodeName={name} Name=gpu File=/dev/tty{f'[0-{last}]' if last else '0'}" for name in cluster.names]
    (cluster.directory / "gres.conf").write_text("\n".join(lines) + "\n")


def _write_prolog(cluster: Cluster) -> None:
    """What it prints becomes the environment of a node's tasks."""
    settings = cluster.on_node("$SLURMD_NODENAME")
    lines = ["#!/bin/sh"]
    lines += [f'echo "export {name}={value}"' for name, value in settings.items() if name != "PYTHONPATH"]
    # As a cgroup that constrains devices: what the step was not given cannot be opened.
    lines.append('cards="${SLURM_STEP_GPUS:-$SLURM_JOB_GPUS}"')
    lines.append(f'[ -z "$cards" ] || echo "export {CARDS_VARIABLE}=$cards"')
    lines.append(f'echo "export PYTHONPATH={settings["PYTHONPATH"]}${{PYTHONPATH:+:$PYTHONPATH}}"')
    prolog = cluster.directory / "task_prolog"
    prolog.write_text("\n".join(lines) + "\n")
    prolog.chmod(0o755)


def _environment(cluster: Cluster) -> dict[str, str]:
    mark = {name: value for name, value in cluster.on_node("").items() if name.startswith("PRETENDED")}
    return {**plain("SLURM_"), **mark, "SLURM_CONF": str(cluster.directory / "slurm.conf")}


def _run(cluster: Cluster, program: str, *arguments: str, before: Sequence[str] = ()) -> None:
    path = _path(program)
    assert path is not None  # nothing was missing
    with open(cluster.directory / f"{program}.out", "a") as out:
        subprocess.run(
            ["setsid", "--fork", *before, path, *arguments],  # nobody's child: it outlives us
            env=_environment(cluster),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            cwd="/",
            check=True,
        )


def _idle(cluster: Cluster) -> int:
    asked = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--format=%t"], env=_environment(cluster), capture_output=True, text=True
    )
    return asked.stdout.split().count("idle")


def _until(cluster: Cluster, done: Callable[[], bool], program: str) -> None:
    if waited(done, _READY_S, _LOOK_S) is None:
        out = cluster.directory / f"{program}.out"
        said = " / ".join(out.read_text().splitlines()[-_TELL:])
        raise ClusterError(f"{program} was not ready within {_READY_S:g} s; {out} ends with: {said or 'nothing'}")


def _path(program: str) -> str | None:
    return shutil.which(program) or shutil.which(program, path=_SBIN)
