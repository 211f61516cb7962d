"""A wall meter on the simulated machine: the true power of its GPUs and of all that is around them."""

import math

import numpy as np

from autocap.clock import Clock
from autocap.devices.simulated.device import SimulatedDevice
from autocap.records import NodeReading


class SimulatedMeter:
    """A PowerSource of the whole machine, to be read at least once a second of simulated time.

    rest_w: what all but the device's GPUs draws, while the job runs and before. refresh_s: between readings, each of
    which is the mean since the last. noise: of a reading, relative standard deviation. Equal seeds give equal readings.
    """

    name = "a simulated meter"
    whole = True

    def __init__(
        self,
        device: SimulatedDevice,
        clock: Clock,
        *,
        rest_w: float,
        refresh_s: float = 0.1,
        noise: float = 0.001,
        seed: int = 0,
    ) -> None:
        self._device, self._clock, self._rest_w = device, clock, rest_w
        self.refresh_s, self._noise = refresh_s, noise
        self._rng = np.random.default_rng(np.random.SeedSequence([seed, 1]))
        self._tick = math.floor(clock.now() / refresh_s)
        self._gpu_j = self._counted_j(self._tick * refresh_s)
        self._reading = NodeReading(t_s=self._tick * refresh_s, power_w=None, whole=True)

    def read(self) -> NodeReading:
        tick = math.floor(self._clock.now() / self.refresh_s + 1e-9)
        if tick > self._tick:
            now_s = tick * self.refresh_s
            gpu_j = self._counted_j(now_s)
            power_w = (gpu_j - self._gpu_j) / (now_s - self._tick * self.refresh_s) + self._rest_w
            noise = float(self._rng.standard_normal(tick - self._tick)[-1])
            self._tick, self._gpu_j = tick, gpu_j
            self._reading = NodeReading(t_s=now_s, power_w=power_w * (1 + self._noise * noise), whole=True)
        return self._reading

    def notes(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        """Nothing is held."""

    def _counted_j(self, t_s: float) -> float:
        """What the GPUs have used up to a moment of late, by their counters, between whose updates power is even."""
        views = [self._device.view(gpu) for gpu in range(len(self._device.gpus))]
        return sum(float(np.interp(t_s, view.energy_t_s, view.energy_j)) for view in views)
