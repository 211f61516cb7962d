"""How the power sensors of GPUs behave, for `autocap devices`: watched for some seconds."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autocap.clock import MonotonicClock
from autocap.errors import DeviceError

if TYPE_CHECKING:
    from autocap.devices.nvml import Library, SensorProbe


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorSeen:
    """What the JSON says of a sensor.

    source: what power is read from. update_s: between fresh readings. counter_j, integrated_j: the same stretch of time
    by the energy counter and by the power readings. trouble: why the sensor, or its counter, is not to be used.
    """

    source: str | None = None
    update_s: float | None = None
    energy_counter: bool | None = None
    counter_j: float | None = None
    integrated_j: float | None = None
    trouble: str | None = None


def sensors_of(library: "Library", uuids: Sequence[str]) -> list[SensorSeen]:
    """All are watched at the same time; where one fails, each by itself."""
    from autocap.devices.nvml import probe_sensor

    clock = MonotonicClock()
    with suppress(DeviceError):
        return [_sensor(probe) for probe in probe_sensor(library, uuids, clock)]
    found = []
    for uuid in uuids:
        try:
            (probe,) = probe_sensor(library, [uuid], clock)
            found.append(_sensor(probe))
        except DeviceError as error:
            found.append(SensorSeen(trouble=str(error)))
    return found


def _sensor(probe: "SensorProbe") -> SensorSeen:
    return SensorSeen(
        source=probe.source.value,
        update_s=probe.update_s,
        energy_counter=probe.has_counter,
        counter_j=probe.counter_j,
        integrated_j=probe.integrated_j,
        trouble=None if probe.counter_trouble is None else f"the energy counter {probe.counter_trouble}",
    )
