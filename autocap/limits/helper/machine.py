"""The devices of this machine whose limits can be lent: what they take, who uses them, and the way to their setters."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from autocap.devices.base import LimitPort
from autocap.errors import DeviceError, DeviceUnavailable

if TYPE_CHECKING:
    from autocap.devices.nvml.library import Library

KINDS = GPU, PACKAGE = "nvml", "rapl"  # as `autocap.devices` has them
_AGAIN_S = 5.0  # between looks for a driver that was not there


@dataclass(frozen=True, slots=True, kw_only=True)
class Lendable:
    """One device now. names: what rules may call it, lower case. min_w, max_w: what it takes, watts, `None` where it
    does not say; requested_w: the limit that stands. obstacle: why it takes none."""

    uuid: str
    kind: str
    name: str
    names: tuple[str, ...]
    min_w: float | None
    max_w: float | None
    requested_w: float | None
    obstacle: str | None


class Machine(Protocol):
    """From any thread. All may raise DeviceError."""

    def devices(self) -> tuple[Lendable, ...]: ...

    def pids(self, device: Lendable) -> tuple[int, ...] | None:
        """Whatever uses a device; `None` where that is not listed."""

    def port(self, kind: str) -> LimitPort:
        """A setter for the devices of a kind, for one lease; it looks at what is requested, and waits for nothing."""


class ThisMachine:
    """Its GPUs and CPU packages. now: the clock, seconds."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._library: Library | None = None
        self._tried_s: float | None = None

    def devices(self) -> tuple[Lendable, ...]:
        library = self._opened()
        return (*(() if library is None else _gpus(library)), *_packages())

    def pids(self, device: Lendable) -> tuple[int, ...] | None:
        library = self._opened() if device.kind == GPU else None
        return None if library is None else library.user_pids(device.uuid)

    def port(self, kind: str) -> LimitPort:
        if kind == PACKAGE:
            from autocap.devices.rapl import RaplLimits, inventory

            return RaplLimits(inventory())
        from autocap.devices.nvml import NvmlLimits

        library = self._opened()
        if library is None:
            raise DeviceUnavailable("the NVIDIA driver is gone; look at nvidia-smi")
        return NvmlLimits(library, alone=True)  # never closed: the library is every lease's

    def _opened(self) -> "Library | None":
        """NVML; `None` where there is no driver."""
        with self._lock:
            now_s = self._now()
            if self._library is None and (self._tried_s is None or now_s - self._tried_s >= _AGAIN_S):
                from autocap.devices.nvml import open_library

                self._tried_s = now_s
                try:
                    self._library = open_library()
                except DeviceUnavailable:
                    return None
            return self._library


def _gpus(library: "Library") -> list[Lendable]:
    from autocap.devices.nvml.library import pci_address

    return [
        Lendable(
            uuid=gpu.uuid,
            kind=GPU,
            name=gpu.name,
            names=(gpu.uuid.lower(), str(pci_address(library.handle(gpu.uuid), gpu.uuid))),
            min_w=None if gpu.cap_range is None else gpu.cap_range.min_w,
            max_w=None if gpu.cap_range is None else gpu.cap_range.max_w,
            requested_w=gpu.requested_w,
            obstacle=gpu.limit_support,
        )
        for gpu in library.inventory()
    ]


def _packages() -> list[Lendable]:
    from autocap.devices.rapl import inventory

    try:
        packages = inventory()
    except DeviceError:  # there is none, or none that can be read
        return []
    return [
        Lendable(
            uuid=package.uuid,
            kind=PACKAGE,
            name=package.name,
            names=(package.uuid.lower(),),
            min_w=package.cap_range.min_w,
            max_w=package.cap_range.max_w,
            requested_w=None if package.limit is None else package.limit.limit_w(),
            obstacle=package.obstacle,
        )
        for package in packages
    ]
