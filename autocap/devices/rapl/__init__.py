"""CPU packages through Linux powercap (RAPL): measured with their memory, capped by their long-term limit.

    packages = list_packages()
    device = RaplDevice(packages, clock, observe=False)
    device.read()

Watts and joules here; `powercap` and `longterm` alone know the kernel's microwatts and microjoules.
"""

from autocap.devices.rapl.limits import limits_from_outside
from autocap.devices.rapl.source import open_source

__all__ = ["limits_from_outside", "open_source"]
