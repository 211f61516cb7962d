"""Samples of the devices of this machine: one at each call, read now."""

import math
from collections.abc import Callable

from autocap.clock import Clock
from autocap.devices.base import Device, PowerSource
from autocap.limits.together import Aside
from autocap.records import GpuInfo, Reading, Sample, StepReading

_HELD_UP_S, _LONGER = 0.1, 4.0  # longer than both, and so many times the quickest, no reading should take
_READINGS = 3  # at most, for one sample
_MOMENT_S = 0.25  # that a reading may hold up the loop; a call into a driver may take seconds (GSP time-outs: 6 s)


class LocalSampler:
    """steps: reads the step counter. node: of the machine's power, `None` where only the device's counts. patient: a
    device whose driver takes seconds to answer makes a gap, and holds up nothing; where time is real."""

    def __init__(
        self,
        *,
        clock: Clock,
        device: Device,
        steps: Callable[[], StepReading | None],
        node: PowerSource | None = None,
        patient: bool = False,
    ) -> None:
        self._clock, self._device, self._steps, self._node = clock, device, steps, node
        self._aside = Aside[tuple[Reading, ...]]() if patient else None
        self._quickest_s = math.inf  # that a reading took
        self._unanswered_s: float | None = None  # since when a driver has not answered
        self._said: list[str] = []

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """As Sampler has it."""
        return self._device.gpus

    def samples(self) -> tuple[Sample, ...]:
        """All there is to read; nothing while a driver does not answer. Steps first, so that none has ended after the
        sample. Readings that were long in coming, as on a machine with too few cores, may be older than the clock then
        says: they are taken again."""
        for number in range(1, _READINGS + 1):
            steps, begun_s = self._steps(), self._clock.now()
            readings = self._read()
            if readings is None:
                self._unanswered_s = begun_s if self._unanswered_s is None else self._unanswered_s
                return ()
            if self._unanswered_s is not None:
                took_s, self._unanswered_s = begun_s - self._unanswered_s, None
                self._said.append(f"the driver answered nothing for {took_s:.1f} s; nothing was measured meanwhile")
            node = None if self._node is None else self._node.read()
            t_s = self._clock.now()
            self._quickest_s = min(self._quickest_s, t_s - begun_s)
            in_time = t_s - begun_s <= max(_HELD_UP_S, _LONGER * self._quickest_s)
            if in_time or number == _READINGS:
                return (Sample(t_s=t_s, readings=readings, steps=steps, node=node),)
        raise AssertionError("the last reading is taken as it comes")

    def _read(self) -> tuple[Reading, ...] | None:
        """Read now; `None` while the driver does not answer. What comes late is out of date, but an error is raised."""
        aside = self._aside
        if aside is None:
            return self._device.read()
        if aside.is_busy:
            if not aside.is_done():
                return None
            aside.take()
        aside.begin(self._device.read)
        return aside.take() if aside.is_done(_MOMENT_S) else None

    def notes(self) -> tuple[str, ...]:
        """Of the device and of the meter, and how long a driver did not answer."""
        said, self._said = self._said, []
        return (*said, *self._device.notes(), *(() if self._node is None else self._node.notes()))
