"""How the nodes that `--nodes` names are reached for a budget."""

import sys
from collections.abc import Sequence

from autocap.plugins.fleet.manager.plan import BudgetPlan
from autocap.plugins.fleet.nodes.carriers import ray, slurm
from autocap.plugins.fleet.nodes.channel import Channel, EngineJob
from autocap.plugins.fleet.nodes.channels import Channels
from autocap.plugins.fleet.site.opening import Reached

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


def reached(where: str, job: str | None, plan: BudgetPlan) -> Reached:
    """where, job: as --nodes and --job have them. Raises UsageError, and EngineUnavailable where the engine, or the
    job, is not there."""
    engine, _, address = where.partition(":")
    if engine == "ray":
        address = address or "auto"
        return Reached(names=ray.find(address).nodes, reach=RayReach(address, node_command(plan)))
    found = slurm.find(job)
    return Reached(names=found.nodes, reach=SlurmReach(found, node_command(plan)))


def node_command(plan: BudgetPlan) -> tuple[str, ...]:
    """What runs on each node."""
    options = {
        "--gpus": None if plan.gpus is None else ",".join(plan.gpus),
        "--floor": None if plan.floor_w is None else f"{plan.floor_w:g}",
        "--actuator": plan.actuator,
        "--node-power": plan.node_power,
        "--group": plan.group,
    }
    return (*_NODE, *(word for option, value in options.items() if value is not None for word in (option, value)))
