"""The source of the emulated device: the job's own processes play it."""

import numpy as np

from autocap.clock import Clock
from autocap.config import EMULATED_PROFILE, RunConfig
from autocap.devices.base import CheckCaps, DeviceSource, Tunable
from autocap.devices.emulated.device import EmulatedDevice
from autocap.devices.emulated.job_tree import require_own
from autocap.devices.model import profiles
from autocap.errors import DeviceError, DeviceUnavailable
from autocap.job.processes import ProcessId, Roots


class EmulatedSource(DeviceSource):
    """The emulated device, which the job's own processes play.

    owner_uid: whose every process must be, as for a job that is not our child; `None` for our child.
    """

    def __init__(self, config: RunConfig, clock: Clock, check: CheckCaps, owner_uid: int | None = None) -> None:
        if config.gpus is not None and config.gpus != ("0",):
            raise DeviceUnavailable(
                f"--gpus {','.join(config.gpus)}: the emulated device has GPU 0 alone; pass --gpus 0"
            )
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
