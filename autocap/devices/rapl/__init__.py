"""CPU packages through Linux powercap (RAPL): measured with their memory, capped by their long-term limit.

    packages = list_packages()
    device = RaplDevice(packages, clock, observe=False)
    device.read()

Watts and joules here; `powercap` and `longterm` alone know the kernel's microwatts and microjoules.
"""

from autocap.devices.rapl.device import RaplDevice
from autocap.devices.rapl.limits import RaplLimits, limits_from_outside
from autocap.devices.rapl.packages import RaplPackage, list_packages
from autocap.devices.rapl.source import open_source

__all__ = ["RaplDevice", "RaplLimits", "RaplPackage", "limits_from_outside", "list_packages", "open_source"]
