"""Which engine carries the messages to the nodes that `--nodes` names."""

import os

from autocap.cluster.carriers import ray, slurm
from autocap.cluster.place import Carrier
from autocap.cluster.protocol import Target


def carrier(where: str, job: str | None) -> Carrier:
    """where: as --nodes has it. job: as --job has it; `None` for the Slurm job around us, and of Ray for one that we
    start.

    Raises UsageError where there is none, and EngineUnavailable where the engine is not there.
    """
    engine, _, address = where.partition(":")
    return _by_ray(address or "auto", job) if engine == "ray" else _by_slurm(job)


def _by_slurm(job: str | None) -> Carrier:
    found = slurm.find(job)
    return Carrier(
        target=Target(engine="slurm", job=found.id),
        names=found.nodes,
        open=lambda: slurm.open_channel(found),
    )


def _by_ray(address: str, job: str | None) -> Carrier:
    return Carrier(
        target=Target(engine="ray", job=""),
        names=(),
        open=lambda: ray.open_channel(address, driver=os.getpid() if job is None else None, job=job),
        for_workers=ray.for_workers,
    )
