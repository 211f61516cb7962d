"""How many calls of a function make an iteration, from how the times between them repeat.

A framework launches the kernels of an iteration in the same order each time, so the n-th gap from here is much like
this one. Gaps differ by orders of magnitude, so their logarithms are compared: by their correlation with those n calls
later, and, where n varies by a little from iteration to iteration, by how many calls there are between two long gaps.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

FEWEST_GAPS = 64  # of which a repetition may be told
_FEWEST_EVEN = 8
_FEWEST_REPEATS = 5
_LEAST_S = 1e-7  # a gap; clocks are no finer
_EVEN_SPREAD = 1.5  # the longest gap to the shortest of the middle four fifths
_LONG = 3.0  # times the usual gap
_LONG_SHARE = 0.2  # of the time
_CORRELATES, _SIGMAS = 0.5, 5.0
_CORRELATES_AT_ALL = 0.25  # on a machine that others use, where gaps are lengthened at random
_STANDS_OUT = 0.25  # a correlation over the least one of fewer calls: of a slow change that falls all the way
_AGAIN = 0.6  # of it, after twice as many calls
_AS_GOOD, _AS_GOOD_SIGMAS = 0.05, 4.0
_PAUSES = 0.005  # share of the gaps that may be something other than training
_APART = math.log(4.0)  # long gaps from short ones
_FEWEST_BURSTS, _MOST_BURSTS = 16, 8  # in all, and that make an iteration
_VARIES = 0.1  # an iteration's calls
_IN_ORDER = 0.25  # times what bursts in no order would vary together
_FEWEST_CALLS = 4.0  # of a burst, the mean: of fewer, long gaps and short ones are mixed


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """calls: of an iteration, the mean. first: which of the calls looked at is in the middle between two long gaps, so
    that a call more or less in an iteration does not move a long gap from one into the next."""

    calls: float
    first: int


def is_even(t_s: Floats) -> bool:
    """Whether each call may be an iteration of its own, as nearly all of the time lies between calls that follow one
    another evenly. t_s: when they were, shape (n,), seconds."""
    gaps_s = np.diff(t_s)
    if gaps_s.size < _FEWEST_EVEN:
        return False
    short_s, usual_s, long_s = np.quantile(gaps_s, (0.1, 0.5, 0.9))
    return bool(long_s <= _EVEN_SPREAD * short_s and _long_share(gaps_s, float(usual_s)) <= _LONG_SHARE)


def is_fair(t_s: Floats) -> bool:
    """The same, of calls that follow one another less evenly, but not in bursts."""
    gaps_s = np.diff(t_s)
    return gaps_s.size >= _FEWEST_EVEN and _long_share(gaps_s, float(np.median(gaps_s))) <= _LONG_SHARE


def _long_share(gaps_s: Floats, usual_s: float) -> float:
    return float(gaps_s[gaps_s > _LONG * usual_s].sum() / max(gaps_s.sum(), _LEAST_S))


def repetition(t_s: Floats) -> Repetition | None:
    """What repeats in the calls; `None` where nothing does clearly. t_s: when they were, shape (n,), seconds."""
    logs = np.log(np.maximum(np.diff(t_s), _LEAST_S))
    if logs.size < FEWEST_GAPS:
        return None
    logs = np.minimum(logs, np.quantile(logs, 1 - _PAUSES) if logs.size * _PAUSES > 1 else logs.max())
    return _by_correlation(logs, _CORRELATES) or _by_bursts(logs) or _by_correlation(logs, _CORRELATES_AT_ALL)


def _by_correlation(logs: Floats, least: float) -> Repetition | None:
    correlation = _correlation(logs)
    if correlation.size == 0:
        return None
    lags = np.arange(1, correlation.size + 1)
    sigmas = 1 / np.sqrt(logs.size - lags)
    lowest = np.minimum.accumulate(correlation)
    fits = (correlation >= np.maximum(_CORRELATES_AT_ALL, _SIGMAS * sigmas)) & (correlation - lowest >= _STANDS_OUT)
    half = correlation.size // 2
    fits[half:] = False
    fits[:half] &= correlation[1 : 2 * half : 2] >= _AGAIN * correlation[:half]
    best = float(correlation[fits].max()) if fits.any() else 0.0
    if best < least:
        return None
    as_good = fits & (correlation >= best - np.maximum(_AS_GOOD, _AS_GOOD_SIGMAS * (1 - best) * sigmas))
    calls = int(lags[as_good][0])
    phases = np.bincount(np.arange(logs.size) % calls, weights=logs) / np.bincount(np.arange(logs.size) % calls)
    return Repetition(calls=float(calls), first=(int(np.argmax(phases)) + 1 + calls // 2) % calls)


def _correlation(logs: Floats) -> Floats:
    """Of the gaps with those 1, 2, ... calls later, as far as these repeat often enough."""
    centred = logs - logs.mean()
    variance = float(centred @ centred) / logs.size
    if variance <= 0:
        return np.empty(0)
    size = 1 << (2 * logs.size - 1).bit_length()
    products = np.fft.irfft(np.abs(np.fft.rfft(centred, size)) ** 2, size)[: 2 * logs.size // _FEWEST_REPEATS + 1]
    found: Floats = products[1:] / (logs.size - np.arange(1, products.size)) / variance
    return found


def _by_bursts(logs: Floats) -> Repetition | None:
    """By the calls between two long gaps, or from one to the second, third, ... after it."""
    ends = np.flatnonzero(logs > _between(logs))
    if ends.size <= _FEWEST_BURSTS or ends.size * _FEWEST_CALLS > logs.size:
        return None
    shuffled = float(np.std(np.diff(ends)))
    for bursts in range(1, min(_MOST_BURSTS, ends.size // _FEWEST_REPEATS) + 1):
        calls = (ends[bursts:] - ends[:-bursts]).astype(float)
        middle = float(np.median(calls))
        spread = 1.4826 * float(np.median(np.abs(calls - middle)))
        most = _VARIES * middle if bursts == 1 else min(_VARIES * middle, _IN_ORDER * math.sqrt(bursts) * shuffled)
        if middle >= _FEWEST_CALLS * bursts and spread <= most:
            mean = float(calls[np.abs(calls - middle) <= max(1.0, 3 * spread)].mean())
            return Repetition(calls=mean, first=int(ends[0] + 1 + mean / 2) % max(1, int(mean)))
    return None


def _between(logs: Floats) -> float:
    """Where short gaps end and long ones begin (Otsu 1979); inf where they are not far apart."""
    ordered = np.sort(logs)
    below = np.arange(1, ordered.size)
    sums = np.cumsum(ordered)
    low, high = sums[:-1] / below, (sums[-1] - sums[:-1]) / (ordered.size - below)
    cut = int(np.argmax(below * (ordered.size - below) * (high - low) ** 2))
    if high[cut] - low[cut] < _APART:
        return math.inf
    return float(ordered[cut] + ordered[cut + 1]) / 2
