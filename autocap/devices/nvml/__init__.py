"""NVIDIA GPUs through NVML (`pynvml`). The only place that knows milliwatts.

    with open_library() as library:
        uuids = [gpu.uuid for gpu in library.inventory()]
        device = NvmlDevice(library, uuids, clock, observe=False)
        device.read()

Whether a GPU can do something is found out by asking it, never from its architecture or its name.
"""

from autocap.devices.nvml.limits import limits_from_outside
from autocap.devices.nvml.source import open_source

__all__ = ["limits_from_outside", "open_source"]
