"""A Slurm cluster of pretended nodes on this machine: real slurmctld, slurmd and srun, without cgroups.

Root is not needed. Debian's build allows several slurmd on one host. All of it lives in one folder, and ends with the
context.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

PROGRAMS = ("srun", "slurmctld", "slurmd", "munged", "scontrol", "sbatch")
_SBIN = "/usr/sbin:/sbin:/usr/local/sbin"
_START_S = 60.0

_CONF = """\
ClusterName=fake
SlurmctldHost={host}(127.0.0.1)
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge.sock
CredType=cred/munge
SlurmctldPort={port}
MpiDefault=none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SwitchType=switch/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmdSpoolDir={folder}/spool-%n
StateSaveLocation={folder}/state
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SlurmdParameters=config_overrides
SlurmdTimeout=30
KillWait=5
GresTypes=gpu
NodeName=DEFAULT CPUs=2 RealMemory=2000 Gres=gpu:2 State=UNKNOWN
"""


def missing() -> str | None:
    """Which of Slurm's programs is not installed."""
    absent = [name for name in PROGRAMS if shutil.which(name, path=_path()) is None]
    return f"{', '.join(absent)} not installed" if absent else None


@contextmanager
def fake_slurm(folder: Path, *, nodes: int) -> Iterator[dict[str, str]]:
    """The environment in which srun and the others meet a cluster of that many nodes, `node1` and so on, once all of
    them are idle."""
    environment = {**os.environ, "PATH": _path(), "SLURM_CONF": f"{folder}/slurm.conf"}
    for name in [name for name in environment if name.startswith("SLURM_") and name != "SLURM_CONF"]:
        del environment[name]
    _write(folder, nodes)
    started: list[subprocess.Popen[bytes]] = []
    try:
        started.append(_start(environment, folder, *_munged(folder)))
        _wait(lambda: (folder / "munge.sock").exists(), "munged does not listen", folder)
        started.append(_start(environment, folder, "slurmctld", "-D"))
        for number in range(1, nodes + 1):
            started.append(_start(environment, folder, "slurmd", "-N", f"node{number}", "-D"))
        _wait(lambda: _idle(environment) == nodes, f"the {nodes} nodes do not become idle", folder)
        yield environment
    finally:
        subprocess.run(["scancel", "--state=running"], env=environment, timeout=20, capture_output=True, check=False)
        for process in reversed(started):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _path() -> str:
    return f"{os.environ.get('PATH', '')}:{_SBIN}"


def _write(folder: Path, nodes: int) -> None:
    host = socket.gethostname().partition(".")[0]
    (folder / "state").mkdir()
    for number in range(1, nodes + 1):
        (folder / f"spool-node{number}").mkdir()
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    ports = _free_ports(nodes + 1)
    text = _CONF.format(folder=folder, host=host, user=pwd.getpwuid(os.geteuid()).pw_name, port=ports[0])
    text += "".join(
        f"NodeName=node{number} NodeHostname={host} NodeAddr=127.0.0.1 Port={port}\n"
        for number, port in enumerate(ports[1:], 1)
    )
    text += "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES\n"
    (folder / "slurm.conf").write_text(text)
    ttys = f"NodeName=node[1-{nodes}] Name=gpu File=/dev/tty[0-1]\n"
    (folder / "gres.conf").write_text(ttys)


def _free_ports(count: int) -> list[int]:
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def _munged(folder: Path) -> tuple[str, ...]:
    named = {"key-file": "key", "socket": "sock", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    return (
        "munged",
        "--foreground",
        "--force",
        *(f"--{option}={folder}/munge.{name}" for option, name in named.items()),
    )


def _start(environment: dict[str, str], folder: Path, *command: str) -> subprocess.Popen[bytes]:
    with (folder / "started.log").open("ab") as log:
        return subprocess.Popen(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )


def _idle(environment: dict[str, str]) -> int:
    listed = subprocess.run(
        ["sinfo", "--noheader", "--Node", "--format=%N %T"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    return sum(line.endswith(" idle") for line in listed.stdout.splitlines())


def _wait(reached: Callable[[], bool], failed: str, folder: Path) -> None:
    end = time.monotonic() + _START_S
    while not reached():
        if time.monotonic() > end:
            raise AssertionError(f"{failed}: {(folder / 'started.log').read_text()[-2000:]}")
        time.sleep(0.2)
