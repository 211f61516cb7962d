"""How the device that --device asks for is found for a job and opened: one source a kind of device.

A source is made before the job starts, so that what can be refused is refused by then.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Protocol, Self

import numpy as np

from autocap.clock import Clock
from autocap.config import EMULATED_PROFILE, RunConfig
from autocap.devices.base import Device, Tunable
from autocap.devices.emulated.device import EmulatedDevice
from autocap.devices.emulated.job_tree import require_own
from autocap.devices.model import profiles
from autocap.devices.nvml import processes as holders
from autocap.devices.nvml.source import GpuSource
from autocap.devices.rapl.source import PackageSource
from autocap.errors import DeviceUnavailable
from autocap.job.processes import ProcessId
from autocap.session.caps import cap_grid


class Source(Protocol):
    """Finds the devices of a job and opens them; a context manager that lets go of what finding needed."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None: ...

    @property
    def known(self) -> Device | None:
        """The devices, where they are known before the job is."""

    def ahead(self) -> Tunable | None:
        """The devices, opened before there is a job; `None` where only the job makes them or tells which they are.

        Raises DeviceError where they must not or cannot be tuned.
        """

    def find(self, job: ProcessId, waited_s: float) -> Tunable | None:
        """The job's devices, opened; `None` where it uses none yet.

        waited_s: for how long the job has been looked at; infinity for the last look, or the only one. Raises
        DeviceError where they must not or cannot be tuned.
        """


class EmulatedSource:
    """The emulated device, which the job's own processes play.

    owner_uid: whose every process must be, as for a job that is not our child; `None` for our child.
    """

    def __init__(
        self, config: RunConfig, clock: Clock, required_w: Sequence[float], profile: str, owner_uid: int | None = None
    ) -> None:
        if config.gpus is not None and config.gpus != ("0",):
            raise DeviceUnavailable(
                f"--gpus {','.join(config.gpus)}: the emulated device has GPU 0 alone; pass --gpus 0"
            )
        rng = np.random.default_rng(0)
        self._device = EmulatedDevice(
            profiles.load(profile or EMULATED_PROFILE), clock, rng, observe=config.tune.observe
        )
        self._owner_uid = owner_uid
        cap_grid(config.tune, self._device.gpus, [self._device.cap_range.default_w], required_w)

    def __enter__(self) -> "EmulatedSource":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """Nothing is held; the device is its user's to close."""

    @property
    def known(self) -> Device:
        return self._device

    def ahead(self) -> None:
        return None

    def find(self, job: ProcessId, waited_s: float) -> Tunable | None:
        if self._owner_uid is not None:
            require_own(job, self._owner_uid)
        self._device.bind(job)
        return self._device


def source(config: RunConfig, clock: Clock, required_w: Sequence[float], owner_uid: int | None = None) -> Source:
    """The source of the devices that --device names. required_w: caps that the strategy's options name.

    owner_uid: as EmulatedSource takes it. Raises DeviceUnavailable where there is none of the kind, and DeviceError
    for caps that it does not take.
    """
    kind, _, profile = config.device.partition(":")
    if kind == "emulated":
        return EmulatedSource(config, clock, required_w, profile, owner_uid)
    if kind == "rapl":
        return PackageSource(config, clock, required_w)
    return _gpus(config, clock, required_w)


def _gpus(config: RunConfig, clock: Clock, required_w: Sequence[float]) -> GpuSource:
    # Only here: a run on the emulated device has no use for the driver's library, and must not wake a GPU up.
    from autocap.devices import nvml

    def open_device(uuids: tuple[str, ...]) -> Tunable:
        return nvml.NvmlDevice(library, uuids, clock, observe=config.tune.observe)

    try:
        library = nvml.open_library()
    except DeviceUnavailable as error:
        raise DeviceUnavailable(f"{error}; to try autocap without one, pass --device emulated") from error
    try:
        holders.keep_from_children()
        return GpuSource(config, library, open_device, required_w)
    except BaseException:
        library.close()
        raise
