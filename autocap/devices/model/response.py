"""What precedes a sensor's window, and what is added to it: a first-order low pass, and coloured noise.

Both go on from the state in which the stretch before left them, so stretches may have any length.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SETTLED = 50.0  # time constants after which nothing of the start is left in a float
_AT_ONCE = 300.0  # time constants whose exponential a float holds with room to spare


def low_passed(start: float, values: Floats, spans_s: Floats, time_constant_s: float) -> Floats:
    """A first-order low pass of what is constant over successive spans: the output at the end of each, shape (n,).

    start: the output where the first span begins. values, spans_s: shape (n,).
    """
    steps = np.minimum(spans_s / time_constant_s, _SETTLED)
    passed = np.empty(len(values))
    chunks = (np.cumsum(steps) // _AT_ONCE).astype(int)
    for places in np.split(np.arange(len(values)), np.flatnonzero(np.diff(chunks)) + 1):
        # y' = (x - y) / τ, so y e^(t/τ) grows by x (e^(t₁/τ) - e^(t₀/τ)) over a span.
        ends = np.cumsum(steps[places])
        grown = np.cumsum(values[places] * np.exp(ends) * -np.expm1(-steps[places]))
        passed[places] = (start + grown) * np.exp(-ends)
        start = float(passed[places[-1]])
    return passed


def low_passed_at(t_s: Floats, edges_s: Floats, values: Floats, outputs: Floats, time_constant_s: float) -> Floats:
    """The low pass at any time between the edges; shape of t_s.

    edges_s, outputs: shape (n+1,), where the values change and the output there. values: shape (n,).
    """
    place = np.clip(np.searchsorted(edges_s, t_s, side="right") - 1, 0, len(values) - 1)
    left = np.exp(-(t_s - edges_s[place]) / time_constant_s)
    return values[place] + (outputs[place] - values[place]) * left


def coloured(last: Floats, white: Floats, correlation: float) -> Floats:
    """First-order autoregressive noise of the white noise's variance, shape (m, n).

    last: shape (m,), what went before. white: shape (m, n). correlation: of successive values, 0 to 1.
    """
    memory, echo = _weights(correlation, white.shape[1])
    noise: Floats = np.sqrt(1.0 - correlation**2) * (white @ memory) + last[:, None] * echo
    return noise


@cache
def _weights(correlation: float, count: int) -> tuple[Floats, Floats]:
    """What is left of each of `count` values in each later one, shape (count, count), and of the one before them."""
    lags = np.arange(count)[None, :] - np.arange(count)[:, None]
    memory = np.where(lags >= 0, correlation ** np.maximum(lags, 0), 0.0)
    return memory, correlation ** np.arange(1.0, count + 1)
