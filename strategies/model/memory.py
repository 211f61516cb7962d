"""Jobs that wait for memory: a flat top, then a knee, then a cliff, as language models and streaming kernels have them.

While the card works, computing takes x_k / x of what moving the memory takes, at the relative clock x. The two overlap,
the better the sharper the knee at x_k:

    t(x) = (1 + (x_k / x)^p)^(1/p)

It draws an idle share, a share for the memory, which is busy for 1 / t of the time, and the rest as x V(x)², with V
flat below a knee of its own and linear above. The clock is the highest that keeps this under a level that is a constant
share of the cap, but never below a floor: there the limit stops to act. Between the iterations the host works, and the
card draws less.
"""

import math
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from autocap.strategies.model.parameters import CLOCKS, Between, Curves, Floats, Rising, at_odds, dynamic, uniform

_LEVEL = (0.72, 1.02)  # the draw while the card works, over the cap that holds it
_LEVEL_ERROR = 0.03  # in ln
_BINDING = 0.6  # share of the curves that the baseline's cap holds back


@dataclass(frozen=True, slots=True, kw_only=True)
class _Jobs:
    """Jobs at every relative clock of CLOCKS. working: power while the card works. mean: on the whole; log_time: ln of
    the time of an iteration, of any unit; both of shape (curves, clocks). The rest is of shape (curves, 1).

    binds: whether the baseline's cap holds the clock down, to `arrival`. at_arrival: the power while it works there.
    level: that over the cap that holds it, where the baseline's does not. least: the power at the lowest clock.
    """

    working: Rising
    mean: Floats
    log_time: Floats
    binds: NDArray[np.bool_]
    arrival: Between
    at_arrival: Floats
    level: Floats
    least: Floats


def memory(settings: Floats, draw_w: float, binding: bool | None, rng: np.random.Generator, count: int) -> Curves:
    """So many curves over the caps, shape (caps,), watts, the last of which is the baseline's, which drew draw_w."""
    jobs = _jobs(int(rng.integers(2**32)), count)
    scale_w = draw_w / jobs.arrival.of_values(jobs.mean)
    found = jobs.at_arrival * scale_w / settings[-1]  # the level, if it is the baseline's cap that holds the clock
    too_high = np.log(found / np.where(jobs.binds, _LEVEL[1], jobs.level))
    too_low = np.where(jobs.binds, np.log(_LEVEL[0] / found), 0.0)
    misfit = (np.maximum(too_high, 0.0) + np.maximum(too_low, 0.0)) / _LEVEL_ERROR
    held = np.where(jobs.binds, found, jobs.level) / scale_w * settings
    clocks = jobs.working.clocks(np.maximum(held, jobs.least))
    return Curves(
        log_power=np.log(clocks.of_values(jobs.mean) * scale_w),
        log_time=clocks.of_values(jobs.log_time),
        log_weight=-0.5 * misfit[:, 0] ** 2 - at_odds(jobs.binds[:, 0], binding),
    )


@lru_cache(maxsize=2)
def _jobs(seed: int, count: int) -> _Jobs:
    """So many jobs; the same for the same seed, whatever the card and its baseline."""
    rng = np.random.default_rng(seed)
    drawn = partial(uniform, rng, count)
    at_knee, sharpness = drawn(0.3, 1.05), np.exp(drawn(math.log(3.0), math.log(40.0)))
    idle, moving = drawn(0.05, 0.4), drawn(0.05, 0.5)
    knee, flat, floor = drawn(0.3, 0.85), drawn(0.5, 0.95), drawn(0.05, 0.35)
    host, waiting = drawn(0.0, 0.5) ** 2, drawn(0.0, 0.5)
    binds = rng.random((count, 1)) < _BINDING
    arrival = Between.of(np.where(binds, drawn(0.55, 1.0), 1.0))
    busy = (1 + (at_knee / CLOCKS) ** sharpness) ** (1 / sharpness)
    working = idle + moving / busy + (1 - idle - moving) * dynamic(CLOCKS, knee, flat)
    host = host * busy[:, -1:]
    time = busy + host
    return _Jobs(
        working=Rising.of(working),
        mean=(busy * working + host * (idle + waiting * (working - idle))) / time,
        log_time=np.log(time),
        binds=binds,
        arrival=arrival,
        at_arrival=arrival.of_values(working),
        level=drawn(*_LEVEL),
        least=Between.of(floor).of_values(working),
    )
