"""A card that alternates between computing and moving memory.

Phase i draws `idle + A_i x V(x)²` at the relative clock x, with V flat below a knee and linear above, and runs at the
highest clock that keeps this under the cap, but never below a floor. An iteration takes

    t_c / x_1 + t_m max(1, 0.55 / x_2) + t_host

It gives flat regions above the draw, knees, and the cliff where the clock sits on its floor and the cap is exceeded.
"""

import numpy as np
from numpy.typing import NDArray

from autocap.strategies.model.parameters import Curves, Floats, at_odds, dynamic, uniform

_NEWTON_STEPS = 8
_MEMORY_CLOCK = 0.55  # above this share of the full clock, memory is what limits the second phase
_DRAW_ERROR = 0.02  # how far, in ln, a curve's own mean power at the baseline's cap may be from the measured one


def phases(caps_w: Floats, draw_w: float, binding: bool | None, rng: np.random.Generator, count: int) -> Curves:
    """So many curves over the caps, shape (caps,), watts, the last of which is the baseline's, which drew draw_w."""

    def drawn(low: float, high: float) -> Floats:
        return uniform(rng, low, high, count)

    knee, flat, floor = drawn(0.3, 0.8), drawn(0.55, 0.95), drawn(0.08, 0.45)
    compute, memory, host = drawn(0.15, 1.0), drawn(0.0, 0.6), drawn(0.0, 0.4) ** 2 / 0.4
    idle, second, waiting = drawn(0.05, 0.3), drawn(0.35, 1.0), drawn(0.0, 0.5)
    peak = np.exp(drawn(0.0, 0.9) ** 2 / 0.9)  # the first phase's full draw over the mean draw, before scaling

    def at(cap_w: Floats, scale_w: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Mean power, time, and whether the first phase is not held back, each of shape (curves, caps)."""
        idle_w = idle * scale_w
        first_w = (peak - idle) * scale_w
        second_w = second * first_w
        x1 = np.maximum(_clock((cap_w - idle_w) / first_w, knee, flat), floor)
        x2 = np.maximum(_clock((cap_w - idle_w) / second_w, knee, flat), floor)
        t1, t2 = compute / x1, memory * np.maximum(1.0, _MEMORY_CLOCK / x2)
        p1 = idle_w + first_w * dynamic(x1, knee, flat)
        p2 = idle_w + second_w * dynamic(x2, knee, flat)
        p3 = idle_w + waiting * (p2 - idle_w)
        time = t1 + t2 + host
        return (t1 * p1 + t2 * p2 + host * p3) / time, time, x1 >= 1.0

    scale_w = draw_w * np.ones((count, 1))
    for _ in range(4):  # until the mean power at the baseline's cap is the measured one, where that can be
        mean_w, _, _ = at(caps_w[None, -1:], scale_w)
        scale_w = np.minimum(scale_w * draw_w / mean_w, 2.5 * draw_w)
    mean_w, time, full = at(caps_w[None, :], scale_w)
    misfit = np.log(mean_w[:, -1] / draw_w) / _DRAW_ERROR
    log_weight = -0.5 * misfit**2 - at_odds(~full[:, -1], binding)
    return Curves(log_power=np.log(mean_w), log_time=np.log(time), log_weight=log_weight)


def _clock(wanted: Floats, knee: Floats, flat: Floats) -> Floats:
    """The clock, at most 1, whose x V(x)² is wanted; Newton's steps from above, where it is convex."""
    slope = (1 - flat) / (1 - knee)
    x = np.ones_like(wanted)
    for _ in range(_NEWTON_STEPS):
        volt = flat + slope * np.maximum(x - knee, 0.0)
        gradient = volt**2 + np.where(x > knee, 2 * x * volt * slope, 0.0)
        x = np.clip(x - (x * volt**2 - wanted) / gradient, 1e-3, 1.0)
    return np.asarray(x)
