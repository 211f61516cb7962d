"""The job's energy over time, out of the readings: of its GPUs, of what goes with them, and of the machine around them.

Energy comes from counters where there are any, else from power, which is held from one reading's stamp to the next.
A machine's reading that holds the GPUs' power already, as a wall meter's, stands alone; any other is added to theirs.
"""

import math
from dataclasses import dataclass

from autocap.records import NodeReading, Sample


def disturbance(sample: Sample) -> str | None:
    """Why nothing is to be measured at a sample; `None` where it is as good as any."""
    if any(reading.power_w is None for reading in sample.readings):
        return "a power reading is missing"
    if any(reading.throttled for reading in sample.readings):
        return "the device slowed itself down (thermal or hardware)"
    if sample.node is not None and sample.node.power_w is None:
        return "the node's power is not known"
    return None


def node_power_w(sample: Sample) -> float | None:
    """What the whole machine draws at a sample, watts; `None` where that is not known, or nobody asked for it."""
    node, of_gpus = sample.node, [reading.power_w for reading in sample.readings]
    if node is None or node.power_w is None:
        return None
    if node.whole:
        return node.power_w
    known = [power_w for power_w in of_gpus if power_w is not None]
    return node.power_w + sum(known) if len(known) == len(of_gpus) else None


def implausible(node_w: float, gpus_w: float) -> str | None:
    """Why what a meter of the whole machine reads cannot be that; `None` where it can."""
    if node_w >= gpus_w:
        return None
    return (
        f"the node's meter reads {node_w:.0f} W while the GPUs alone draw {gpus_w:.0f} W; let it read the whole "
        "machine, in watts"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyPoint:
    """A point of the energy curves. energy_j: what the metric counts; gpu_j: the GPUs' part of it; since the start."""

    t_s: float
    energy_j: float
    gpu_j: float


class EnergyMeter:
    """Adds up joules, sample by sample. In a gap nothing is known, and nothing is added.

    energy_j: what the metric counts so far: the machine's where samples tell of it, else the GPUs' with what goes with
    them. gap_s: seconds of which it is not known.
    """

    def __init__(self) -> None:
        self._gpus, self._beside, self._node = _Gpus(), _Counted(), _Node()
        self._whole = False
        self._last_s = math.nan
        self.gap_s = 0.0

    @property
    def energy_j(self) -> float:
        return self._node.energy_j + (0.0 if self._whole else self._gpus.energy_j + self._beside.energy_j)

    def feed(self, sample: Sample) -> EnergyPoint | None:
        """The newest point of the energy curves; `None` in a gap or where there is nothing new."""
        self._whole = sample.node is not None and sample.node.whole
        self._node.feed(sample.t_s, sample.node)
        beside = [reading.beside_j for reading in sample.readings if reading.beside_j is not None]
        self._beside.feed(sum(beside) if beside else None)
        fresh = self._gpus.feed(sample)
        in_gap = any(reading.power_w is None for reading in sample.readings) or (
            sample.node is not None and sample.node.power_w is None
        )
        if in_gap and not math.isnan(self._last_s):
            self.gap_s += sample.t_s - self._last_s
        self._last_s = sample.t_s
        if in_gap or not fresh:
            return None
        return EnergyPoint(t_s=sample.t_s, energy_j=self.energy_j, gpu_j=self._gpus.energy_j)


class _Held:
    """Integrates one power that is held from its stamp to the next one's."""

    def __init__(self) -> None:
        self.energy_j = 0.0
        self._watts: float | None = None
        self._last_s = math.nan

    def feed(self, now_s: float, stamp_s: float, watts: float | None) -> None:
        if self._watts is not None and watts is not None:
            fresh_s = min(max(stamp_s, self._last_s), now_s)
            self.energy_j += self._watts * (fresh_s - self._last_s) + watts * (now_s - fresh_s)
        self._watts, self._last_s = watts, now_s


class _Counted:
    """Adds up what a counter gains. After a gap it begins anew."""

    def __init__(self) -> None:
        self.energy_j = 0.0
        self._counter_j: float | None = None

    def feed(self, counter_j: float | None) -> bool:
        """Whether it moved, or is seen for the first time."""
        before_j, self._counter_j = self._counter_j, counter_j
        if before_j is None or counter_j is None:
            return counter_j is not None
        self.energy_j += counter_j - before_j
        return counter_j != before_j


class _Gpus:
    """Summed over devices: from their counters where all have one, else from power."""

    def __init__(self) -> None:
        self._counted = _Counted()
        self._held: list[_Held] = []
        self._holding = False

    @property
    def energy_j(self) -> float:
        return self._counted.energy_j + sum(held.energy_j for held in self._held)

    def feed(self, sample: Sample) -> bool:
        """Whether there is a new point."""
        counters = [reading.energy_j for reading in sample.readings if reading.energy_j is not None]
        if counters and len(counters) == len(sample.readings):
            if self._holding:
                self._hold(sample, gap=True)
            return self._counted.feed(sum(counters))
        gap = any(reading.power_w is None for reading in sample.readings)
        if not gap:  # counters go on over a gap, but must not count again what the power has told
            self._counted.feed(None)
        self._hold(sample, gap=gap)
        return not gap

    def _hold(self, sample: Sample, *, gap: bool) -> None:
        self._held = self._held or [_Held() for _ in sample.readings]
        self._holding = not gap
        for held, reading in zip(self._held, sample.readings, strict=True):
            held.feed(sample.t_s, reading.t_s, None if gap else reading.power_w)


class _Node:
    """The machine's: from its counter where it has one, else from power."""

    def __init__(self) -> None:
        self._counted, self._held = _Counted(), _Held()

    @property
    def energy_j(self) -> float:
        return self._counted.energy_j + self._held.energy_j

    def feed(self, now_s: float, node: NodeReading | None) -> None:
        if node is not None and node.energy_j is not None:
            self._counted.feed(node.energy_j)
        elif node is not None:
            self._counted.feed(None)
            self._held.feed(now_s, node.t_s, node.power_w)


class NodeUpdates:
    """Tells the machine's fresh readings from those that are only held."""

    def __init__(self) -> None:
        self._stamp_s: float | None = None

    def fresh(self, node: NodeReading | None) -> bool:
        """Whether this is another reading than the last one; the first is taken for held."""
        if node is None or node.power_w is None:
            return False
        before_s, self._stamp_s = self._stamp_s, node.t_s
        return before_s is not None and before_s != node.t_s
