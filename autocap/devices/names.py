"""Devices named by index or UUID, as --gpus does."""

from collections.abc import Sequence
from typing import Protocol

from autocap.errors import DeviceUnavailable


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
        fitting = [gpu.uuid for gpu in gpus if (str(gpu.index) == name if name.isdigit() else _begins(gpu, name))]
        if len(fitting) != 1:
            what = "fits several" if fitting else "is not there"
            raise DeviceUnavailable(f"--gpus {name} {what}; this machine has {there}")
        found.update(fitting)
    return _ordered(gpus, found)


def _begins(gpu: Named, prefix: str) -> bool:
    return gpu.uuid.lower().startswith(prefix.lower())


def _ordered(gpus: Sequence[Named], uuids: set[str]) -> tuple[str, ...]:
    return tuple(gpu.uuid for gpu in sorted(gpus, key=lambda gpu: gpu.index) if gpu.uuid in uuids)
