"""Which engine carries the messages to the nodes that `--nodes` names."""

import os
from collections.abc import Sequence

from autocap.errors import EngineUnavailable
from autocap.plugins.fleet.nodes.carriers import AGENT, ray, slurm
from autocap.plugins.fleet.nodes.place import Carrier, ClusterPlace, nowhere
from autocap.plugins.fleet.nodes.protocol import Target
from autocap.plugins.fleet.nodes.retried import RetriedChannel


def place(where: str, job: str | None, pid: int | None = None, *, begins: bool) -> ClusterPlace:
    """Where the job of `run` and `attach` is. pid: of a process that asked to be tuned. begins: we start the job, which
    nothing keeps from running: untuned, where its nodes cannot be told.

    Raises as `carrier` does.
    """
    try:
        return ClusterPlace(carrier(where, job), pid)
    except EngineUnavailable as error:
        if not begins:
            raise
        return nowhere(error)


def carrier(where: str, job: str | None, *, agent: Sequence[str] = AGENT, ours: bool = True) -> Carrier:
    """where: as --nodes has it. job: as --job has it; `None` for the Slurm job around us, and of Ray for one that we
    start, or where it is not to be ours for the whole cluster. agent: what runs on each node.

    Raises UsageError where there is none, and EngineUnavailable where the engine is not there.
    """
    engine, _, address = where.partition(":")
    driver = os.getpid() if ours and job is None else None
    return _by_ray(address or "auto", job, driver, agent) if engine == "ray" else _by_slurm(job, agent)


def _by_slurm(job: str | None, agent: Sequence[str]) -> Carrier:
    found = slurm.find(job)
    return Carrier(
        target=Target(engine="slurm", job=found.id),
        names=found.nodes,
        open=lambda: RetriedChannel(lambda: slurm.open_channel(found, agent)),
        reopen=lambda nodes: slurm.open_channel(found.on(nodes), agent),
    )


def _by_ray(address: str, job: str | None, driver: int | None, agent: Sequence[str]) -> Carrier:
    return Carrier(
        target=Target(engine="ray", job=job or ""),
        names=(),
        open=lambda: ray.open_channel(address, driver=driver, job=job, agent=agent),
        reopen=lambda nodes: ray.open_channel(address, on=nodes, agent=agent),
        for_workers=ray.for_workers,
    )
