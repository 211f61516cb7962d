"""Caps per GPU against the common cap they came from: what windows taken in turn say of them."""

import math
from collections.abc import Sequence
from dataclasses import replace

from autocap.controller.comparison import Caps, Comparison
from autocap.measurement.combining import as_at
from autocap.metrics import Metric, slowdown
from autocap.records import Cost, Measurement

_ENERGY = Metric(name="energy")
_NEGLIGIBLE = 0.0005  # of the time per iteration: less is not worth telling from noise
_SURE = 2.0  # standard errors
_ROUNDS = (3, 6)  # fewest and most for a verdict
_EXACT = 0.0008  # an error of the time at which no more are needed


class PerGpuComparison(Comparison):
    """Caps per GPU (inner) against the common cap (outer).

    opening: the window at the common cap that came before. metric: what must not be worse, besides energy and time.
    """

    def __init__(self, common_w: Caps, tried_w: Caps, opening: Measurement, metric: Metric) -> None:
        super().__init__(common_w, tried_w, opening)
        self._metric = metric

    @property
    def time(self) -> Cost:
        """Time per iteration over that at the common cap, errors of both included."""
        ratio, stderr = slowdown(self.inner, self.outer)
        return Cost(value=ratio, stderr=stderr)

    @property
    def settled(self) -> bool:
        """Whether there are rounds enough for a verdict."""
        return self.rounds >= _ROUNDS[1] or (self.rounds >= _ROUNDS[0] and self.time.stderr <= _EXACT)

    def hindrance(self) -> str | None:
        """Why the caps tried must not be kept: time grows beyond noise; `None` where it does not."""
        return f"slower than the common cap: {percent(self.time)} time" if self._slower else None

    def objection(self) -> str | None:
        """Why the caps tried are no gain: they hinder, energy does not fall beyond noise, or the metric is worse;
        `None` where they are one."""
        energy, metric = _ENERGY.versus(self.inner, self.outer), self._metric.versus(self.inner, self.outer)
        if self._slower:
            return self.hindrance()
        if energy.value + _SURE * energy.stderr >= 1:
            return f"no energy saved beyond its error: {percent(energy)}"
        if metric.value >= 1:
            return f"worse than the common cap: {self._metric.name} {percent(metric)}"
        return None

    @property
    def _slower(self) -> bool:
        """Whether time grows beyond noise: by one standard error and what is negligible."""
        return self.time.value > 1 + _NEGLIGIBLE + self.time.stderr

    def gain(self) -> str:
        """What the caps tried change, in words."""
        energy = _ENERGY.versus(self.inner, self.outer)
        return f"energy {percent(energy)}, time {percent(self.time)}, against the common cap"

    def as_at(self, then: Measurement) -> Measurement:
        """What the caps tried would have shown when the common cap showed `then`: in time and energy they are to it as
        they are to the common cap now, errors of all three included."""
        now, tried = self.outer, self.inner
        moved = _with_errors(as_at(tried, now, then), (now, tried, then))
        if moved.gpu is None:
            return moved
        return moved.with_gpus(_with_errors(moved.of_gpus(), (now.of_gpus(), tried.of_gpus(), then.of_gpus())))


def _with_errors(window: Measurement, parts: Sequence[Measurement]) -> Measurement:
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


def percent(ratio: Cost) -> str:
    """A ratio as a change: `-3.1 ± 0.2 %`."""
    return f"{100 * (ratio.value - 1):+.2f} ± {100 * ratio.stderr:.2f} %"
