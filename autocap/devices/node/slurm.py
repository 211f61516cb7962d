"""`--node-power slurm`: what Slurm reads of the node's power for its own books, from `scontrol show node`.

Its plugins (AcctGatherEnergyType in slurm.conf) read whole nodes (ipmi, xcc, pm_counters), CPU packages and memory
(rapl), or the GPUs, which are counted here anyway.
"""

import os
import re
from collections.abc import Mapping
from functools import partial

from autocap.clock import Clock
from autocap.devices.node.asked import AskedMeter, shell, useless
from autocap.errors import EngineUnavailable
from autocap.job import slurm

_LEAST_EVERY_S = 5.0  # between two questions: Slurm's controller answers those of all nodes
_READING = re.compile(r"CurrentWatts=(\S+)")


class SlurmMeter(AskedMeter):
    """A PowerSource: the node's power as Slurm has read it last.

    Raises DeviceUnavailable where Slurm reads none, or we run in no job of it that has this node for itself: whoever
    else computes there draws power, too.
    """

    name = "slurm"

    def __init__(self, clock: Clock, environ: Mapping[str, str] = os.environ) -> None:
        job, node = environ.get("SLURM_JOB_ID"), environ.get("SLURMD_NODENAME")
        if not job or not node:
            raise useless(
                self.name,
                "this is not on a node of a Slurm job (SLURM_JOB_ID and SLURMD_NODENAME tell); start it in the job, "
                "as srun --jobid=ID --overlap does",
            )
        self.whole = is_whole(environ)
        try:
            why = slurm.why_not_alone(environ, job, node)
            _, every_s = slurm.energy_plugins(environ)
        except EngineUnavailable as error:
            raise useless(self.name, str(error)) from error
        if why is not None:
            raise useless(self.name, why)
        if not every_s:
            raise useless(
                self.name,
                "Slurm reads power here only for its books, not between (AcctGatherNodeFreq=0); compare afterwards, "
                f"with `autocap report --slurm {job}`",
            )
        super().__init__(
            clock,
            ("scontrol", "--oneliner", "show", "node", node),
            reading=_READING,
            called="scontrol",
            every_s=max(every_s / 2, _LEAST_EVERY_S),
            needs=f"Slurm knows no power of {node}",
            start=partial(shell, env=dict(environ)),
        )


def is_whole(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether what Slurm reads holds the GPUs' power already. Raises DeviceUnavailable where it reads nothing that can
    be counted."""
    try:
        plugins, _ = slurm.energy_plugins(environ)
    except EngineUnavailable as error:
        raise useless(SlurmMeter.name, str(error)) from error
    if not plugins:
        raise useless(SlurmMeter.name, "Slurm counts no energy here (AcctGatherEnergyType is none)")
    if len(plugins) == 1 and plugins[0] in slurm.NODE_METERS:
        return True
    if plugins == ("rapl",):
        return False
    raise useless(SlurmMeter.name, _not_usable(plugins))


def _not_usable(plugins: tuple[str, ...]) -> str:
    if plugins == ("gpu",):
        return "Slurm counts only the GPUs' energy here (acct_gather_energy/gpu), and that is counted anyway"
    known = ", ".join(plugins)[:80]
    return f"what Slurm reads by {known} is no whole node and not its CPUs alone, so it cannot be added up"
