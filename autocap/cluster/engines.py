"""Which engine carries the messages to the nodes that `--nodes` names."""

from importlib import import_module

from autocap.cluster.place import Carrier
from autocap.cluster.protocol import Target


def carrier(where: str, job: str | None) -> Carrier:
    """where: as --nodes has it. job: as --job has it, of Slurm; `None` for the job around us.

    Raises UsageError where there is none, and EngineUnavailable where the engine is not there.
    """
    engine, _, address = where.partition(":")
    way = import_module(f"autocap.cluster.carriers.{engine}")
    channel = import_module("autocap.cluster.channel").Channel
    found = way.find(job if engine == "slurm" else address or None)
    return Carrier(
        target=Target(engine=engine, job=found.id),
        names=found.nodes,
        open=lambda: channel(way.command(found), agents=len(found.nodes), env=way.environment(), told=way.told(found)),
    )
