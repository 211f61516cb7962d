"""The job's energy over time, out of the readings: of its GPUs, of what goes with them, and of the machine around them.

Energy comes from counters where there are any, else from power, which is held from one reading's stamp to the next.
A machine's reading that holds the GPUs' power already, as a wall meter's, stands alone; any other is added to theirs.
"""

import math
from dataclasses import dataclass
from itertools import zip_longest

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


def gpus_power_w(sample: Sample) -> float | None:
    """What all GPUs draw at a sample, watts; `None` where that of one is not known."""
    known = [reading.power_w for reading in sample.readings if reading.power_w is not None]
    return sum(known) if len(known) == len(sample.readings) else None


def node_power_w(sample: Sample) -> float | None:
    """What the whole machine draws at a sample, watts; `None` where that is not known, or nobody asked for it."""
    node, of_gpus = sample.node, gpus_power_w(sample)
    if node is None or node.power_w is None or node.whole:
        return None if node is None else node.power_w
    return None if of_gpus is None else node.power_w + of_gpus


def implausible(node_w: float, gpus_w: float) -> str | None:
    """Why what a meter of the whole machine reads cannot be that; `None` where it can."""
    if node_w >= gpus_w:
        return None
    return (
        f"the node's meter reads {node_w:.0f} W while the GPUs alone draw {gpus_w:.0f} W; let it read the whole "
        "machine, in watts"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Joules:
    """Energy, by where it was read; sums are taken part by part, so that they do not depend on when they began.

    counted, held: of the GPUs together by their counters, and of each by its power. beside: of what goes with them.
    node_counted, node_held: of the machine, by its counter and by its power. whole: these hold the GPUs' already.
    """

    counted: float = 0.0
    held: tuple[float, ...] = ()
    beside: float = 0.0
    node_counted: float = 0.0
    node_held: float = 0.0
    whole: bool = False

    def __add__(self, more: "Joules") -> "Joules":
        return Joules(
            counted=self.counted + more.counted,
            held=tuple(one + other for one, other in zip_longest(self.held, more.held, fillvalue=0.0)),
            beside=self.beside + more.beside,
            node_counted=self.node_counted + more.node_counted,
            node_held=self.node_held + more.node_held,
            whole=more.whole,
        )

    @property
    def gpus(self) -> float:
        """The GPUs' part: what a cap acts on."""
        return self.counted + sum(self.held)

    @property
    def total(self) -> float:
        """What the metric counts."""
        return self.node_counted + self.node_held + (0.0 if self.whole else self.gpus + self.beside)


class EnergyMeter:
    """Turns samples into joules. In a gap nothing is known, and nothing is added.

    energy: since the first sample; gained: since the last but one. known: whether it is known up to the last sample;
    moved: whether a counter that moved, or power, says so. gap_s: seconds of which the energy is not known.
    """

    def __init__(self) -> None:
        self._gpus, self._beside, self._node = _Gpus(), _Counted(), _Node()
        self._last_s = math.nan
        self.energy = self.gained = Joules()
        self.known = self.moved = False
        self.gap_s = 0.0

    @property
    def energy_j(self) -> float:
        """What the metric counts so far."""
        return self.energy.total

    def add(self, sample: Sample) -> bool:
        """Take in the next sample; whether it gives another point of the energy curve."""
        node_counted, node_held = self._node.gain(sample.t_s, sample.node)
        beside = [reading.beside_j for reading in sample.readings if reading.beside_j is not None]
        gained_beside = self._beside.gain(sum(beside) if beside else None)
        counted, held, self.moved = self._gpus.gain(sample)
        self.gained = Joules(
            counted=counted,
            held=held,
            beside=gained_beside,
            node_counted=node_counted,
            node_held=node_held,
            whole=sample.node is not None and sample.node.whole,
        )
        self.energy += self.gained
        self.known = not any(reading.power_w is None for reading in sample.readings) and not (
            sample.node is not None and sample.node.power_w is None
        )
        if not self.known and not math.isnan(self._last_s):
            self.gap_s += sample.t_s - self._last_s
        self._last_s = sample.t_s
        return self.known and self.moved


class _Held:
    """Integrates one power that is held from its stamp to the next one's."""

    def __init__(self) -> None:
        self._watts: float | None = None
        self._last_s = math.nan

    def gain(self, now_s: float, stamp_s: float, watts: float | None) -> float:
        """Joules since the last call."""
        gained_j = 0.0
        if self._watts is not None and watts is not None:
            fresh_s = min(max(stamp_s, self._last_s), now_s)
            gained_j = self._watts * (fresh_s - self._last_s) + watts * (now_s - fresh_s)
        self._watts, self._last_s = watts, now_s
        return gained_j


class _Counted:
    """What a counter gains. After a gap it begins anew. moved: it did, or was seen for the first time."""

    def __init__(self) -> None:
        self._counter_j: float | None = None
        self.moved = False

    def gain(self, counter_j: float | None) -> float:
        """Joules since the last call."""
        before_j, self._counter_j = self._counter_j, counter_j
        self.moved = counter_j is not None and counter_j != before_j
        return 0.0 if before_j is None or counter_j is None else counter_j - before_j


class _Gpus:
    """Summed over devices: from their counters where all have one, else from power."""

    def __init__(self) -> None:
        self._counted = _Counted()
        self._held: list[_Held] = []
        self._holding = False

    def gain(self, sample: Sample) -> tuple[float, tuple[float, ...], bool]:
        """Joules by the counters and of each device by its power since the last call; whether one of them moved."""
        counters = [reading.energy_j for reading in sample.readings if reading.energy_j is not None]
        if counters and len(counters) == len(sample.readings):
            if self._holding:
                self._hold(sample, gap=True)
            return self._counted.gain(sum(counters)), (), self._counted.moved
        gap = any(reading.power_w is None for reading in sample.readings)
        if not gap:  # counters go on over a gap, but must not count again what was taken from the power
            self._counted.gain(None)
        return 0.0, self._hold(sample, gap=gap), not gap

    def _hold(self, sample: Sample, *, gap: bool) -> tuple[float, ...]:
        self._held = self._held or [_Held() for _ in sample.readings]
        self._holding = not gap
        return tuple(
            held.gain(sample.t_s, reading.t_s, None if gap else reading.power_w)
            for held, reading in zip(self._held, sample.readings, strict=True)
        )


class _Node:
    """The machine's: from its counter where it has one, else from power."""

    def __init__(self) -> None:
        self._counted, self._held = _Counted(), _Held()

    def gain(self, now_s: float, node: NodeReading | None) -> tuple[float, float]:
        """Joules by its counter and by its power since the last call."""
        if node is None:
            return 0.0, 0.0
        if node.energy_j is not None:
            return self._counted.gain(node.energy_j), 0.0
        self._counted.gain(None)
        return 0.0, self._held.gain(now_s, node.t_s, node.power_w)
