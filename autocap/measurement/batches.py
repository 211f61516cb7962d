"""Standard errors of time and energy per iteration, from batch means; and measurements with such errors taken together,
in turn with others, or moved to another time.

Iteration times are autocorrelated and energy = power × time makes the errors of time and energy correlated, so the
standard errors come from the means of long batches, as a covariance (Law and Kelton, Simulation Modeling and
Analysis, "batch means").

Of windows at two sets of caps in turn, other work that lasts for one makes that one longer than the others at its caps,
and it is left out. What wanders more slowly than windows follow each other is in each window and in those beside it
alike: the ratio of neighbours does not have it, and how far such ratios are apart says how well the ratio is known.
"""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from autocap.measurement.stats import scatter
from autocap.measurement.tuning import TUNING
from autocap.records import Measurement, Sample

Floats = NDArray[np.float64]
MIN_BATCHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchErrors:
    """Relative standard errors of mean time, energy and power per iteration, and the correlation of time and energy."""

    time: float
    energy: float
    correlation: float

    @classmethod
    def of(cls, var_time: float, var_energy: float, covariance: float) -> "BatchErrors":
        """The errors from relative variances of time and energy, and their covariance."""
        time, energy = math.sqrt(var_time), math.sqrt(var_energy)
        correlation = covariance / (time * energy) if time > 0 and energy > 0 else 0.0
        return cls(time=time, energy=energy, correlation=min(1.0, max(-1.0, correlation)))

    @property
    def power(self) -> float:
        if not math.isfinite(self.time + self.energy):
            return math.inf
        both = 2 * self.correlation * self.time * self.energy
        return math.sqrt(max(0.0, self.time**2 + self.energy**2 - both))


def cut(iterations: Floats, batches: int) -> NDArray[np.intp]:
    """Marks at which batches of about equal iteration counts begin and end; shape (batches + 1,), or fewer where many
    iterations lie between two marks. iterations: at each mark, shape (marks,), cumulative."""
    wanted = np.linspace(iterations[0], iterations[-1], batches + 1)
    return np.unique(np.searchsorted(iterations, wanted - 1e-9))


def batch_errors(
    t_s: Floats, energy_j: Floats, iterations: Floats, min_batches: int = MIN_BATCHES, unseen: float = 0.0
) -> BatchErrors:
    """Errors of energy and time per iteration, from batch means. unseen: a relative error of the power besides.

    t_s, energy_j, iterations: at each mark, shape (marks,), cumulative; they must make two batches at least. Batches of
    equal iteration counts are formed at two lengths, and the larger error is taken: short batches alone understate
    autocorrelated noise.
    """
    fewest = _covariance(t_s, energy_j, iterations, min_batches)
    twice = _covariance(t_s, energy_j, iterations, 2 * min_batches) if t_s.size > 2 * min_batches else fewest
    covariance = max(fewest, twice, key=lambda matrix: float(np.trace(matrix)))
    return BatchErrors.of(float(covariance[0, 0]), float(covariance[1, 1]) + unseen**2, float(covariance[0, 1]))


def _covariance(t_s: Floats, energy_j: Floats, iterations: Floats, batches: int) -> Floats:
    """Relative covariance, shape (2, 2), of the weighted means of (time, energy) per iteration."""
    edges = cut(iterations, batches)
    counts = np.diff(iterations[edges])
    means = np.stack([np.diff(t_s[edges]) / counts, np.diff(energy_j[edges]) / counts])
    total = counts.sum()
    centre = np.array([t_s[-1] - t_s[0], energy_j[-1] - energy_j[0]]) / total
    weights = counts / total
    deviations = (means / centre[:, None] - 1) * weights
    # The t quantile in place of the normal one keeps "two sigma" at 95 % with so few batches.
    few = counts.size
    small = few / (few - 1) * student_factor(few - 1) ** 2
    result: Floats = deviations @ deviations.T * small
    return result


def student_factor(freedom: float) -> float:
    """Student's two-sided 95.45 % quantile over the normal one, 2 (Cornish–Fisher, Abramowitz and Stegun 26.7.5)."""
    z = 2.0
    g1, g2 = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96
    return (z + g1 / freedom + g2 / freedom**2) / z


def pool(measurements: Sequence[Measurement], *, scattered: bool = True) -> Measurement:
    """One measurement from several windows at the same cap, each weighted by its iterations; the error that they share
    stays. scattered: where they scatter by more than their errors, that of the whole is as much larger."""
    whole = _pooled(measurements, scattered)
    if any(m.gpu is None for m in measurements):
        return whole
    return whole.with_gpus(_pooled([m.of_gpus() for m in measurements], scattered))


def _pooled(measurements: Sequence[Measurement], scattered: bool) -> Measurement:
    iterations = sum(m.iterations for m in measurements)
    duration_s = sum(m.duration_s for m in measurements)
    energy_j = sum(m.energy_per_iteration_j * m.iterations for m in measurements)
    proxies = [m.proxy_rel_stderr for m in measurements if m.proxy_rel_stderr is not None]
    shared = max(proxies, default=None)
    common = (shared or 0.0) ** 2
    var_t = var_e = covariance = 0.0
    for m in measurements:
        time, energy = m.duration_s / duration_s, m.energy_per_iteration_j * m.iterations / energy_j
        own = (m.proxy_rel_stderr or 0.0) ** 2  # in each of the three
        var_t += max(0.0, m.period_rel_stderr**2 - own) * time**2
        var_e += max(0.0, m.energy_rel_stderr**2 - own) * energy**2
        covariance += (m.time_energy_corr * m.period_rel_stderr * m.energy_rel_stderr - own) * time * energy
    few = [min(m.iterations, MIN_BATCHES) - 1 for m in measurements]  # degrees of freedom, at least
    if min(few) > 0:  # of the whole there are more
        more = (student_factor(sum(few)) / student_factor(sum(few) / len(few))) ** 2
        var_t, var_e, covariance = var_t * more, var_e * more, covariance * more
    var_t, var_e, covariance = var_t + common, var_e + common, covariance + common
    counts = [m.iterations / iterations for m in measurements]
    wider_t, wider_e = var_t, var_e
    if scattered:
        wider_t = max(var_t, scatter([m.period_s for m in measurements], counts) ** 2)
        wider_e = max(var_e, scatter([m.energy_per_iteration_j for m in measurements], counts) ** 2)
    if var_t > 0 and var_e > 0:
        covariance *= math.sqrt(wider_t / var_t) * math.sqrt(wider_e / var_e)
    errors = BatchErrors.of(wider_t, wider_e, covariance)
    reasons = [m.reason for m in measurements if m.reason is not None]
    return Measurement(
        setting=measurements[0].setting,
        start_s=min(m.start_s for m in measurements),
        duration_s=duration_s,
        iterations=iterations,
        period_s=duration_s / iterations,
        period_rel_stderr=errors.time,
        power_w=energy_j / duration_s,
        power_rel_stderr=errors.power,
        energy_per_iteration_j=energy_j / iterations,
        energy_rel_stderr=errors.energy,
        time_energy_corr=errors.correlation,
        cap_binding=measurements[-1].cap_binding,
        sm_clock_hz=pooled_hz(measurements),
        valid=all(m.valid for m in measurements),
        reason=reasons[0] if reasons else None,
        proxy_rel_stderr=shared,
    )


def as_at(measurement: Measurement, then: Measurement, first: Measurement) -> Measurement:
    """What caps would have shown while those compared with showed `first`, given what they showed beside `then`."""
    if measurement.gpu is not None and then.gpu is not None and first.gpu is not None:
        gpus = as_at(measurement.of_gpus(), then.of_gpus(), first.of_gpus())
        return as_at(replace(measurement, gpu=None), then, first).with_gpus(gpus)
    time = first.period_s / then.period_s
    energy = first.energy_per_iteration_j / then.energy_per_iteration_j
    return replace(
        measurement,
        duration_s=measurement.duration_s * time,
        period_s=measurement.period_s * time,
        power_w=measurement.power_w * energy / time,
        energy_per_iteration_j=measurement.energy_per_iteration_j * energy,
    )


def with_errors(window: Measurement, parts: Sequence[Measurement]) -> Measurement:
    """The window with the errors of a product or quotient of these."""
    var_t = sum(part.period_rel_stderr**2 for part in parts)
    var_e = sum(part.energy_rel_stderr**2 for part in parts)
    covariance = sum(part.time_energy_corr * part.period_rel_stderr * part.energy_rel_stderr for part in parts)
    both = math.sqrt(var_t * var_e)
    return replace(
        window,
        period_rel_stderr=math.sqrt(var_t),
        power_rel_stderr=math.sqrt(max(0.0, var_t + var_e - 2 * covariance)),
        energy_rel_stderr=math.sqrt(var_e),
        time_energy_corr=covariance / both if both > 0 else 0.0,
    )


def measured_beside(measurement: Measurement, now: Measurement, first: Measurement) -> Measurement:
    """What caps would have shown while the baseline showed `first`, given what they showed beside the one of `now`: no
    better known than that one is, where that is less than the first."""
    moved = as_at(measurement, now, first)
    if measurement.is_relative or now is first:
        return moved
    time = math.sqrt(max(0.0, now.period_rel_stderr**2 - first.period_rel_stderr**2))
    energy = math.sqrt(max(0.0, now.energy_rel_stderr**2 - first.energy_rel_stderr**2))
    return with_errors(moved, (measurement, replace(now, period_rel_stderr=time, energy_rel_stderr=energy)))


def no_better(shown: Measurement, time: float, energy: float) -> Measurement:
    """The measurement with relative errors of its time and its energy that are no smaller than these."""
    time, energy = max(time, shown.period_rel_stderr), max(energy, shown.energy_rel_stderr)
    return replace(shown, period_rel_stderr=time, energy_rel_stderr=energy)


class Clocks:
    """The clocks of some samples, in their order."""

    def __init__(self) -> None:
        self._t_s: list[float] = []
        self._slowest_hz: list[float] = []  # not a number where not every device told its own

    def add(self, sample: Sample) -> None:
        """Take in the clocks of a sample, unless a device is at rest in it: the clock that is shown then is none that a
        job runs at."""
        if any(reading.utilisation == 0 for reading in sample.readings):
            return
        slowest_hz = min([reading.sm_clock_hz or 0.0 for reading in sample.readings], default=0.0)
        self._t_s.append(sample.t_s)
        self._slowest_hz.append(slowest_hz if slowest_hz > 0 else math.nan)

    def trim(self, start_s: float) -> None:
        """Forget what came before start_s."""
        first = bisect_left(self._t_s, start_s)
        self._t_s, self._slowest_hz = self._t_s[first:], self._slowest_hz[first:]

    def mean_hz(self, start_s: float, end_s: float) -> float | None:
        """The mean between two times; `None` where it is not known throughout."""
        within = self._slowest_hz[bisect_left(self._t_s, start_s) : bisect_right(self._t_s, end_s)]
        mean_hz = sum(within) / len(within) if within else math.nan
        return None if math.isnan(mean_hz) else mean_hz


def pooled_hz(measurements: Sequence[Measurement]) -> float | None:
    """The mean over several windows, by their seconds; `None` where it is not known of all."""
    total = 0.0
    for one in measurements:
        if one.sm_clock_hz is None:
            return None
        total += one.sm_clock_hz * one.duration_s
    return total / sum(one.duration_s for one in measurements)


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
