"""Power and time per iteration against the cap: the published curves that emulated and simulated devices follow.

Average power while training at a cap c is a power law above a floor, with the default cap c0 and its draw P0; time
follows from that power, with the default cap's time t0 and three parameters (m memory-bound share, s static share, g
exponent):

    P = P0 ((c/c0 - x) / (1 - x))^q
    t = t0 (m + (1 - m) / f),    f = ((P/P0 - s) / (1 - s))^(1/g)

Both are smooth and monotone over the whole range. `python -m bench.tables.fit_profiles` made the numbers in
`krzywaniak2022.json` from published tables; the file names its source.
"""

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from autocap.devices.model import DATA, require_profile
from autocap.records import CapRange

Floats = NDArray[np.float64]
Caps = TypeVar("Caps", float, Floats)  # one cap or many, watts; what follows from them has the same form

_TOLERANCE_W = 1e-6


class Shape(Protocol):
    """Power and time against c/c0, the cap over the default cap; arrays of any shape."""

    def power_w(self, relative_cap: Floats) -> Floats:
        """Average draw, watts."""

    def slowdown(self, relative_cap: Floats) -> Floats:
        """t/t0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurveShape:
    """The six numbers of a curve; the module's docstring has the formulas.

    default_power_w: P0. cap_floor: x. power_exponent: q. memory_share: m. static_share: s. clock_exponent: g.
    """

    default_power_w: float
    cap_floor: float
    power_exponent: float
    memory_share: float
    static_share: float
    clock_exponent: float

    def power_w(self, relative_cap: Floats) -> Floats:
        """Average draw, watts, at c/c0."""
        relative = (relative_cap - self.cap_floor) / (1.0 - self.cap_floor)
        return np.asarray(self.default_power_w * relative**self.power_exponent)

    def slowdown(self, relative_cap: Floats) -> Floats:
        """t/t0 at c/c0."""
        relative = self.power_w(relative_cap) / self.default_power_w
        speed = ((relative - self.static_share) / (1.0 - self.static_share)) ** (1.0 / self.clock_exponent)
        return np.asarray(self.memory_share + (1.0 - self.memory_share) / speed)


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """One network on one card, for every cap that the card accepts.

    batch_size: images per iteration. default_time_s: seconds per iteration at the default cap. idle_w: draw of the
    card while nothing runs. source: where the curve was published.
    """

    name: str
    gpu_name: str
    cap_range: CapRange
    batch_size: int
    default_time_s: float
    idle_w: float
    shape: Shape
    source: str

    def power_w(self, cap_w: Caps) -> Caps:
        """Mean board draw while training at a cap, watts. Raises ValueError for a cap outside the range."""
        return _like(cap_w, self.shape.power_w(self._relative(cap_w)))

    def time_s(self, cap_w: Caps) -> Caps:
        """Seconds per iteration at a cap. Raises ValueError for a cap outside the range."""
        return _like(cap_w, self.default_time_s * self.shape.slowdown(self._relative(cap_w)))

    def energy_j(self, cap_w: Caps) -> Caps:
        """Joules per iteration at a cap. Raises ValueError for a cap outside the range."""
        relative = self._relative(cap_w)
        return _like(cap_w, self.shape.power_w(relative) * self.default_time_s * self.shape.slowdown(relative))

    def slowdown(self, cap_w: Caps) -> Caps:
        """Time per iteration at a cap over that at the default cap. Raises ValueError outside the range."""
        return _like(cap_w, self.shape.slowdown(self._relative(cap_w)))

    def _relative(self, cap_w: float | Floats) -> Floats:
        caps_w = np.asarray(cap_w, dtype=np.float64)
        low, high = self.cap_range.min_w, self.cap_range.max_w
        if not np.all((caps_w >= low - _TOLERANCE_W) & (caps_w <= high + _TOLERANCE_W)):
            raise ValueError(f"cap {cap_w} W lies outside the {low:g} to {high:g} W of profile {self.name}")
        return caps_w / self.cap_range.default_w


def _like(cap_w: Caps, value: Floats) -> Caps:
    """A plain float for one cap, the array for many."""
    return cast(Caps, value if value.ndim else float(value))


def load(name: str) -> Profile:
    """The profile of that name. Raises UsageError with the names that there are."""
    require_profile(name)
    return _profiles()[name]


@cache
def _profiles() -> dict[str, Profile]:
    data = json.loads(DATA.read_text(encoding="utf-8"))  # test_profiles reads every entry
    profiles = (_profile(curve, data["cards"][curve["card"]], data["source"]) for curve in data["curves"])
    return {profile.name: profile for profile in profiles}


def _profile(curve: dict[str, Any], card: dict[str, Any], source: str) -> Profile:
    return Profile(
        name=f"{curve['card']}/{curve['network']}",
        gpu_name=card["gpu_name"],
        cap_range=CapRange(min_w=card["cap_min_w"], max_w=card["cap_max_w"], default_w=card["cap_default_w"]),
        batch_size=curve["batch_size"],
        default_time_s=curve["default_time_s"],
        idle_w=card["idle_w"],
        shape=CurveShape(**curve["shape"]),
        source=source,
    )
