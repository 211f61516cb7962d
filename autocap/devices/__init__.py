"""The devices that autocap knows, by kind, and the way to their limits from another process.

`outside_limits` serves the watchdog and `autocap restore`: they meet a device whose controller is gone.
"""

from collections.abc import Callable
from importlib import import_module
from typing import cast

from autocap.devices.base import LimitPort
from autocap.errors import DeviceUnavailable
from autocap.procs import ProcessId

# kind -> module:function, called with the job's identity (or None); imported only where it is used.
_OUTSIDE = {"emulated": "autocap.devices.emulated:limits_from_outside"}


def outside_limits(kind: str, job: ProcessId | None) -> LimitPort:
    """The limits of a device of that kind, as seen from a process that does not run it. Raises DeviceUnavailable."""
    if kind not in _OUTSIDE:
        raise DeviceUnavailable(f"limits of a device of kind '{kind}' cannot be put back by this version of autocap")
    module, _, function = _OUTSIDE[kind].partition(":")
    factory = cast(Callable[[ProcessId | None], LimitPort], getattr(import_module(module), function))
    return factory(job)
