"""A GPU that is none: a real process tree plays its job, in real time.

The tree's CPU time is the load, a published profile gives the power at that load and cap, an emulated sensor reports
it, and a cap slows the tree as the profile says, by stopping and continuing it many times a second. The power is
modelled, and the device says so (`emulated`).

A thread does this. It continues the tree on every way out of the thread and of the interpreter; where the whole
process is killed or stopped, another one has to (`limits_from_outside`). A cap holds only while somebody reads the
device: a controller that hangs still has its thread, which would stop again whatever the watchdog continued.

A stop lasts about 20 ms and the run slices between stops carry the balance: run time that is owed grows by 1/slowdown
of all time that passes and shrinks by the time that really ran, so late timers are made up for, not added up.

What ran is worth less than the clock says: a continued process waits for a CPU, and its threads for each other. The
CPU time per second of running, set against the same while nothing was throttled, shows by how much (`efficiency`).
A ratio far from 1 says that the job itself does something else now; then running time counts as it is, so that a job
that got busier is not starved.
"""

import atexit
import math
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from autocap.clock import Clock
from autocap.config import EMULATED_PROFILE, RunConfig
from autocap.devices.base import CheckCaps, DeviceSource, LimitPort, Tunable, require_settable
from autocap.devices.emulated.job_tree import JobTree, continue_tree, require_own
from autocap.errors import DeviceError, DeviceUnavailable, LimitRefused
from autocap.job.processes import ProcessId, Roots
from autocap.job.signals import deaf
from autocap.records import CapRange, GpuInfo, Reading

if TYPE_CHECKING:
    from numpy.random import Generator

    from autocap.devices.model.profiles import Profile


_ACTIVE_S = 0.05  # long against the clock's errors at the edges of a slice, short against the sensor's update
_LOOK_S = 1.0  # of running, over which the job's breadth is looked at
_BUSY_SHARE = 0.8  # the quantile of the rate that counts as its breadth: idle and single-threaded phases lie below


class Activity:
    """The share of the CPUs that the job keeps busy when it is at work, over the last moments it could run; 0 to 1.

    A job of one thread on a large machine keeps its emulated GPU as busy as one that uses every core: what counts is
    its own breadth, the most CPUs that it kept busy in any second, in whole CPUs.
    """

    def __init__(self) -> None:
        self._rate = 0.0  # CPU seconds per second
        self._carried_s = 0.0
        self._breadth = 1
        self._looked_s = 0.0
        self._rates: list[float] = []

    def spend(self, run_s: float, cpu_s: float) -> None:
        """Seconds in which the job could run, and the CPU seconds that it used.

        In a stop, pass 0 and what it still used: that counts with the next run.
        """
        self._carried_s += cpu_s
        if run_s > 0:
            keep = math.exp(-run_s / _ACTIVE_S)
            rate = self._carried_s / run_s
            self._rate = keep * self._rate + (1.0 - keep) * rate
            self._carried_s = 0.0
            self._look(run_s, rate)

    def share(self) -> float:
        """The activity."""
        return min(max(self._rate / self._breadth, 0.0), 1.0)

    def _look(self, run_s: float, rate: float) -> None:
        self._rates.append(rate)
        self._looked_s += run_s
        if self._looked_s >= _LOOK_S:
            busy = sorted(self._rates)[int(_BUSY_SHARE * (len(self._rates) - 1))]
            self._breadth = max(self._breadth, round(busy))
            self._rates, self._looked_s = [], 0.0


STOP_S = 0.020  # on average
LONGEST_STOP_S = 0.065  # on average, where runs of the least length would not pay a shorter stop back
LEAST_RUN_S = 0.005
_NEGLIGIBLE = 5e-4  # a slowdown this close to 1 is none: a stop every 40 s would only be noise
_LARGEST_DEBT_S = 0.1
_MEMORY_S = 2.0  # of running, over which the efficiency is averaged
_FREE_MEMORY_S = 10.0  # over which the unthrottled CPU rate is
_LEAST_FREE_S, _LEAST_THROTTLED_S = 1.0, 0.2  # before which neither is believed
_PLAUSIBLE = (0.7, 1.15)
_GOLDEN = (math.sqrt(5) - 1) / 2


class _CpuRate:
    """CPU seconds per second of running, averaged with exponential forgetting."""

    def __init__(self, memory_s: float) -> None:
        self._memory_s = memory_s
        self.run_s = 0.0
        self._cpu_s = 0.0

    def add(self, run_s: float, cpu_s: float) -> None:
        keep = math.exp(-run_s / self._memory_s)
        self.run_s = keep * self.run_s + run_s
        self._cpu_s = keep * self._cpu_s + cpu_s

    @property
    def rate(self) -> float:
        return self._cpu_s / self.run_s if self.run_s > 0 else 0.0


class DutyCycle:
    """Tell it what passed (`spend`), ask how long the present slice still lasts (`left_s`), and `turn` when it is over.

    stopped: whether the process is in a stop slice. It begins running, at slowdown 1.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._slowdown = 1.0
        self._owed_s = 0.0
        self._slice_s = 0.0
        self._turns = 0
        self._free = _CpuRate(_FREE_MEMORY_S)
        self._throttled = _CpuRate(_MEMORY_S)

    @property
    def slowdown(self) -> float:
        """The factor by which everything is to take longer, 1 or more; less counts as 1."""
        return self._slowdown

    @slowdown.setter
    def slowdown(self, slowdown: float) -> None:
        wanted = slowdown if slowdown > 1.0 + _NEGLIGIBLE else 1.0
        if wanted != self._slowdown:
            self._slowdown = wanted
            self._owed_s = 0.0
            self._throttled = _CpuRate(_MEMORY_S)

    @property
    def efficiency(self) -> float:
        """What a second of running between stops is worth, in seconds of running freely."""
        believed = self._free.run_s >= _LEAST_FREE_S and self._throttled.run_s >= _LEAST_THROTTLED_S
        if self._slowdown == 1.0 or not believed or self._free.rate <= 0:
            return 1.0
        ratio = self._throttled.rate / self._free.rate
        return ratio if _PLAUSIBLE[0] <= ratio <= _PLAUSIBLE[1] else 1.0

    def spend(self, elapsed_s: float, cpu_s: float) -> None:
        """Time passed in the present slice, and the CPU time that the process used up meanwhile."""
        self._slice_s += elapsed_s
        run_s = 0.0 if self.stopped else elapsed_s
        if self._slowdown == 1.0:
            self._free.add(run_s, cpu_s)
            return
        self._throttled.add(run_s, cpu_s)  # what a process uses while it is being stopped belongs to the run before
        owed_s = self._owed_s + elapsed_s / self._slowdown - run_s * self.efficiency
        self._owed_s = min(max(owed_s, -_LARGEST_DEBT_S), _LARGEST_DEBT_S)

    def left_s(self) -> float:
        """How long the present slice still lasts, as far as is known: 0 or less when it is over."""
        if self.stopped:
            return -math.inf if self._slowdown == 1.0 else self._stop_s() - self._slice_s
        gain = self.efficiency - 1.0 / self._slowdown  # run time paid back per second of running
        if self._slowdown == 1.0 or gain <= 0:
            return math.inf
        return max(self._owed_s / gain, LEAST_RUN_S - self._slice_s)

    def turn(self) -> None:
        """The process was stopped, or continued, just now."""
        self.stopped = not self.stopped
        self._slice_s = 0.0
        self._turns += 1

    def _stop_s(self) -> float:
        """Stops differ in length by up to a half, so that a job with a rhythm of its own cannot fall into step."""
        mean_s = min(max(STOP_S, LEAST_RUN_S * (self._slowdown - 1.0)), LONGEST_STOP_S)
        return mean_s * (0.5 + self._turns * _GOLDEN % 1.0)


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


class EmulatedSource(DeviceSource):
    """The emulated device, which the job's own processes play.

    owner_uid: whose every process must be, as for a job that is not our child; `None` for our child.
    """

    def __init__(self, config: RunConfig, clock: Clock, check: CheckCaps, owner_uid: int | None = None) -> None:
        if config.gpus is not None and config.gpus != ("0",):
            raise DeviceUnavailable(
                f"--gpus {','.join(config.gpus)}: the emulated device has GPU 0 alone; pass --gpus 0"
            )
        import numpy as np  # the watchdog must not wait for it

        from autocap.devices.model import profiles

        profile = config.device.partition(":")[2] or EMULATED_PROFILE
        rng = np.random.default_rng(0)
        self._device = EmulatedDevice(profiles.load(profile), clock, rng, observe=config.tune.observe)
        self.known = self._device  # its user's to close
        self._owner_uid = owner_uid
        check(self._device.gpus, [self._device.cap_range.default_w])

    def find(self, job: Roots, waited_s: float) -> Tunable | None:
        if not isinstance(job, ProcessId):
            raise DeviceError(
                "the emulated device is played by a process and what it starts, and a job on several nodes has no such "
                "process; pass another --device"
            )
        if self._owner_uid is not None:
            require_own(job, self._owner_uid)
        self._device.bind(job)
        return self._device
