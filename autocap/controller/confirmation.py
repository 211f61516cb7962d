"""Is the recommended cap really better? It is measured in turn with the baseline, so that slow drift cancels.

The windows alternate cap, baseline, cap; while the answer is within the error, baseline and cap follow again.
"""

import math
from dataclasses import dataclass

from autocap.measurement.combining import pool
from autocap.metrics import Metric
from autocap.records import Measurement

_ROUNDS = 3
# Two windows of the cap, each measured to √2 of the target, together reach the target.
WINDOW_ERROR = math.sqrt(2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """confirmed: better than the baseline by more than two sigma, and not too slow. reason: a sentence with numbers.
    too_slow: or not surely within the limit on slowdown."""

    confirmed: bool
    reason: str
    too_slow: bool = False
    measurement: Measurement | None = None
    baseline: Measurement | None = None


class Confirmation:
    """The plan of one confirmation: which cap to measure next, and what the windows say.

    trial: what the search has just measured at the cap, which stands for the first window.
    """

    def __init__(self, metric: Metric, trial: Measurement | None = None) -> None:
        self._metric = metric
        self._windows: list[Measurement] = [] if trial is None else [trial]
        self._baselines: list[Measurement] = []

    @property
    def baseline_next(self) -> bool:
        """Whether the next window is to be taken at the limit found on arrival."""
        return len(self._windows) > len(self._baselines)

    def add(self, measurement: Measurement) -> Verdict | None:
        """Add the window that was asked for; the verdict once it stands."""
        (self._baselines if self.baseline_next else self._windows).append(measurement)
        if len(self._windows) <= len(self._baselines) or not self._baselines:
            return None
        return self._judge(last=len(self._baselines) >= _ROUNDS)

    def _judge(self, *, last: bool) -> Verdict | None:
        cap, baseline = pool(self._windows), pool(self._baselines)
        cost = self._metric.versus(cap, baseline)
        numbers = f"{self._metric.name} {cost.value:.4f} ± {cost.stderr:.4f} of the baseline's"
        if self._metric.forbids(cap, baseline):
            why = f"too slow: {self._slowdown(cap, baseline)}"
            return Verdict(confirmed=False, reason=why, too_slow=True, measurement=cap, baseline=baseline)
        if cost.value - 2 * cost.stderr > 1:
            return Verdict(confirmed=False, reason=f"worse than the baseline: {numbers}", baseline=baseline)
        if not self._metric.allows(cap, baseline):
            too_slow = f"not surely within the slowdown limit: {self._slowdown(cap, baseline)}"
            return Verdict(confirmed=False, reason=too_slow, too_slow=True, baseline=baseline) if last else None
        if cost.value + 2 * cost.stderr < 1:
            return Verdict(confirmed=True, reason=numbers, measurement=cap, baseline=baseline)
        why = f"not better beyond its error: {numbers}"
        return Verdict(confirmed=False, reason=why, baseline=baseline) if last else None

    def _slowdown(self, cap: Measurement, baseline: Measurement) -> str:
        ratio = cap.period_s / baseline.period_s
        error = math.hypot(cap.period_rel_stderr, baseline.period_rel_stderr)
        return (
            f"{100 * (ratio - 1):+.2f} ± {100 * error:.2f} % time, {100 * (self._metric.max_slowdown or 0):g} % allowed"
        )
