"""The job's energy over time, out of the readings: of its GPUs, of what goes with them, and of the machine around them.

Energy comes from counters where there are any, else from power, which is held from one reading's stamp to the next.
A machine's reading that holds the GPUs' power already, as a wall meter's, stands alone; any other is added to theirs.
"""

import math
from dataclasses import dataclass
from itertools import zip_longest

from autocap.measurement.tuning import TUNING
from autocap.records import NodeReading, Reading, Sample


def gap(sample: Sample) -> str | None:
    """Why the energy is not known at a sample; `None` where it is: of a device whose power is not read for a moment the
    counter tells."""
    if any(reading.power_w is None and reading.energy_j is None for reading in sample.readings):
        return "a power reading is missing"
    if sample.node is not None and sample.node.power_w is None:
        return "the node's power is not known"
    return None


def disturbance(sample: Sample) -> str | None:
    """Why nothing is to be measured at a sample; `None` where it is as good as any."""
    if any(reading.throttled for reading in sample.readings):
        return "the device slowed itself down (thermal or hardware)"
    return gap(sample)


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
    moved: whether a counter that moved, or power, says so. lost: a counter is dropped that had stood still while no
    power was read, so that what was said of the last seconds is too little. gap_s: seconds of which the energy is not
    known.
    """

    def __init__(self) -> None:
        self._gpus, self._beside, self._node = list[_Gpu](), _Counted(), _Node()
        self._last_s = math.nan
        self.energy = self.gained = Joules()
        self.known = self.moved = self.lost = self._waits = False
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
        counted, held = self._gain(sample)
        self.gained = Joules(
            counted=counted,
            held=held,
            beside=gained_beside,
            node_counted=node_counted,
            node_held=node_held,
            whole=sample.node is not None and sample.node.whole,
        )
        self.energy += self.gained
        was_known, self.known = self.known, gap(sample) is None and not self._waits
        if not (self.known and was_known) and not math.isnan(self._last_s):
            self.gap_s += sample.t_s - self._last_s
        self._last_s = sample.t_s
        return self.known and self.moved

    def _gain(self, sample: Sample) -> tuple[float, tuple[float, ...]]:
        """Joules by the counters of all, and of each by its power."""
        self._gpus = self._gpus or [_Gpu() for _ in sample.readings]
        counted_j, held_j = 0.0, list[float]()
        self.moved = not self._gpus  # of the machine alone there is news each time
        self.lost = self._waits = False
        for gpu, reading in zip(self._gpus, sample.readings, strict=True):
            by_counter_j, by_power_j = gpu.gain(sample.t_s, reading)
            counted_j += by_counter_j
            held_j.append(by_power_j)
            self.moved, self.lost = self.moved or gpu.moved, self.lost or gpu.lost
            self._waits = self._waits or gpu.waits
        return counted_j, tuple(held_j) if any(held_j) else ()


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
        self.begin(now_s, watts)
        return gained_j

    def begin(self, now_s: float, watts: float | None) -> None:
        """Integrate from here."""
        self._watts, self._last_s = watts, now_s


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


class _Gpu:
    """One device's: from its counter, else from power. A counter that stands still is not waited for long: what the
    power says is taken ahead of it, so that one that stops for good, and is dropped, leaves nothing out, and one that
    goes on adds only what is missing. moved: there is something new. waits: it stands still, and no power was read for
    a while meanwhile. lost: it is dropped then, and of what was used nobody has told."""

    def __init__(self) -> None:
        self._held = _Held()
        self._counter_j: float | None = None
        self._moved_s = 0.0
        self._still_j: float | None = 0.0  # by the power since the counter moved; `None` with a gap in that
        self._stood_s = self._stood_j = 0.0  # for how long it was seen to stand, and by the power meanwhile
        self._ahead_j = 0.0  # that was taken already, beyond the counter
        self.moved = self.waits = self.lost = False

    def gain(self, now_s: float, reading: Reading) -> tuple[float, float]:
        """Joules by the counter and by the power since the last call."""
        has_power, counter_j, before_j = reading.power_w is not None, reading.energy_j, self._counter_j
        counts = counter_j is not None and before_j is not None and counter_j != before_j
        if counts and has_power and not self._ahead_j and self._stood_s <= TUNING.counter_still_s:  # as nearly always
            self._held.begin(now_s, reading.power_w)
            self._counter_j, self._moved_s, self._still_j, self._stood_s = counter_j, now_s, 0.0, 0.0
            self.moved, self.waits, self.lost = True, False, False
            return (counter_j or 0.0) - (before_j or 0.0), 0.0
        held_j = self._held.gain(now_s, reading.t_s, reading.power_w)
        self._still_j = None if self._still_j is None or not has_power else self._still_j + held_j
        self.moved, self.waits, self.lost = has_power, False, False
        if counter_j == before_j and counter_j is not None:
            return self._wait(now_s)
        if counter_j is None and (before_j is None or not has_power):
            return 0.0, held_j  # a counter goes on over a gap of both
        self._counter_j = counter_j
        if before_j is None:
            self._move(now_s)
            return 0.0, held_j
        gained_j = 0.0 if counter_j is None else counter_j - before_j
        if counter_j is None or self._has_left_out(gained_j):  # it is dropped, or has stood still: power tells
            self.lost, missing_j = self._still_j is None, max(0.0, (self._still_j or 0.0) - self._ahead_j)
            self._ahead_j = 0.0
            self._move(now_s)
            return 0.0, missing_j
        self._ahead_j, ahead_j = max(0.0, self._ahead_j - gained_j), self._ahead_j
        self._move(now_s)
        return max(0.0, gained_j - ahead_j), 0.0

    def _wait(self, now_s: float) -> tuple[float, float]:
        self._stood_s, self._stood_j = now_s - self._moved_s, self._still_j or 0.0
        self.moved, is_long = False, self._stood_s > TUNING.counter_still_s
        self.waits = is_long and self._still_j is None
        if self._still_j is None or not is_long:
            return 0.0, 0.0
        more_j = max(0.0, self._still_j - self._ahead_j)
        self._ahead_j += more_j
        self.moved = True
        return 0.0, more_j

    def _has_left_out(self, gained_j: float) -> bool:
        return self._stood_s > TUNING.counter_still_s and gained_j < TUNING.counter_left_out * self._stood_j

    def _move(self, now_s: float) -> None:
        self.moved, self._moved_s, self._still_j, self._stood_s = True, now_s, 0.0, 0.0


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
