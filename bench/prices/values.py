"""Hourly values of electricity on days that swing, and what is known of them at a time, as of day-ahead prices."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from autocap.events.quote import PRICE, Quote

Floats = NDArray[np.float64]
HOUR_S = 3600.0
_PUBLISHED = 13  # o'clock, when the prices of the next day are


def swinging(days: int, swing: float, mean: float = 0.3) -> tuple[float, ...]:
    """Money per kWh, hour by hour: each day the same, up and down by `swing` of the mean."""
    hours = np.arange(24 * days)
    return tuple((mean * (1 + swing * np.sin(2 * np.pi * hours / 24))).tolist())


def known(values: Sequence[float], hour: int) -> Quote:
    """What is known in that hour: to the end of the day, and from one o'clock in the afternoon to that of the next."""
    end = (hour // 24 + (2 if hour % 24 >= _PUBLISHED else 1)) * 24
    ahead = range(hour, min(end, len(values)))
    pairs = tuple((HOUR_S * index, values[index]) for index in ahead)
    return Quote(kind=PRICE, values=pairs, until_s=HOUR_S * ahead.stop)
