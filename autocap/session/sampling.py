"""Samples of the devices of this machine: one at each call, read now."""

import math
from collections.abc import Callable

from autocap.clock import Clock
from autocap.devices.base import Device, PowerSource
from autocap.records import GpuInfo, Sample, StepReading

_HELD_UP_S, _LONGER = 0.1, 4.0  # longer than both, and so many times the quickest, no reading should take
_READINGS = 3  # at most, for one sample


class LocalSampler:
    """steps: reads the step counter. node: of the machine's power, `None` where only the device's counts."""

    def __init__(
        self,
        *,
        clock: Clock,
        device: Device,
        steps: Callable[[], StepReading | None],
        node: PowerSource | None = None,
    ) -> None:
        self._clock, self._device, self._steps, self._node = clock, device, steps, node
        self._quickest_s = math.inf  # that a reading took

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """As Sampler has it."""
        return self._device.gpus

    def samples(self) -> tuple[Sample, ...]:
        """All there is to read. Steps first, so that none has ended after the sample. Readings that were long in
        coming, as on a machine with too few cores, may be older than the clock then says: they are taken again."""
        for _ in range(_READINGS):
            steps, begun_s = self._steps(), self._clock.now()
            readings = self._device.read()
            node = None if self._node is None else self._node.read()
            t_s = self._clock.now()
            self._quickest_s = min(self._quickest_s, t_s - begun_s)
            if t_s - begun_s <= max(_HELD_UP_S, _LONGER * self._quickest_s):
                break
        return (Sample(t_s=t_s, readings=readings, steps=steps, node=node),)

    def notes(self) -> tuple[str, ...]:
        """Of the device and of the meter."""
        return (*self._device.notes(), *(() if self._node is None else self._node.notes()))
