"""The same device as a job's: `--device file:PATH`. Its power follows its limit and its clock; no job is slowed down
by it."""

import json
from pathlib import Path

from autocap.clock import Clock
from autocap.config import RunConfig
from autocap.devices.base import CheckCaps, DeviceSource, Tunable
from autocap.errors import DeviceError, DeviceUnavailable
from autocap.job.processes import ProcessId
from autocap.knobs import Knob
from autocap.records import GpuInfo, Reading, SensorInfo
from tests.doubles.file_device import CAP_RANGE, CLOCK, MODE, FileKnob, FileLimits, knob_at


class FileDevice(Tunable):
    kind = "file"
    sensor = SensorInfo(update_s=0.02, window_s=0.0, settle_s=0.0)

    def __init__(self, path: Path, clock: Clock, observe: bool) -> None:
        self.gpus = (GpuInfo(index=0, uuid=str(path), name="file", cap_range=CAP_RANGE),)
        self._path, self._clock, self._observe = path, clock, observe

    def read(self) -> tuple[Reading, ...]:
        state = json.loads(self._path.read_text())
        limit_w, clock = state["requested_w"], state["knobs"]["clock"]
        power_w = 0.9 * limit_w * clock / CLOCK.values[-1]
        return (Reading(t_s=self._clock.now(), power_w=power_w, requested_w=limit_w, enforced_w=limit_w),)

    def limits(self) -> FileLimits:
        if self._observe:
            raise DeviceError("observed")
        return FileLimits()

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return CLOCK, MODE

    def knob_port(self, name: str) -> FileKnob:
        if self._observe:
            raise DeviceError("observed")
        if name not in (CLOCK.name, MODE.name):
            raise DeviceError(f"{self._path} has no knob {name}")
        return FileKnob(name)

    def knob_values(self, name: str) -> tuple[float | None, ...]:
        return (knob_at(str(self._path), name),)


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
