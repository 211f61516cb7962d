"""Samples of the devices of this machine: one at each call, read now."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from autocap.clock import Clock
from autocap.devices.base import PowerSource, Tunable
from autocap.errors import DeviceError
from autocap.knobs import POWER_LIMIT, Knob
from autocap.limits.background_call import BackgroundCall
from autocap.records import GpuInfo, NodeReading, Reading, Sample, StepReading

_HELD_UP_S, _LONGER = 0.1, 4.0  # longer than both, and so many times the quickest, no reading should take
_READINGS = 3  # at most, for one sample
_MOMENT_S = 0.25  # that a reading may hold up the loop; a call into a driver may take seconds (GSP time-outs: 6 s)
_LATE_S = 1.0  # the parts of a reading that took longer do not belong together
_SAY_S, _GIVE_UP_S = 10.0, 60.0  # without a reading


@dataclass(frozen=True, slots=True, kw_only=True)
class _Taken:
    """begun_s, t_s: when reading began, and was done."""

    begun_s: float
    steps: StepReading | None
    readings: tuple[Reading, ...]
    node: NodeReading | None
    t_s: float


class LocalSampler:
    """steps: reads the step counter. node: of the machine's power, `None` where only the device's counts. patient: a
    device whose driver takes seconds to answer makes a gap, and holds up nothing; where time is real. knob: that is
    turned."""

    def __init__(
        self,
        *,
        clock: Clock,
        device: Tunable,
        steps: Callable[[], StepReading | None],
        node: PowerSource | None = None,
        patient: bool = False,
        knob: Knob = POWER_LIMIT,
    ) -> None:
        self._clock, self._device, self._steps, self._node = clock, device, steps, node
        self._knob = knob
        self._aside = BackgroundCall[_Taken]() if patient else None
        self._quickest_s = math.inf  # that a reading took
        self._unanswered_s: float | None = None  # since when a driver has not answered
        self._is_said = False  # that it does not
        self._said: list[str] = []

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        """As Sampler has it."""
        return self._device.gpus

    def samples(self) -> tuple[Sample, ...]:
        """All there is to read; nothing while a driver does not answer. Readings that were long in coming, as on a
        machine with too few cores, are taken again. Raises DeviceError, also where a driver answers no more."""
        began_s = self._clock.now()
        for number in range(1, _READINGS + 1):
            is_late = self._aside is not None and self._aside.is_busy
            taken = self._take()
            if taken is None:
                break
            took_s = taken.t_s - taken.begun_s
            self._quickest_s = min(self._quickest_s, took_s)
            usual_s = max(_HELD_UP_S, _LONGER * self._quickest_s)
            longest_s = math.inf if self._aside is None else max(_LATE_S, usual_s)
            if took_s <= usual_s or ((is_late or number == _READINGS) and took_s <= longest_s):
                self._answered(taken.begun_s)
                return (Sample(t_s=taken.t_s, readings=taken.readings, steps=taken.steps, node=taken.node),)
        self._unanswered(began_s)
        return ()

    def _take(self) -> _Taken | None:
        """What was begun before, or is read now; `None` while the driver does not answer."""
        aside = self._aside
        if aside is not None and aside.is_busy:
            return aside.take() if aside.is_done() else None
        steps = self._steps()
        read = partial(self._read, self._clock.now(), steps)
        if aside is None:
            return read()
        aside.begin(read)
        return aside.take() if aside.is_done(_MOMENT_S) else None

    def _read(self, begun_s: float, steps: StepReading | None) -> _Taken:
        """steps: read first, so that none has ended after the sample."""
        readings = self._device.read()
        if not self._knob.is_power_limit:
            values = self._device.knob_values(self._knob.name)
            readings = tuple(replace(one, knob_value=at) for one, at in zip(readings, values, strict=True))
        node = None if self._node is None else self._node.read()
        return _Taken(begun_s=begun_s, steps=steps, readings=readings, node=node, t_s=self._clock.now())

    def _answered(self, t_s: float) -> None:
        since_s, self._unanswered_s, self._is_said = self._unanswered_s, None, False
        if since_s is not None and t_s - since_s > _LATE_S:
            self._said.append(f"the driver answered nothing for {t_s - since_s:.1f} s; nothing was measured meanwhile")

    def _unanswered(self, t_s: float) -> None:
        self._unanswered_s = t_s if self._unanswered_s is None else self._unanswered_s
        silent_s = t_s - self._unanswered_s
        if silent_s > _GIVE_UP_S:
            raise DeviceError(
                f"the driver has given no whole reading for {_GIVE_UP_S:g} s; the kernel's log (dmesg) may say why"
            )
        if silent_s > _SAY_S and not self._is_said:
            self._is_said = True
            self._said.append(f"the driver has given no whole reading for {_SAY_S:g} s; nothing is measured meanwhile")

    def notes(self) -> tuple[str, ...]:
        """Of the device and of the meter, and how long a driver did not answer."""
        said, self._said = self._said, []
        return (*said, *self._device.notes(), *(() if self._node is None else self._node.notes()))
