"""A GPU that is none: a real process tree plays its job, in real time.

The tree's CPU time is the load, a published profile gives the power at that load and cap, an emulated sensor reports
it, and a cap slows the tree as the profile says, by stopping and continuing it many times a second. The power is
modelled, and the device says so (`emulated`).

A thread does this. It continues the tree on every way out of the thread and of the interpreter; where the whole
process is killed or stopped, another one has to (`limits_from_outside`). A cap holds only while somebody reads the
device: a controller that hangs still has its thread, which would stop again whatever the watchdog continued.
"""

import atexit
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autocap.clock import Clock
from autocap.devices.base import LimitPort, Tunable, require_settable
from autocap.devices.emulated.activity import Activity
from autocap.devices.emulated.duty_cycle import DutyCycle
from autocap.devices.emulated.job_tree import JobTree, continue_tree, require_own
from autocap.errors import DeviceError, LimitRefused
from autocap.job.processes import ProcessId
from autocap.job.signals import deaf
from autocap.records import CapRange, GpuInfo, Reading

if TYPE_CHECKING:  # the watchdog needs `limits_from_outside` alone and must not wait for numpy
    from numpy.random import Generator

    from autocap.devices.model.profiles import Profile

KIND = "emulated"
UNREAD_S = 1.5  # a device that nobody read for so long is at its default cap; the guardian gives a hang 2 s
_TICK_S = 0.020
_EARLY_S = 0.0003  # less than this left of a slice is not worth another wait


@dataclass(frozen=True, slots=True, kw_only=True)
class _OperatingPoint:
    """What the profile says of one cap; power_w at full load. Worked out once a cap, not once a tick."""

    cap_w: float
    slowdown: float
    power_w: float


class EmulatedDevice(Tunable):
    """One emulated GPU. It idles until `bind` gives it a job, from which on its UUID names that; `close` it, or the
    interpreter's exit does."""

    kind = KIND
    emulated = True

    def __init__(
        self,
        profile: "Profile",
        clock: Clock,
        rng: "Generator",
        observe: bool = False,
    ) -> None:
        """clock: stamps the readings. rng: of the sensor, a Turing board's, every 100 ms the mean of the last 100 ms.
        observe: power at the default cap, and nothing stopped.
        """
        from autocap.devices.model.sensor import PRESETS, PowerSensor

        self._profile = profile
        self._clock = clock
        self._observe = observe
        self._sensor = PowerSensor(PRESETS["turing"], rng)
        self._default = self._point(profile.cap_range.default_w)
        self._asked = self._default
        self.sensor = self._sensor.model.info()
        self.gpus = self._named(KIND)
        self._job_ended = False
        self._duty = DutyCycle()
        self._activity = Activity()
        self._ticked_s = self._read_s = clock.now()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    @property
    def cap_range(self) -> CapRange:
        """The caps of the profile; known before the job is."""
        return self._profile.cap_range

    def _named(self, uuid: str) -> tuple[GpuInfo, ...]:
        return (GpuInfo(index=0, uuid=uuid, name=f"{self._profile.gpu_name} (emulated)", cap_range=self.cap_range),)

    def bind(self, job: ProcessId) -> None:
        """Let the process tree of `job` be the GPU's load from now on.

        Raises DeviceError when a process of it is another user's, or when we are in it ourselves.
        """
        require_own(job)
        self.gpus = self._named(f"{KIND}-{job.pid}-{job.start_ticks}")  # emulated runs coexist
        self._ticked_s = self._read_s = self._clock.now()
        atexit.register(self.close)
        play = (JobTree(job), job)
        self._thread = threading.Thread(target=self._play, args=play, name="autocap emulated device", daemon=True)
        with deaf():
            self._thread.start()

    def read(self) -> tuple[Reading, ...]:
        """The newest reading of the emulated sensor. Raises DeviceError when the thread behind it failed.

        No energy counter is offered: a counter's value comes without the time at which it moved, power readings have
        theirs and together cover all of the time.
        """
        if self._failure is not None:
            raise DeviceError(f"the emulated device failed, the job runs at full speed: {self._failure}") from (
                self._failure
            )
        self._read_s = self._clock.now()
        asked = self._asked
        t_s, power_w = self._sensor.latest() or (self._read_s, None)
        reading = Reading(
            t_s=t_s,
            power_w=power_w,
            requested_w=asked.cap_w,
            enforced_w=asked.cap_w,
            cap_binding=asked.slowdown > 1.0,
            utilisation=self._activity.share(),
        )
        return (reading,)

    def limits(self) -> LimitPort:
        """The setter. Raises DeviceError under `observe`, where there is none."""
        require_settable(None, observe=self._observe)
        return _Limits(self)

    def close(self) -> None:
        """End the thread. The job goes on at full speed, whatever the cap."""
        atexit.unregister(self.close)
        self._closing = True
        if self._thread is not None:
            self._thread.join()

    def _request(self, cap_w: float) -> None:
        """For the limit port alone."""
        if self._failure is not None:
            raise LimitRefused(f"cap {cap_w:g} W was not set: the emulated device failed ({self._failure})")
        self._read_s = self._clock.now()
        self._asked = self._point(cap_w)

    def _point(self, cap_w: float) -> _OperatingPoint:
        slowdown, power_w = self._profile.slowdown(cap_w), self._profile.power_w(cap_w)
        return _OperatingPoint(cap_w=cap_w, slowdown=slowdown, power_w=power_w)

    def _play(self, tree: JobTree, job: ProcessId) -> None:
        try:
            self._look_at(job)
            while not self._closing:
                time.sleep(self._tick(tree, job))
        except Exception as error:  # noqa: BLE001  a thread has no caller: read and set_limit_w raise it
            self._failure = error
        finally:
            tree.close()

    def _tick(self, tree: JobTree, job: ProcessId) -> float:
        """Account for what passed since the last tick, stop or continue the tree; how long to wait for the next."""
        now_s = self._clock.now()
        elapsed_s, cpu_s = now_s - self._ticked_s, tree.spent_s()
        worth_s = 0.0 if self._duty.stopped else elapsed_s * self._duty.efficiency
        self._duty.spend(elapsed_s, cpu_s)
        self._activity.spend(worth_s, cpu_s)
        point = self._asked if now_s - self._read_s < UNREAD_S else self._default
        self._duty.slowdown = 1.0 if self._job_ended else point.slowdown
        if self._duty.left_s() <= _EARLY_S:
            (tree.resume if self._duty.stopped else tree.stop)()
            self._duty.turn()
        self._advance_sensor(now_s, point.power_w)
        if not self._duty.stopped and tree.scan_if_due():
            self._look_at(job)
        return max(0.0, min(_TICK_S, self._duty.left_s()) - (self._clock.now() - now_s))

    def _advance_sensor(self, now_s: float, busy_w: float) -> None:
        import numpy as np

        if now_s > self._ticked_s:
            idle_w = self._profile.idle_w
            power_w = idle_w + self._activity.share() * (busy_w - idle_w)
            self._sensor.advance(np.array([self._ticked_s, now_s]), np.array([power_w]))
            self._ticked_s = now_s

    def _look_at(self, job: ProcessId) -> None:
        with suppress(OSError):  # it ended between the two looks, or nothing can be opened any more
            self._job_ended = not job.is_alive()


class _Limits(LimitPort):
    """The limit of an emulated device in this very process."""

    def __init__(self, device: EmulatedDevice) -> None:
        self._device = device

    def requested_w(self, uuid: str) -> float | None:
        self._gpu(uuid)
        return self._device._asked.cap_w

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        gpu = self._gpu(uuid)
        bounds = gpu.cap_range
        if not bounds.min_w <= cap_w <= bounds.max_w:
            raise LimitRefused(
                f"cap {cap_w:g} W lies outside the {bounds.min_w:g} W to {bounds.max_w:g} W of GPU {gpu.index} "
                f"({gpu.name}); choose a cap within them"
            )
        self._device._request(cap_w)

    def _gpu(self, uuid: str) -> GpuInfo:
        (gpu,) = self._device.gpus
        if gpu.uuid != uuid:
            raise DeviceError(f"no emulated device '{uuid}'; there is {gpu.uuid}")
        return gpu


class _OutsideLimits(LimitPort):
    """The limit of an emulated device whose controller is another process, or is gone: it can only be lifted."""

    def __init__(self, job: ProcessId | None) -> None:
        self._job = job

    def requested_w(self, uuid: str) -> float | None:
        return None  # it was a number in the controller's memory

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        if self._job is not None:
            continue_tree(self._job)


def limits_from_outside(job: ProcessId | None) -> LimitPort:
    """For the watchdog and `autocap restore`: setting any limit continues the job's processes. Imports no numpy.

    job: the process that the device was bound to; `None`, or one that is gone, leaves nothing to do.
    """
    return _OutsideLimits(job)
