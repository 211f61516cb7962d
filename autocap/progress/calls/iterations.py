"""Iterations of a job out of the calls of its processes: so many calls each, as their repetition tells.

A framework launches the kernels of an iteration in the same order each time, so the n-th gap from here is much like
this one. Gaps differ by orders of magnitude, so their logarithms are compared: by their correlation with those n calls
later, and, where n varies by a little from iteration to iteration, by how many calls there are between two long gaps.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from autocap.job.processes import ProcessId
from autocap.progress.calls.target import CallsUnavailable, CallTarget
from autocap.progress.ranks import ProcessSteps

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


_MOST = 16384  # calls


class CallStamps:
    """A stretch of calls that follow one another, without any between them whose time is not known."""

    def __init__(self) -> None:
        self._t_s: list[float] = []
        self._count = 0

    def add(self, t_s: Sequence[float] | None, count: int) -> None:
        """More calls, by times in their order; `None` where some of theirs are not known. count: with these, in all."""
        if t_s is None or self._count + len(t_s) != count:
            self._t_s = []
        self._t_s.extend(t_s or ())
        self._count = count
        if len(self._t_s) > 2 * _MOST:
            del self._t_s[:-_MOST]

    @property
    def first(self) -> int:
        """The number of the oldest call whose time is known; the first one's is 1."""
        return self._count - len(self._t_s) + 1

    @property
    def t_s(self) -> npt.NDArray[np.float64]:
        """Shape (calls,), seconds on the system's monotonic clock."""
        return np.array(self._t_s)

    def __len__(self) -> int:
        return len(self._t_s)

    def of(self, number: int) -> float | None:
        """When the call of that number was; `None` where that is not known."""
        at = number - self.first
        return self._t_s[at] if 0 <= at < len(self._t_s) else None


_FIRST_LOOK, _GROWTH = 9, 1.25  # calls; two looks at once would see the same
_EVEN_S = 1.0  # of calls, before they are said to be even: a burst alone may be
_FAIR_S, _PATIENCE_S = 10.0, 60.0
_ALIKE = 0.02  # two looks


@dataclass(slots=True)
class _Counted:
    """Of one process. first: the number of the call that ended the iteration before its first one. begun_s: when that
    was. steps: what was last known."""

    first: int
    begun_s: float = 0.0
    steps: ProcessSteps | None = None


class CallIterations:
    """calls: of an iteration, `None` while that is not known. A constant multiple does no harm: it is found once, for
    all the processes of a job, and kept."""

    def __init__(self, target: CallTarget) -> None:
        self._target = target
        self.calls: float | None = None
        self._since_s: float | None = None
        self._looked = 0  # calls
        self._before: Repetition | None = None
        self._counted: dict[ProcessId, _Counted] = {}

    @property
    def doubt(self) -> str | None:
        """What is not known yet; `None` once it is, or before there were calls."""
        if self.calls is not None or self._since_s is None:
            return None
        return f"how many calls of {self._target.symbol} make an iteration is not known yet"

    @property
    def remark(self) -> str | None:
        """What was found."""
        if self.calls in (None, 1.0):
            return None
        return (
            f"{self.calls:.5g} calls of {self._target.symbol} are taken for an iteration, as they repeat after so many"
        )

    def learn(self, process: ProcessId, stamps: CallStamps, now_s: float) -> None:
        """Look at the newest calls of a process. Raises CallsUnavailable where long looking finds nothing."""
        if self.calls is not None or not stamps:
            return
        self._since_s = now_s if self._since_s is None else self._since_s
        waited_s = now_s - self._since_s
        seen = stamps.first + len(stamps)
        if seen < max(_FIRST_LOOK, _GROWTH * self._looked) and waited_s < _PATIENCE_S:
            return
        self._looked = seen
        t_s = stamps.t_s
        before, self._before = self._before, repetition(t_s)
        if is_even(t_s) and t_s[-1] - t_s[0] >= _EVEN_S:
            self.calls = 1.0
        elif before and self._before and abs(self._before.calls / before.calls - 1) <= _ALIKE:
            self.calls = self._before.calls
            self._counted[process] = _Counted(first=stamps.first + self._before.first)
        elif self._before is None and waited_s >= _FAIR_S and is_fair(t_s):
            self.calls = 1.0
        elif waited_s >= _PATIENCE_S:
            raise CallsUnavailable(
                f"{self._target.symbol} is called in bursts in which nothing repeats, so how many calls make an "
                "iteration is not known; choose a function that is called once an iteration"
            )

    def of(self, calls: ProcessSteps, stamps: CallStamps) -> ProcessSteps | None:
        """The iterations of a process by its calls, as of when the last of them ended; `None` before the first."""
        if self.calls is None or not stamps:
            return None
        one = self._counted.setdefault(calls.process, _Counted(first=stamps.first))
        ended = math.floor((calls.count - one.first) / self.calls)
        if ended >= 0 and (one.steps is None or ended >= one.steps.count):
            t_s = stamps.of(one.first + math.ceil(ended * self.calls))
            if t_s is not None:  # else too many calls have come at once: at the next iteration
                one.begun_s = t_s if one.steps is None else one.begun_s
                one.steps = replace(calls, first_s=one.begun_s, last_s=t_s, count=ended + 1)
        return one.steps

    def restart(self) -> None:
        """Calls were not counted for a while: those from now on begin new iterations."""
        self._counted.clear()
