"""Made-up cap curves of training jobs, from a two-phase model that reproduces published ones to a few percent.

While it computes (phase 1) and while it moves memory (phase 2) a card draws

    P_i(x) = idle + A_i x V(x)²       V flat below a knee, linear above, V(1) = 1

at the highest clock x, not below x_min, that keeps P_i under the cap. An iteration takes

    T = t_c / x_1 + t_m max(1, 0.55 / x_2) + t_host

and the mean power is that of the phases and of the host's share by their times. Each curve is kept at a few caps
25 or 50 W apart (5 to 10 W for some) with the error of a single run frozen into it, and is one of six kinds:

    plain      the model alone            cliff     the lowest one or two caps take up to four times as long
    plateau    draws far less than caps   bump      two caps are a few percent off
    lowest     mostly waiting: the lower the cap the cheaper      highest   gains little from low caps
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.strategies.curves import CapCurve

Floats = NDArray[np.float64]

KINDS = ("plain", "cliff", "plateau", "bump", "lowest", "highest")
RANGES_W = ((100.0, 250.0), (100.0, 300.0), (100.0, 260.0), (100.0, 400.0), (125.0, 250.0), (200.0, 700.0))
_OFTEN = (0.25, 0.25, 0.2, 0.08, 0.17, 0.05)  # how often each of them is made
_CLOCKS = np.linspace(0.05, 1.0, 2000)
_RUN_TIME_ERROR, _RUN_POWER_ERROR = 0.01, 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class _Phase:
    """One phase's draw against the clock, arrays over `_CLOCKS`, watts."""

    draw_w: Floats
    floor: float

    def clock(self, cap_w: float) -> float:
        """The highest clock that keeps the draw under the cap, at least the floor."""
        under = int(np.searchsorted(self.draw_w, cap_w, side="right")) - 1
        return max(float(_CLOCKS[max(under, 0)]), self.floor)

    def power_w(self, clock: float) -> float:
        return float(np.interp(clock, _CLOCKS, self.draw_w))


def make(name: str, kind: str, rng: np.random.Generator) -> CapCurve:
    """One curve of a kind; the same generator state gives the same curve."""
    low_w, high_w = RANGES_W[rng.choice(len(RANGES_W), p=_OFTEN)]
    spacing_w = float(rng.choice([25, 50] if kind == "bump" else [5, 10, 25, 25, 50, 50])) * (2 if high_w > 500 else 1)
    caps_w = np.unique(np.append(np.arange(high_w, low_w - 1e-9, -spacing_w), low_w))
    compute, memory, host = _shares(kind, rng)
    peak_w = high_w * {"plateau": rng.uniform(0.4, 0.75), "highest": rng.uniform(1.05, 1.4)}.get(
        kind, rng.uniform(0.75, 1.25)
    )
    idle_w = high_w * rng.uniform(0.07, 0.2)
    knee, flat, floor = rng.uniform(0.35, 0.75), rng.uniform(0.6, 0.85), rng.uniform(0.1, 0.3)
    volts = np.where(knee > _CLOCKS, flat, flat + (1 - flat) * (_CLOCKS - knee) / (1 - knee))
    curve = _CLOCKS * volts**2
    first = _Phase(draw_w=idle_w + (peak_w - idle_w) * curve, floor=floor)
    second = _Phase(draw_w=idle_w + rng.uniform(0.4, 0.95) * (peak_w - idle_w) * curve, floor=floor)
    powers_w, times_s = np.empty(len(caps_w)), np.empty(len(caps_w))
    for place, cap_w in enumerate(caps_w):
        x1, x2 = first.clock(cap_w), second.clock(cap_w)
        parts = np.array([compute / x1, memory * max(1.0, 0.55 / x2), host])
        draws_w = np.array([first.power_w(x1), second.power_w(x2), idle_w + 0.25 * (second.power_w(x2) - idle_w)])
        times_s[place] = parts.sum()
        powers_w[place] = parts @ draws_w / parts.sum()
    if kind == "cliff":
        edge_w = low_w + rng.uniform(0.1, 0.3) * (high_w - low_w)
        depth = np.clip((edge_w - caps_w) / (edge_w - low_w), 0, 1)
        steep = rng.uniform(1.8, 4.5) * times_s[-1] / times_s[0]
        times_s *= 1 + max(steep - 1, 0.3) * depth
    if kind == "bump":
        hit = rng.choice(len(caps_w), size=min(2, len(caps_w)), replace=False)
        times_s[hit] *= 1 + rng.normal(0, 0.02, size=len(hit))
    error = 1.0 if spacing_w >= 25 else 0.3  # many points are those of somebody who measured well
    times_s *= 1 + error * _RUN_TIME_ERROR * rng.standard_normal(len(caps_w))
    powers_w *= 1 + error * _RUN_POWER_ERROR * rng.standard_normal(len(caps_w))
    return CapCurve(
        name=name, caps_w=tuple(caps_w.tolist()), powers_w=tuple(powers_w.tolist()), times_s=tuple(times_s.tolist())
    )


def _shares(kind: str, rng: np.random.Generator) -> tuple[float, float, float]:
    """Computing, memory and host time at full clock, relative."""
    if kind == "lowest":
        return rng.uniform(0.1, 0.3), rng.uniform(0.3, 0.6), rng.uniform(0.2, 0.5)
    if kind == "highest":
        return rng.uniform(0.8, 1.0), rng.uniform(0.0, 0.1), rng.uniform(0.0, 0.05)
    return rng.uniform(0.3, 0.9), rng.uniform(0.05, 0.5), rng.uniform(0.0, 0.2)
