"""Which devices of a kind this machine has, who uses them, and which limits each has.

Whoever acts for several jobs asks it: the helper, a power budget, `autocap devices`. A kind has one in the registry
where others than the session of a job may look at its devices; a session finds its own through a `DeviceSource`. It is
there on every machine, and looks anew each time, so that a driver may come and go.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

from autocap.clock import Clock
from autocap.devices.base import LimitPort, Tunable
from autocap.devices.permission import Settable
from autocap.errors import DeviceError, DeviceUnavailable
from autocap.records import CapRange, Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedDevice:
    """One device now; `None` where it does not say.

    noun: what messages call it. address: where it is plugged in, as lspci -D writes it. cap_range: the caps that it
    takes. default_w, requested_w, enforced_w: limits, watts. obstacle: why its limit cannot be set, whoever asks;
    `None` where nothing speaks against it. driver: its version.
    """

    index: int
    uuid: str
    kind: str
    name: str
    noun: str = "GPU"
    address: str | None = None
    cap_range: CapRange | None = None
    default_w: float | None = None
    requested_w: float | None = None
    enforced_w: float | None = None
    obstacle: str | None = None
    driver: str | None = None

    @property
    def where(self) -> str:
        """What messages call it."""
        return f"{self.noun} {self.index}"

    @property
    def names(self) -> tuple[str, ...]:
        """What rules may call it, lower case."""
        return (self.uuid.lower(), *(() if self.address is None else (self.address,)))


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorSeen:
    """How a GPU's power sensor behaved for some seconds.

    source: what power is read from. update_s: between fresh readings. counter_j, integrated_j: the same stretch of time
    by the energy counter and by the power readings. trouble: why the sensor, or its counter, is not to be used.
    """

    source: str | None = None
    update_s: float | None = None
    energy_counter: bool | None = None
    counter_j: float | None = None
    integrated_j: float | None = None
    trouble: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedDevice:
    """direct: whether this process could set its limit. facts: what else its kind says of it, by the names that
    `autocap devices --json` has."""

    device: ListedDevice
    direct: Settable
    facts: Mapping[str, Any] = field(default_factory=dict)


class HoldableDevice(Tunable, Protocol):
    """Devices whose limits are held for others, one of which may fail without the rest."""

    @property
    def most_hz(self) -> tuple[float | None, ...]:
        """The highest clock of each, hertz; `None` where it does not say."""

    def read_each(self) -> Sequence[Reading | DeviceError]:
        """As `read`, with the error in the place of the reading of one that is lost."""


class Inventory(Protocol):
    """The devices of one kind; a context manager, to be asked from any thread. Whatever asks may raise DeviceError.

    noun: what messages call one. unreadable: why those that the latest look did not find are missing, sentences.
    shared: why the limit of one is no job's alone, a clause; `None` where a job may have it to itself.
    """

    noun: str = "GPU"
    unreadable: tuple[str, ...] = ()
    shared: str | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing is held, unless a kind says so."""
        return

    def devices(self) -> tuple[ListedDevice, ...]:
        """All that can be read, in the order of their numbers."""

    def described(self) -> tuple[DescribedDevice, ...]:
        """The same at length, which may take some seconds."""

    def pids(self, uuid: str) -> tuple[int, ...] | None:
        """Whatever uses a device; `None` where that is not listed."""

    def limits(self) -> LimitPort:
        """A setter for one lease; it looks at what is requested, and waits for nothing."""


class HoldableInventory(Inventory, Protocol):
    """Of devices that a job may have to itself, so that their limits can be held for it."""

    def hold(self, uuids: Sequence[str], clock: Clock) -> HoldableDevice:
        """Some of them, opened."""


class Named(Protocol):
    """What --gpus calls a device of the machine by."""

    @property
    def index(self) -> int: ...

    @property
    def uuid(self) -> str: ...


def named(gpus: Sequence[Named], names: Sequence[str]) -> tuple[str, ...]:
    """The UUIDs of the GPUs (or CPU packages) that --gpus names by index, UUID or the beginning of one, in the driver's
    order.

    Raises DeviceUnavailable for a name that fits none or several.
    """
    there = ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus) or "none"
    found = set()
    for name in names:
        fitting = [gpu.uuid for gpu in gpus if (str(gpu.index) == name if name.isdigit() else begins(gpu, name))]
        if len(fitting) != 1:
            what = "fits several" if fitting else "is not there"
            raise DeviceUnavailable(f"--gpus {name} {what}; this machine has {there}")
        found.update(fitting)
    return in_order(gpus, found)


def begins(gpu: Named, prefix: str) -> bool:
    """Whether its UUID does."""
    return gpu.uuid.lower().startswith(prefix.lower())


def in_order(gpus: Sequence[Named], uuids: set[str]) -> tuple[str, ...]:
    """Of these UUIDs, the driver's."""
    return tuple(gpu.uuid for gpu in sorted(gpus, key=lambda gpu: gpu.index) if gpu.uuid in uuids)
