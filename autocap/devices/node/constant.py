"""`--node-power WATTS`: the rest of the machine draws the same all the time."""

from autocap.clock import Clock
from autocap.devices.base import PowerSource
from autocap.records import NodeReading


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
