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

import numpy as np

from autocap.strategies.model.parameters import Curves, Floats, at_odds, dynamic, uniform

_CLOCKS = np.geomspace(0.03, 1.0, 48)  # where power and time are computed; between them they are taken to be straight
_LEVEL = (0.72, 1.02)  # the draw while the card works, over the cap that holds it
_LEVEL_ERROR = 0.03  # in ln
_BINDING = 0.6  # share of the curves that the baseline's cap holds back


def memory(caps_w: Floats, draw_w: float, binding: bool | None, rng: np.random.Generator, count: int) -> Curves:
    """So many curves over the caps, shape (caps,), watts, the last of which is the baseline's, which drew draw_w."""

    def drawn(low: float, high: float) -> Floats:
        return uniform(rng, low, high, count)

    at_knee, sharpness = drawn(0.3, 1.05), np.exp(drawn(math.log(3.0), math.log(40.0)))
    idle, moving = drawn(0.05, 0.4), drawn(0.05, 0.5)
    knee, flat, floor = drawn(0.3, 0.85), drawn(0.5, 0.95), drawn(0.05, 0.35)
    host, waiting = drawn(0.0, 0.5) ** 2, drawn(0.0, 0.5)
    binds = rng.random((count, 1)) < _BINDING
    arrival = np.where(binds, drawn(0.55, 1.0), 1.0)  # the clock at the baseline's cap
    level = drawn(*_LEVEL)

    busy = (1 + (at_knee / _CLOCKS) ** sharpness) ** (1 / sharpness)
    working = idle + moving / busy + (1 - idle - moving) * dynamic(_CLOCKS, knee, flat)
    host = host * busy[:, -1:]
    mean = (busy * working + host * (idle + waiting * (working - idle))) / (busy + host)
    scale_w = draw_w / _at(arrival, mean)
    at_arrival = _at(arrival, working) * scale_w / caps_w[-1]
    too_high = np.log(at_arrival / np.where(binds, _LEVEL[1], level))
    too_low = np.where(binds, np.log(_LEVEL[0] / at_arrival), 0.0)
    misfit = (np.maximum(too_high, 0.0) + np.maximum(too_low, 0.0)) / _LEVEL_ERROR
    clock = _clock(np.where(binds, at_arrival, level) * caps_w / scale_w, working)
    clock = np.clip(clock, np.minimum(floor, arrival), 1.0)
    log_weight = -0.5 * misfit[:, 0] ** 2 - at_odds(binds[:, 0], binding)
    return Curves(
        log_power=np.log(_at(clock, mean) * scale_w), log_time=np.log(_at(clock, busy) + host), log_weight=log_weight
    )


def _at(clock: Floats, values: Floats) -> Floats:
    """Each row of values, given at _CLOCKS, at that row of clocks; both of shape (curves, anything)."""
    place = np.clip(np.searchsorted(_CLOCKS, clock, side="right") - 1, 0, len(_CLOCKS) - 2)
    part = (clock - _CLOCKS[place]) / (_CLOCKS[place + 1] - _CLOCKS[place])
    low = np.take_along_axis(values, place, axis=1)
    return np.asarray(low + part * (np.take_along_axis(values, place + 1, axis=1) - low))


def _clock(wanted: Floats, values: Floats) -> Floats:
    """The clock at which each row of values, given at _CLOCKS and rising, has that row of wanted; at most 1."""
    low, high = values[:, :1], values[:, -1:]
    scaled, sought = (values - low) / (high - low), np.clip((wanted - low) / (high - low), 0.0, 1.0)
    row = np.arange(len(values))[:, None]
    place = np.searchsorted((scaled + 2 * row).ravel(), (sought + 2 * row).ravel(), side="right") - 1  # in every row
    place = np.clip(place.reshape(sought.shape) - row * values.shape[1], 0, values.shape[1] - 2)
    below, above = np.take_along_axis(scaled, place, axis=1), np.take_along_axis(scaled, place + 1, axis=1)
    part = np.clip((sought - below) / np.maximum(above - below, 1e-12), 0.0, 1.0)
    return np.asarray(_CLOCKS[place] + part * (_CLOCKS[place + 1] - _CLOCKS[place]))
