"""The emulated device: a job's own processes play the GPU, and a cap slows them down as a published profile says."""

from autocap.devices.emulated.device import EmulatedDevice, limits_from_outside

__all__ = ["EmulatedDevice", "limits_from_outside"]
