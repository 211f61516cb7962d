"""The devices that autocap knows, by kind, and the way to their limits from another process.

`outside_limits` serves the watchdog and `autocap restore`: they meet a device whose controller is gone.
"""

from collections.abc import Callable
from importlib import import_module
from typing import cast

from autocap.devices.base import LimitPort
from autocap.errors import DeviceUnavailable
from autocap.job.processes import ProcessId

# kind -> module, imported only where it is used. Other packages add theirs through entry points of this group: the
# kind as the name, a module laid out like ours as the value.
_MODULES = {
    "emulated": "autocap.devices.emulated",
    "nvml": "autocap.devices.nvml",
    "rapl": "autocap.devices.rapl",
}
_GROUP = "autocap.devices"


def outside_limits(kind: str, job: ProcessId | None) -> LimitPort:
    """The limits of a device of that kind, as seen from a process that does not run it: `limits_from_outside(job)` of
    the device's module. Raises DeviceUnavailable."""
    module = _MODULES.get(kind) or _plugged_in(kind)
    if module is None:
        raise DeviceUnavailable(f"limits of a device of kind '{kind}' cannot be put back by this version of autocap")
    factory = cast(Callable[[ProcessId | None], LimitPort], import_module(module).limits_from_outside)
    return factory(job)


def _plugged_in(kind: str) -> str | None:
    from importlib.metadata import entry_points  # slow to import, and seldom needed

    return next((point.value for point in entry_points(group=_GROUP, name=kind)), None)
