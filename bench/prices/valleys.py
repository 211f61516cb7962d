"""Curves with two valleys: a published one on which some caps are slower than they should be, as where a card's clock
falls back to a step below."""

import numpy as np

from autocap.devices.model.profiles import Profile
from bench.prices.values import Floats

_WIDTH_W, _SLOWER = 12.0, 0.05


class TwoValleys:
    """A profile whose time per iteration is up to 5 % longer around a cap, watts, at the same power."""

    def __init__(self, profile: Profile, at_w: float) -> None:
        self.name, self.cap_range = f"{profile.name}, slower at {at_w:g} W", profile.cap_range
        self._profile, self._at_w = profile, at_w

    def time_s(self, caps_w: float | Floats) -> Floats:
        at_w = np.asarray(caps_w, dtype=np.float64)
        away = (at_w - self._at_w) / _WIDTH_W
        return np.asarray(self._profile.time_s(at_w) * (1 + _SLOWER * np.exp(-0.5 * away**2)))

    def power_w(self, caps_w: float | Floats) -> Floats:
        return np.asarray(self._profile.power_w(np.asarray(caps_w, dtype=np.float64)))

    def energy_j(self, caps_w: float | Floats) -> Floats:
        return self.power_w(caps_w) * self.time_s(caps_w)
