"""The same device as a job's: `--device file:PATH`. Its power follows its limit; no job is slowed down by it."""

import json
from pathlib import Path

from autocap.clock import Clock
from autocap.config import RunConfig
from autocap.devices.base import CheckCaps, DeviceSource, Tunable
from autocap.errors import DeviceError, DeviceUnavailable
from autocap.job.processes import ProcessId
from autocap.records import GpuInfo, Reading, SensorInfo
from tests.doubles.file_device import CAP_RANGE, FileLimits


class FileDevice(Tunable):
    kind = "file"
    sensor = SensorInfo(update_s=0.02, window_s=0.0, settle_s=0.0)

    def __init__(self, path: Path, clock: Clock, observe: bool) -> None:
        self.gpus = (GpuInfo(index=0, uuid=str(path), name="file", cap_range=CAP_RANGE),)
        self._path, self._clock, self._observe = path, clock, observe

    def read(self) -> tuple[Reading, ...]:
        limit_w = json.loads(self._path.read_text())["requested_w"]
        return (Reading(t_s=self._clock.now(), power_w=0.9 * limit_w, requested_w=limit_w, enforced_w=limit_w),)

    def limits(self) -> FileLimits:
        if self._observe:
            raise DeviceError("observed")
        return FileLimits()


class FileSource(DeviceSource):
    def __init__(self, config: RunConfig, clock: Clock, check: CheckCaps) -> None:
        path = Path(config.device.partition(":")[2])
        if not path.exists():
            raise DeviceUnavailable(f"there is no device {path}")
        self.known = FileDevice(path, clock, config.tune.observe)
        check(self.known.gpus)

    def ahead(self) -> FileDevice:
        return self.known

    def find(self, job: ProcessId, waited_s: float) -> FileDevice:
        return self.known
