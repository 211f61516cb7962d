"""NVIDIA GPUs through NVML (`pynvml`). The only place that knows milliwatts.

    with open_library() as library:
        uuids = [gpu.uuid for gpu in library.inventory()]
        device = NvmlDevice(library, uuids, clock, observe=False)
        device.read()

Whether a GPU can do something is found out by asking it, never from its architecture or its name.
"""

from autocap.devices.nvml.calls import NvmlError
from autocap.devices.nvml.card import PowerQuery
from autocap.devices.nvml.device import NvmlDevice
from autocap.devices.nvml.library import Library, NvmlGpu, open_library
from autocap.devices.nvml.limits import NvmlLimits, limits_from_outside
from autocap.devices.nvml.probe import SensorProbe, probe_sensor
from autocap.devices.nvml.source import open_source

__all__ = [
    "Library",
    "NvmlDevice",
    "NvmlError",
    "NvmlGpu",
    "NvmlLimits",
    "PowerQuery",
    "SensorProbe",
    "limits_from_outside",
    "open_library",
    "open_source",
    "probe_sensor",
]
