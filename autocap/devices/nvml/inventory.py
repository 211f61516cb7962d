"""All GPUs of this machine, through NVML, for whoever acts for several jobs."""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress

from autocap.clock import Clock, MonotonicClock
from autocap.devices.inventory import DescribedDevice, HoldableInventory, ListedDevice, SensorSeen
from autocap.devices.nvml.device import NvmlDevice
from autocap.devices.nvml.library import Library, NvmlGpu, open_library
from autocap.devices.nvml.limits import NvmlLimits
from autocap.devices.nvml.probe import SensorProbe, probe_sensor
from autocap.devices.permission import own_privileges, settable
from autocap.errors import DeviceError, DeviceUnavailable

_AGAIN_S = 5.0  # between looks for a driver that was not there


class NvmlInventory(HoldableInventory):
    """now: the clock, seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._library: Library | None = None
        self._tried_s: float | None = None

    def __exit__(self, *error: object) -> None:
        if self._library is not None:
            self._library.close()

    def devices(self) -> tuple[ListedDevice, ...]:
        library = self._opened()
        return () if library is None else self._gpus(library)

    def described(self) -> tuple[DescribedDevice, ...]:
        library = self._opened()
        if library is None:
            return ()
        gpus, privileges = self._gpus(library), own_privileges()
        return tuple(
            DescribedDevice(
                device=gpu,
                direct=settable(gpu.obstacle, privileges),
                facts={"persistence": gpu.persistence, "mig": gpu.mig, "sensor": sensor},
            )
            for gpu, sensor in zip(gpus, _sensors(library, [gpu.uuid for gpu in gpus]), strict=True)
        )

    def pids(self, uuid: str) -> tuple[int, ...] | None:
        library = self._opened()
        return None if library is None else library.user_pids(uuid)

    def limits(self) -> NvmlLimits:
        return NvmlLimits(self._there(), alone=True)  # never closed: the library is every lease's

    def hold(self, uuids: Sequence[str], clock: Clock) -> NvmlDevice:
        return NvmlDevice(self._there(), uuids, clock, observe=False, watch_s=0.0)

    def _there(self) -> Library:
        library = self._opened()
        if library is None:
            raise DeviceUnavailable("; ".join(self.unreadable))
        return library

    def _opened(self) -> Library | None:
        """`None` where there is no driver; one that was not there is looked for again after some seconds."""
        with self._lock:
            now_s = self._now()
            if self._library is None and (self._tried_s is None or now_s - self._tried_s >= _AGAIN_S):
                self._tried_s = now_s
                try:
                    self._library = open_library()
                except DeviceUnavailable as error:
                    self.unreadable = (str(error),)
            return self._library

    def _gpus(self, library: Library) -> tuple[NvmlGpu, ...]:
        gpus = library.inventory()
        self.unreadable = library.unreadable or (() if gpus else ("the NVIDIA driver shows no GPU here",))
        return gpus


def _sensors(library: Library, uuids: Sequence[str]) -> list[SensorSeen]:
    """All are watched at the same time; where one fails, each by itself."""
    clock = MonotonicClock()
    with suppress(DeviceError):
        return [_seen(probe) for probe in probe_sensor(library, uuids, clock)]
    found = []
    for uuid in uuids:
        try:
            (probe,) = probe_sensor(library, [uuid], clock)
            found.append(_seen(probe))
        except DeviceError as error:
            found.append(SensorSeen(trouble=str(error)))
    return found


def _seen(probe: SensorProbe) -> SensorSeen:
    return SensorSeen(
        source=probe.source.value,
        update_s=probe.update_s,
        energy_counter=probe.has_counter,
        counter_j=probe.counter_j,
        integrated_j=probe.integrated_j,
        trouble=None if probe.counter_trouble is None else f"the energy counter {probe.counter_trouble}",
    )
