"""Three plain ways to find a period, to hold the detector against. Each gets the readings on a uniform grid and gives
seconds, or nothing; none says how sure it is.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

_SHORTEST_UPDATES = 2.2
_FEWEST_CYCLES = 8
_YIN_THRESHOLD = 0.15


def fft_peak(even: Floats, step_s: float) -> float | None:
    """The largest line of the spectrum (what several published power-signal detectors do)."""
    power = np.abs(np.fft.rfft((even - even.mean()) * np.hanning(len(even)))) ** 2
    low, high = _FEWEST_CYCLES, int(len(even) / _SHORTEST_UPDATES)
    if high <= low:
        return None
    place = low + int(np.argmax(power[low:high]))
    left, here, right = power[place - 1 : place + 2] if place + 1 < len(power) else (0.0, 1.0, 0.0)
    bend = left - 2 * here + right
    return len(even) * step_s / (place + (0.5 * float((left - right) / bend) if bend else 0.0))


def autocorrelation_peak(even: Floats, step_s: float) -> float | None:
    """The highest local maximum of the autocorrelation."""
    centred = even - even.mean()
    spectrum = np.abs(np.fft.rfft(centred, 2 * len(centred))) ** 2
    repeats = np.fft.irfft(spectrum)[: len(centred) // _FEWEST_CYCLES]
    inner = np.arange(max(2, int(_SHORTEST_UPDATES)), len(repeats) - 1)
    tops = inner[(repeats[inner] >= repeats[inner - 1]) & (repeats[inner] > repeats[inner + 1])]
    if len(tops) == 0:
        return None
    return _sharpened(repeats, int(tops[np.argmax(repeats[tops])])) * step_s


def yin(even: Floats, step_s: float) -> float | None:
    """The first dip of the cumulative mean normalised difference (de Cheveigné and Kawahara, 2002)."""
    longest = len(even) // _FEWEST_CYCLES
    size = len(even) - longest
    differences = np.array([np.sum((even[:size] - even[lag : lag + size]) ** 2) for lag in range(longest)])
    lags = np.arange(1, longest)
    normal = np.concatenate(([1.0], differences[1:] * lags / np.maximum(np.cumsum(differences[1:]), 1e-12)))
    inner = np.arange(2, longest - 1)
    dips = inner[(normal[inner] <= normal[inner - 1]) & (normal[inner] < normal[inner + 1])]
    if len(dips) == 0:
        return None
    deep = dips[normal[dips] < _YIN_THRESHOLD]
    return _sharpened(-normal, int(deep[0] if len(deep) else dips[np.argmin(normal[dips])])) * step_s


RIVALS: dict[str, Callable[[Floats, float], float | None]] = {
    "fft": fft_peak,
    "autocorrelation": autocorrelation_peak,
    "yin": yin,
}


def rival(name: str, t_s: Floats, power_w: Floats, update_s: float) -> float | None:
    """What a plain method finds in readings with their own stamps."""
    grid_s = np.arange(t_s[0], t_s[-1], update_s)
    return RIVALS[name](np.interp(grid_s, t_s, power_w), update_s)


def _sharpened(values: Floats, place: int) -> float:
    """A local maximum's place, by a parabola."""
    left, here, right = values[place - 1 : place + 2]
    bend = float(left - 2 * here + right)
    return place + (0.5 * float(left - right) / bend if bend else 0.0)
