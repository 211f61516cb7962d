"""How the device that --device asks for is found for a job and opened: one source a kind of device.

A source is made before the job starts, so that what can be refused is refused by then.
"""

from types import TracebackType
from typing import Protocol, Self

from autocap.clock import Clock
from autocap.config import RunConfig
from autocap.devices.base import CheckCaps, Device, Tunable
from autocap.devices.emulated.source import EmulatedSource
from autocap.devices.nvml.source import open_gpus
from autocap.devices.rapl.source import RaplSource
from autocap.job.processes import ProcessId


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


def source(config: RunConfig, clock: Clock, check: CheckCaps, owner_uid: int | None = None) -> Source:
    """The source of the devices that --device names. check: refuses caps that they do not take.

    owner_uid: as EmulatedSource takes it. Raises DeviceUnavailable where there is none of the kind, and DeviceError
    for caps that it does not take.
    """
    kind, _, profile = config.device.partition(":")
    if kind == "emulated":
        return EmulatedSource(config, clock, check, profile, owner_uid)
    if kind == "rapl":
        return RaplSource(config, clock, check)
    return open_gpus(config, clock, check)
