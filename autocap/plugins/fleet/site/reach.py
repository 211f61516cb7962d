"""How the nodes that `--nodes` names are reached for a budget."""

import sys
from collections.abc import Sequence

from autocap.plugins.fleet.config import BudgetConfig
from autocap.plugins.fleet.nodes.carriers import ray, slurm
from autocap.plugins.fleet.nodes.channel import Channel, EngineJob
from autocap.plugins.fleet.nodes.channels import Channels
from autocap.plugins.fleet.site.opening import Reached
from autocap.runlog.codec import encode
from autocap.text import printable_json

_NODE = (sys.executable, "-P", "-m", "autocap.plugins.fleet.site.node")


class SlurmReach:
    """A `Reach`: one step of the job a line."""

    def __init__(self, job: EngineJob, argv: Sequence[str]) -> None:
        self._job, self._argv = job, tuple(argv)

    def open(self, names: Sequence[str]) -> Channel | Channels:
        return slurm.open_channel(self._job.on(names), self._argv)


class RayReach:
    """A `Reach`: one relay a line."""

    def __init__(self, address: str, argv: Sequence[str]) -> None:
        self._address, self._argv = address, tuple(argv)

    def open(self, names: Sequence[str]) -> Channel:
        return ray.open_channel(self._address, on=names, agent=self._argv)


def reached(where: str, job: str | None, config: BudgetConfig) -> Reached:
    """where, job: as --nodes and --job have them. Raises UsageError, and EngineUnavailable where the engine, or the
    job, is not there."""
    engine, _, address = where.partition(":")
    if engine == "ray":
        address = address or "auto"
        return Reached(names=ray.find(address).nodes, reach=RayReach(address, node_command(config)))
    found = slurm.find(job)
    return Reached(names=found.nodes, reach=SlurmReach(found, node_command(config)))


def node_command(config: BudgetConfig) -> tuple[str, ...]:
    """What runs on each node: the words, policy and record of the budget are the site's."""
    of_node = BudgetConfig(
        watts=None,
        gpus=config.gpus,
        actuator=config.actuator,
        node_power=config.node_power,
        floor_w=config.floor_w,
        group=config.group,
    )
    return (*_NODE, "--config", printable_json(encode(of_node)))
