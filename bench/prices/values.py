"""Hourly values of electricity: a day that swings, and a year with seasons, weekends, calm and windy weeks, and hours
below 0; and what is known of them at a time, as of day-ahead prices."""

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autocap.events.quote import PRICE, Quote
from autocap.session.prices.reading import read_file

Floats = NDArray[np.float64]
HOUR_S = 3600.0
_PUBLISHED = 13  # o'clock, when the prices of the next day are
_MEAN = 0.09  # money per kWh
_YEAR_H = 8760


def swinging(days: int, swing: float, mean: float = 0.3) -> tuple[float, ...]:
    """Money per kWh, hour by hour: each day the same, up and down by `swing` of the mean."""
    hours = np.arange(24 * days)
    return tuple((mean * (1 + swing * np.sin(2 * np.pi * hours / 24))).tolist())


def year(seed: int) -> tuple[float, ...]:
    """Money per kWh in 8760 hours that nobody has seen: dearer in winter and at seven in the evening, cheap at noon in
    summer and at weekends, lower for days at a time in wind, and below 0 where much of that comes together."""
    rng = np.random.default_rng(seed)
    hours = np.arange(_YEAR_H)
    day, clock = hours // 24, hours % 24
    winter = np.cos(2 * np.pi * (day - 15) / 365)
    summer = (1 - winter) / 2
    level = 1 + 0.25 * winter - 0.2 * (day % 7 >= 5)
    peaks = 0.25 * _bump(clock, 8, 2) + 0.45 * _bump(clock, 19, 2.5)
    sun = _bump(clock, 13, 3) * (0.25 + 0.85 * summer) * (0.6 + 0.8 * rng.random(365 + 1)[day])
    wind = _slow(rng, _YEAR_H, hours_long=40)
    noise = _slow(rng, _YEAR_H, hours_long=3)
    return tuple((_MEAN * (level + peaks - sun + 0.35 * wind + 0.08 * noise)).tolist())


def _bump(clock: NDArray[np.int_], at: float, width: float) -> Floats:
    return np.asarray(np.exp(-0.5 * ((clock - at) / width) ** 2))


def _slow(rng: np.random.Generator, count: int, hours_long: float) -> Floats:
    """A random walk that is drawn back to 0 within so many hours, of standard deviation 1."""
    stay = np.exp(-1 / hours_long)
    out, value = np.empty(count), 0.0
    for index, step in enumerate(rng.standard_normal(count)):
        value = stay * value + np.sqrt(1 - stay**2) * float(step)
        out[index] = value
    return out


def known(values: Sequence[float], hour: int) -> Quote:
    """What is known in that hour: to the end of the day, and from one o'clock in the afternoon to that of the next."""
    end = (hour // 24 + (2 if hour % 24 >= _PUBLISHED else 1)) * 24
    ahead = range(hour, min(end, len(values)))
    pairs = tuple((HOUR_S * index, values[index]) for index in ahead)
    return Quote(kind=PRICE, values=pairs, until_s=HOUR_S * ahead.stop)


def from_file(path: Path) -> tuple[float, ...]:
    """Hour by hour, money per kWh: the values of a file as `--energy-price file:` has it, from its first on."""
    series = read_file(path, PRICE)
    times_s = [time_s for time_s, _ in series.steps]
    hours = np.arange(times_s[0], series.until_s - HOUR_S / 2, HOUR_S)
    values = [series.steps[bisect_right(times_s, hour_s) - 1][1] for hour_s in hours]
    if not values or None in values:
        raise ValueError(f"{path} has gaps, or less than an hour; give a value for each hour")
    return tuple(value for value in values if value is not None)


def described(values: Sequence[float]) -> str:
    """In a line."""
    prices = np.array(values)
    days = prices[: len(prices) // 24 * 24].reshape(-1, 24)
    swing = float(np.median((days.max(axis=1) - days.min(axis=1)) / 2 / np.abs(days.mean(axis=1))))
    return (
        f"{len(prices)} hours, {prices.mean():.3f} per kWh in the mean, {prices.min():.3f} to {prices.max():.3f}, "
        f"{int((prices < 0).sum())} hours below 0; half of the days swing by more than {100 * swing:.0f} % up and down"
    )
