"""`--node-power rapl`: the CPU packages and their memory, beside the GPUs."""

from autocap.clock import Clock
from autocap.devices.base import PowerSource
from autocap.devices.powercap import EnergyCounter, Sysfs, find_packages
from autocap.errors import DeviceError, DeviceUnavailable
from autocap.records import NodeReading

_SHORTEST_S = 0.05  # counters move about every millisecond: over less than this their power is mostly noise


class RaplPower(PowerSource):
    """A PowerSource from the energy counters of all packages and DRAM zones; fans, disks and losses are not in it.

    sysfs: this machine's unless another is given. Raises DeviceUnavailable where it shows none, or we may not read it.
    """

    name = "rapl"
    whole = False
    refresh_s = 0.001

    def __init__(self, clock: Clock, sysfs: Sysfs | None = None) -> None:
        self._clock = clock
        self._notes: list[str] = []
        try:
            zones = [zone for package in find_packages(sysfs) for zone in package.energy_zones]
            self._counters = [EnergyCounter(zone, clock.now()) for zone in zones]
        except DeviceError as error:
            raise DeviceUnavailable(f"--node-power rapl: {error}") from error
        self._last_s, self._last_j = clock.now(), 0.0
        self._power_w: float | None = None
        self._in_gap = False

    def read(self) -> NodeReading:
        now_s = self._clock.now()
        energy_j = self._energy_j(now_s)
        if energy_j is None:
            self._power_w, self._last_s = None, now_s
        elif self._in_gap:
            self._last_s, self._last_j = now_s, energy_j
        elif now_s - self._last_s >= _SHORTEST_S:
            self._power_w = max(0.0, energy_j - self._last_j) / (now_s - self._last_s)
            self._last_s, self._last_j = now_s, energy_j
        self._in_gap = energy_j is None
        known_j = None if self._power_w is None else energy_j
        return NodeReading(t_s=now_s, power_w=self._power_w, whole=False, energy_j=known_j)

    def notes(self) -> tuple[str, ...]:
        notes, self._notes = tuple(self._notes), []
        return notes

    def close(self) -> None:
        for counter in self._counters:
            counter.zone.sysfs.close()

    def _energy_j(self, now_s: float) -> float | None:
        """Of all zones since the start; `None` where one cannot be read, or has lost count. Each is read all the same,
        before it wraps."""
        known: list[float] = []
        trouble = None
        for counter in self._counters:
            try:
                energy_j = counter.read(now_s)
            except DeviceError as error:
                trouble = str(error)
                continue
            if energy_j is None:
                trouble = f"the energy counter of {counter.zone.id} ({counter.zone.name}) {counter.trouble}"
            else:
                known.append(energy_j)
        if trouble is None:
            return sum(known)
        if not self._in_gap:
            self._notes.append(f"the node's power is not known: {trouble}")
        return None
