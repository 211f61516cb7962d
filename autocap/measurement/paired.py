"""Windows at two sets of caps in turn, on a machine that others use as well.

Other work that lasts for a window makes that one longer than the others at its caps, and it is left out. What wanders
more slowly than windows follow each other is in each window and in those beside it alike: the ratio of neighbours does
not have it, and how far such ratios are apart says how well the ratio is known.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress

from autocap.measurement.batches import pool, student_factor
from autocap.measurement.tuning import TUNING
from autocap.records import Measurement

_Of = Callable[[Measurement], float]
_QUANTITIES: tuple[tuple[_Of, _Of], ...] = (
    (lambda one: one.period_s, lambda one: one.period_rel_stderr),
    (lambda one: one.energy_per_iteration_j, lambda one: one.energy_rel_stderr),
)
_NEIGHBOURS = 4 / 3  # of the variance of a mean of ratios, over what they scatter by: two of them share a window


def undisturbed(windows: Sequence[Measurement]) -> list[bool]:
    """Which windows of the same caps count: not those that lie in a burst of other work, and take far longer than the
    others do together; more than half of them always do."""
    counts = [True] * len(windows)
    while sum(counts) >= TUNING.burst_window_fewest and sum(counts) - 1 > len(windows) / 2:
        slowest = max((place for place, one in enumerate(counts) if one), key=lambda place: windows[place].period_s)
        others = pool([one for place, one in enumerate(windows) if counts[place] and place != slowest])
        error = math.hypot(windows[slowest].period_rel_stderr, others.period_rel_stderr)
        longer = math.log(windows[slowest].period_s / others.period_s)
        if longer <= max(TUNING.burst_window_longer, TUNING.burst_window_sigmas * error):
            break
        counts[slowest] = False
    return counts


def together(windows: Sequence[Measurement], *, scattered: bool = True) -> Measurement:
    """Those that count as one. scattered: with the error by how far they are from each other, where that is more."""
    return pool(list(compress(windows, undisturbed(windows))), scattered=scattered)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ratio:
    """Mean of ln(outer / inner) over neighbours, and its variance by how these are apart, of so many degrees of
    freedom."""

    mean: float
    variance: float
    freedom: int

    @classmethod
    def of(cls, logs: Sequence[float]) -> "_Ratio":
        mean, freedom = sum(logs) / len(logs), len(logs) - 1
        variance = sum((one - mean) ** 2 for one in logs) / freedom / len(logs)
        return cls(mean=mean, variance=_NEIGHBOURS * variance, freedom=freedom)

    def beyond(self, within: float) -> float:
        """Its standard error, given that of all windows by what they show within: what the ratios scatter beyond it is
        known by these alone, which are few (DerSimonian and Laird 1986, with Student's factor)."""
        between = max(0.0, self.variance - within**2)
        return math.hypot(within, student_factor(self.freedom) * math.sqrt(between))


def compared(outer: Sequence[Measurement], inner: Sequence[Measurement]) -> tuple[Measurement, Measurement]:
    """What both sets of caps show, to be held against each other: each inner window lies between two outer ones, but
    for a last one. By the ratios of neighbours, where these say more than the levels do; the inner caps are then as at
    the time of the outer ones, and the errors are those of the ratio."""
    whole = together(outer), together(inner)
    counts = undisturbed(outer)
    pairs = [
        (list(compress(outer[place : place + 2], counts[place : place + 2])), inner[place])
        for place, count in enumerate(undisturbed(inner))
        if count
    ]
    pairs = [(near, window) for near, window in pairs if near]
    if len(pairs) < TUNING.paired_fewest or any(one.gpu is not None for one in inner):
        return whole
    alone = together(outer, scattered=False), together(inner, scattered=False)
    ratios, errors = [], []
    for value, error in _QUANTITIES:
        logs = ([math.log(value(one) / value(window)) for one in near] for near, window in pairs)
        ratio = _Ratio.of([sum(some) / len(some) for some in logs])
        ratios.append(math.exp(ratio.mean))
        errors.append(ratio.beyond(math.hypot(*map(error, alone))))
    if math.hypot(*errors) >= math.hypot(*(error(one) for one in whole for _, error in _QUANTITIES)):
        return whole
    cap, base = alone
    return cap, replace(
        base,
        period_s=cap.period_s / ratios[0],
        energy_per_iteration_j=cap.energy_per_iteration_j / ratios[1],
        power_w=cap.power_w * ratios[0] / ratios[1],
        period_rel_stderr=math.sqrt(errors[0] ** 2 - cap.period_rel_stderr**2),
        energy_rel_stderr=math.sqrt(errors[1] ** 2 - cap.energy_rel_stderr**2),
    )
