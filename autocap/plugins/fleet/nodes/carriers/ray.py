"""Ray: a relay process of ours, which imports Ray so that nothing else has to, carries the lines through actors.

    channel = open_channel("auto", driver=os.getpid())  # a job that we start later descends from us

What the job's nodes are is known once `channel.job` is there: when all of its workers are.

Nothing listens for it beside what the Ray cluster has anyway, and who may join that cluster is Ray's business
(`RAY_AUTH_MODE`).
"""

import json
import os
import re
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from importlib.util import find_spec

from autocap.errors import EngineUnavailable, UsageError
from autocap.job.processes import ProcessId, import_path
from autocap.plugins.fleet.nodes.agent.finding import RayJob
from autocap.plugins.fleet.nodes.channel import Channel, EngineJob
from autocap.plugins.fleet.nodes.protocol import Target
from autocap.plugins.fleet.nodes.transport import AGENT, NO_RAY, Carrier
from autocap.text import printable

_FOUND_S, _LOOK_S = 60.0, 0.05
_NAME_IT = "start the cluster, or name it: --nodes ray:HOST:6379"
_LOGGED = re.compile(r"\[[^\]]*\] \S+:\d+: ")  # before each line of Ray's log
_ADDRESS = re.compile(r"(ray://)?[A-Za-z0-9.\[\]:-]{1,253}:\d{1,5}", re.ASCII)
_JOB_CONFIG, _OVERRIDE = "RAY_JOB_CONFIG_JSON_ENV_VAR", "RAY_OVERRIDE_JOB_RUNTIME_ENV"


def open_channel(
    address: str,
    *,
    driver: int | None = None,
    job: str | None = None,
    on: Sequence[str] = (),
    agent: Sequence[str] = AGENT,
    environ: Mapping[str, str] = os.environ,
) -> Channel:
    """The way to an agent on each node, as `command` has them. Raises EngineUnavailable where Ray is not installed."""
    known = EngineJob(id="", nodes=tuple(on)) if on else None
    argv = command(address, driver=driver, job=job, on=on, agent=agent)
    return Channel(argv, job=known, env=environment(environ))


def find(address: str, environ: Mapping[str, str] = os.environ) -> EngineJob:
    """All nodes of a cluster that offer GPUs to Ray, or where none does, all of its nodes; waits for it. Raises
    EngineUnavailable with what to do where Ray, or the cluster, is not there."""
    end_s = time.monotonic() + _FOUND_S
    with closing(Channel(command(address, agent=()), env=environment(environ))) as channel:
        try:
            while channel.job is None and time.monotonic() < end_s:
                channel.receive()
                time.sleep(_LOOK_S)
        except EngineUnavailable as error:
            said = (_LOGGED.sub("", line) for line in str(error).split(" | "))  # again and again
            raise EngineUnavailable(f"--nodes ray: {' | '.join(dict.fromkeys(said))}; {_NAME_IT}") from None
    if channel.job is None:
        raise EngineUnavailable(f"Ray at {address} has not said within {_FOUND_S:g} s which nodes it has; {_NAME_IT}")
    return channel.job


def command(
    address: str,
    *,
    driver: int | None = None,
    job: str | None = None,
    on: Sequence[str] = (),
    agent: Sequence[str] = AGENT,
) -> list[str]:
    """The relay. address: of the cluster, `auto` for the one that RAY_ADDRESS names or that runs here. driver: the
    process that is the job's driver, or an ancestor of it; job: the job's id instead; on: the names of nodes; with
    none of these, all nodes are meant. agent: without one, it only says which nodes there are. Raises EngineUnavailable
    where Ray is not installed."""
    if find_spec("ray") is None:
        raise EngineUnavailable(f"--nodes ray: {NO_RAY}")
    which = [f"--driver-pid={driver}"] if driver is not None else [f"--job={job}"] if job is not None else []
    which += [f"--on={','.join(on)}"] if on else []
    return [
        sys.executable,
        "-P",
        "-m",
        "autocap.plugins.fleet.nodes.ray_relay",
        f"--address={address}",
        *which,
        "--",
        *agent,
    ]


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """For the relay: ours without what is meant for the job's own driver."""
    ours = {name: value for name, value in environ.items() if name not in (_JOB_CONFIG, _OVERRIDE)}
    return {**ours, "PYTHONPATH": os.pathsep.join(import_path())}


def for_workers(extra: Mapping[str, str], environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """What a job's driver needs in its environment so that its workers have `extra` in theirs, which they do not
    inherit: Ray's own way for jobs that are submitted. Where the script sets one of these itself, the script's counts.

    PYTHONPATH goes before what the workers' nodes have.
    """
    config = json.loads(environ.get(_JOB_CONFIG) or "{}")
    runtime = config.setdefault("runtime_env", {})
    given = runtime.setdefault("env_vars", {})
    for name, value in extra.items():
        given.setdefault(name, f"{value}:${{PYTHONPATH}}" if name == "PYTHONPATH" else value)
    return {_JOB_CONFIG: json.dumps(config), _OVERRIDE: "1"}


class Ray:
    """A `Transport`. address: of the cluster, or nothing for the one that RAY_ADDRESS names or that runs here."""

    has_job_around = False

    def nodes(self, address: str, job: str | None) -> EngineJob:
        """As Transport has it: of the whole cluster, whose jobs are not told apart before they run."""
        if job is not None:
            raise UsageError(f"--job {job} names a Slurm job; use --nodes slurm, or drop it")
        return find(_checked(address))

    def carrier(self, address: str, job: str | None, *, driver: int | None, agent: Sequence[str]) -> Carrier:
        where = _checked(address)
        return Carrier(
            target=Target(engine="ray", job=job or ""),
            names=(),
            open=lambda: open_channel(where, driver=driver, job=job, agent=agent),
            reopen=lambda nodes: open_channel(where, on=nodes, agent=agent),
            for_workers=for_workers,
        )

    def job_here(self, target: Target, workers: Collection[ProcessId]) -> RayJob:
        return RayJob(target, workers)


def _checked(address: str) -> str:
    if address and not _ADDRESS.fullmatch(address):
        raise UsageError(
            f"--nodes ray:{printable(address)} has no such address; choose ray:ADDRESS as ray:10.0.0.1:6379"
        )
    return address or "auto"
