"""Is a period in the power real, or the beat of the sensor's sampling with something faster?

A sensor that samples a short window now and then sees a fast cycle as a slow one, and so does the energy counter,
which is read as seldom. But the counter misses nothing: over its longer span it averages the fast cycle away, where a
real slow one would pass. So a real period has the same amplitude in both, once each is corrected for its own window
(the response of a boxcar of width w to a cycle of period T is sin(πw/T)/(πw/T)).
"""

import numpy as np

from autocap.progress.period.estimate import Floats

_HARMONICS = 3
_AT_LEAST = 0.5  # of the amplitude that a real period would have


def is_alias(
    period_s: float, t_s: Floats, power_w: Floats, window_s: float, counted_t_s: Floats, counted_w: Floats
) -> bool:
    """Whether the energy counter contradicts a period found in the power readings.

    t_s, power_w: readings, shape (n,), each a mean over the last window_s. counted_t_s, counted_w: mean power between
    two moves of the counter, at the later one, shape (m,). A counter that is read no more coarsely than the sensor
    averages cannot tell.
    """
    span_s = float(np.median(np.diff(counted_t_s)))
    if len(counted_t_s) < 2 * _HARMONICS or span_s < 2 * window_s:
        return False
    seen = _amplitudes(period_s, t_s, power_w) / _passed(period_s, window_s)
    counted = _amplitudes(period_s, counted_t_s, counted_w) / _passed(period_s, span_s)
    strongest = int(np.argmax(seen))
    return bool(counted[strongest] < _AT_LEAST * seen[strongest])


def _amplitudes(period_s: float, t_s: Floats, values: Floats) -> Floats:
    """Of the first harmonics of a period, shape (harmonics,)."""
    turns = np.exp(-2j * np.pi * np.outer(np.arange(1, _HARMONICS + 1), t_s / period_s))
    amplitudes: Floats = np.abs(turns @ (values - values.mean())) * 2 / len(values)
    return amplitudes


def _passed(period_s: float, window_s: float) -> Floats:
    """The share of each harmonic's amplitude that a boxcar lets through; not less than a tenth, to divide by."""
    shares: Floats = np.abs(np.sinc(np.arange(1, _HARMONICS + 1) * window_s / period_s))
    return np.maximum(shares, 0.1)
