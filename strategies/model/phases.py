"""A card that alternates between computing and moving memory.

Phase i draws `idle + A_i x V(x)²` at the relative clock x, with V flat below a knee and linear above, and runs at the
highest clock that keeps this under the cap, but never below a floor. An iteration takes

    t_c / x_1 + t_m max(1, 0.55 / x_2) + t_host

It gives flat regions above the draw, knees, and the cliff where the clock sits on its floor and the cap is exceeded.
"""

from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from autocap.strategies.model.parameters import CLOCKS, Curves, Floats, Rising, at_odds, dynamic, uniform

_MEMORY_CLOCK = 0.55  # above this share of the full clock, memory is what limits the second phase
_DRAW_ERROR = 0.02  # how far, in ln, a curve's own mean power at the baseline's cap may be from the measured one


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jobs:
    """Jobs on a card, each of shape (curves, 1). dynamic: x V(x)² at CLOCKS; least: at the lowest clock. compute,
    memory, host: times at full clock. idle: power over the mean; peak, second: what the phases draw at full clock, the
    first over the mean, the second's over that of the first. waiting: what is drawn while the host works, of the
    second's."""

    dynamic: Rising
    least: Floats
    compute: Floats
    memory: Floats
    host: Floats
    idle: Floats
    peak: Floats
    second: Floats
    waiting: Floats

    def at(self, setting: Floats, scale_w: Floats) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Mean power, time, and whether the first phase is not held back, each of shape (curves, caps)."""
        idle_w = self.idle * scale_w
        first_w = (self.peak - self.idle) * scale_w
        second_w = self.second * first_w
        above_w = np.asarray(setting - idle_w)
        reached = [np.clip(above_w / most_w, self.least, 1.0) for most_w in (first_w, second_w)]
        x1, x2 = (self.dynamic.clocks(each).clock for each in reached)
        p1, p2 = idle_w + first_w * reached[0], idle_w + second_w * reached[1]
        p3 = idle_w + self.waiting * (p2 - idle_w)
        t1, t2 = self.compute / x1, self.memory * np.maximum(1.0, _MEMORY_CLOCK / x2)
        time = t1 + t2 + self.host
        return (t1 * p1 + t2 * p2 + self.host * p3) / time, time, reached[0] >= 1.0


def phases(settings: Floats, draw_w: float, binding: bool | None, rng: np.random.Generator, count: int) -> Curves:
    """So many curves over the caps, shape (caps,), watts, the last of which is the baseline's, which drew draw_w."""
    jobs = _jobs(int(rng.integers(2**32)), count)
    scale_w = draw_w * np.ones((count, 1))
    for _ in range(4):  # until the mean power at the baseline's cap is the measured one, where that can be
        mean_w, _, _ = jobs.at(settings[None, -1:], scale_w)
        scale_w = np.minimum(scale_w * draw_w / mean_w, 2.5 * draw_w)
    mean_w, time, full = jobs.at(settings[None, :], scale_w)
    misfit = np.log(mean_w[:, -1] / draw_w) / _DRAW_ERROR
    log_weight = -0.5 * misfit**2 - at_odds(~full[:, -1], binding)
    return Curves(log_power=np.log(mean_w), log_time=np.log(time), log_weight=log_weight)


@lru_cache(maxsize=2)
def _jobs(seed: int, count: int) -> _Jobs:
    """So many jobs; the same for the same seed, whatever the card and its baseline."""
    rng = np.random.default_rng(seed)
    drawn = partial(uniform, rng, count)
    knee, flat, floor = drawn(0.3, 0.8), drawn(0.55, 0.95), drawn(0.08, 0.45)
    return _Jobs(
        dynamic=Rising.of(dynamic(CLOCKS, knee, flat)),
        least=dynamic(floor, knee, flat),
        compute=drawn(0.15, 1.0),
        memory=drawn(0.0, 0.6),
        host=drawn(0.0, 0.4) ** 2 / 0.4,
        idle=drawn(0.05, 0.3),
        second=drawn(0.35, 1.0),
        waiting=drawn(0.0, 0.5),
        peak=np.exp(drawn(0.0, 0.9) ** 2 / 0.9),
    )
