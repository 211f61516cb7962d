"""The power limits that a run finds on arrival, which it is going to put back."""

from collections.abc import Sequence

from autocap.devices.base import Device
from autocap.errors import DeviceError


def limits_found(device: Device) -> tuple[float, ...]:
    """The limits found on arrival, watts, read without a guardian; the default where a device does not say."""
    readings = device.read()
    limits_w = [reading.enforced_w if reading.requested_w is None else reading.requested_w for reading in readings]
    return tuple(
        gpu.cap_range.default_w if limit_w is None else limit_w
        for gpu, limit_w in zip(device.gpus, limits_w, strict=True)
    )


def limits_known(limits_w: Sequence[float | None]) -> tuple[float, ...]:
    """The same as a guardian found them, every one of them known. Raises DeviceError for one that is not."""
    unknown = [index for index, limit in enumerate(limits_w) if limit is None]
    if unknown:
        raise DeviceError(f"the limit of GPU {unknown[0]} cannot be read, so it could not be put back; not tuned")
    return tuple(limit for limit in limits_w if limit is not None)
