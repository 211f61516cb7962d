"""Sources of the machine's power for `--node-power`: a constant, RAPL, the BMC by IPMI, Slurm, or a meter of the
user's.

What is added to the GPUs' power, and what stands in its place:

    a number, rapl      the rest of the machine, on top of what the GPUs' own sensors say
    ipmi, command:CMD   the whole machine, the GPUs included
    slurm               either, as what Slurm reads it by
"""

from autocap.clock import Clock
from autocap.devices.base import PowerSource
from autocap.devices.node.meters import CommandMeter, IpmiMeter, RaplPower, SlurmMeter, is_whole
from autocap.records import NodeReading

COMMAND = "command:"


class ConstantPower(PowerSource):
    """A PowerSource that somebody has measured once. watts: of all but the GPUs."""

    whole = False
    refresh_s = None

    def __init__(self, watts: float, clock: Clock) -> None:
        self._watts, self._clock = watts, clock

    @property
    def name(self) -> str:
        return f"{self._watts:g} W"

    def read(self) -> NodeReading:
        return NodeReading(t_s=self._clock.now(), power_w=self._watts, whole=False)


def open_source(name: str, clock: Clock) -> PowerSource:
    """The source of that name, once it has given its first reading. Raises DeviceUnavailable where it gives none."""
    if name.startswith(COMMAND):
        return CommandMeter(name.removeprefix(COMMAND), clock)
    if name == "ipmi":
        return IpmiMeter(clock)
    if name == "slurm":
        return SlurmMeter(clock)
    if name == "rapl":
        return RaplPower(clock)
    return ConstantPower(float(name), clock)


def holds_gpus(name: str) -> bool:
    """Whether the source of that name reads the whole machine, the GPUs included. Raises DeviceUnavailable where Slurm
    is to say so, and does not."""
    return is_whole() if name == "slurm" else name == "ipmi" or name.startswith(COMMAND)
