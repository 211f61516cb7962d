"""A power-capped device that lives in a file, so that several real processes can have it; with two more knobs.

Its UUID is the file's path. It comes in as another package's device would, by the entry point in the dist-info folder
beside this file, which is put on the path as an installation would.
"""

import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autocap.clock import Clock
from autocap.config import RunConfig
from autocap.devices.base import CheckCaps, KnobPort, LimitPort
from autocap.errors import DeviceUnavailable, LimitRefused, UsageError
from autocap.job.processes import ProcessId
from autocap.knobs import Knob
from autocap.records import CapRange, GpuInfo

if TYPE_CHECKING:
    from tests.doubles.file_device.source import FileSource

INSTALLED = str(Path(__file__).parent)
sys.path.append(INSTALLED)
_KEPT_BYTES = 4096
_MOST_LOOKS = 4000
CAP_RANGE = CapRange(min_w=100.0, max_w=400.0, default_w=300.0)
CLOCK = Knob.stepped("clock", 600.0, 1500.0, 150.0, unit="MHz")
MODE = Knob(name="mode", values=(0.0, 1.0, 2.0), labels=("calm", "mixed", "eager"), faster=None)
_FOUND = {"clock": 1500.0, "mode": 1.0}


class FileLimits(LimitPort):
    """The setter; every set is logged with the PID that made it. While the file UUID.refuse exists, it refuses; while
    UUID.hang does, it hangs."""

    def requested_w(self, uuid: str) -> float | None:
        return _state(uuid)["requested_w"]

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        _admit(uuid)
        put(uuid, cap_w)


class FileKnob(KnobPort):
    """The setter of one of the knobs: the same."""

    def __init__(self, name: str) -> None:
        self._name = name

    def requested(self, uuid: str) -> float | None:
        return knob_at(uuid, self._name)

    def set(self, uuid: str, value: float) -> None:
        _admit(uuid)
        if not Path(uuid).exists():
            raise DeviceUnavailable(f"there is no device {uuid}")
        knob = CLOCK if self._name == "clock" else MODE
        try:
            knob.setting(value)
        except ValueError as error:
            raise LimitRefused(str(error)) from error
        put_knob(uuid, self._name, value)


class KeptLimits(FileLimits):
    """A setter that opens nothing, as a driver's library has its device open. One that others set too is lost to it."""

    def __init__(self, uuid: str) -> None:
        self._fd = os.open(uuid, os.O_RDWR)

    def requested_w(self, uuid: str) -> float | None:
        return json.loads(os.pread(self._fd, _KEPT_BYTES, 0))["requested_w"]

    def set_limit_w(self, uuid: str, cap_w: float) -> None:
        state = json.loads(os.pread(self._fd, _KEPT_BYTES, 0))
        text = json.dumps({**state, "requested_w": cap_w, "sets": [*state["sets"], [os.getpid(), cap_w]]})
        os.pwrite(self._fd, text.ljust(_KEPT_BYTES).encode(), 0)


def limits_from_outside(job: ProcessId | None) -> FileLimits:
    return FileLimits()


def knob_from_outside(name: str, job: ProcessId | None) -> FileKnob:
    return FileKnob(name)


def check_argument(path: str) -> None:
    if not path:
        raise UsageError("name the file: --device file:PATH")


def open_source(config: RunConfig, clock: Clock, check: CheckCaps, owner_uid: int | None) -> "FileSource":
    from tests.doubles.file_device.source import FileSource

    return FileSource(config, clock, check)


def make(folder: Path, requested_w: float = 260.0, name: str = "gpu0") -> GpuInfo:
    """A device whose requested limit is neither its default nor its maximum."""
    gpu = GpuInfo(index=0, uuid=str(folder / name), name="file", cap_range=CAP_RANGE)
    put(gpu.uuid, requested_w)
    return gpu


def put(uuid: str, requested_w: float | None) -> None:
    """Set the limit, as a tool of somebody else's would."""
    state = _state(uuid) if Path(uuid).exists() else {"sets": [], "knobs": _FOUND, "knob_sets": []}
    _write(uuid, {**state, "requested_w": requested_w, "sets": [*state["sets"], [os.getpid(), requested_w]]})


def put_knob(uuid: str, name: str, value: float | None) -> None:
    """The same of a knob."""
    state = _state(uuid)
    knob_sets = [*state["knob_sets"], [os.getpid(), name, value]]
    _write(uuid, {**state, "knobs": {**state["knobs"], name: value}, "knob_sets": knob_sets})


def _state(uuid: str) -> dict[str, Any]:
    return json.loads(Path(uuid).read_text())


def _write(uuid: str, state: dict[str, Any]) -> None:
    path = Path(uuid)
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.write_text(json.dumps(state))
    temporary.rename(path)


def _admit(uuid: str) -> None:
    for _ in range(_MOST_LOOKS):  # whatever becomes of the test
        if not Path(uuid + ".hang").exists():
            break
        time.sleep(0.005)
    if Path(uuid + ".refuse").exists():
        raise LimitRefused(f"{uuid} takes no limit at the moment")


def knob_at(uuid: str, name: str) -> float | None:
    return _state(uuid)["knobs"][name]


def knob_sets(uuid: str) -> list[tuple[int, str, float]]:
    """Who set which knob to what, from the first on."""
    return [(pid, name, value) for pid, name, value in _state(uuid)["knob_sets"]]


def sets(uuid: str) -> list[tuple[int, float]]:
    """Who set what, from the second on (the first made the device)."""
    return [(pid, cap_w) for pid, cap_w in _state(uuid)["sets"][1:]]
