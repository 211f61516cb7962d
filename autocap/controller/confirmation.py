"""Is the recommended cap really better? It is measured in turn with the baseline; while the answer is within the error,
another round follows."""

import math
from dataclasses import dataclass
from enum import Enum, auto

from autocap.controller.comparison import Comparison
from autocap.metrics import Metric
from autocap.records import Measurement

_ROUNDS = 3
# Two windows of the cap, each measured to √2 of the target, together reach the target.
WINDOW_ERROR = math.sqrt(2)


class Outcome(Enum):
    """What a confirmation says of a cap."""

    BETTER = auto()  # than the baseline by more than two sigma, and not too slow
    NOT_BETTER = auto()
    TOO_SLOW = auto()  # or not surely within the limit on slowdown


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """reason: a sentence with numbers. measurement: of the cap, baseline: of the windows between."""

    outcome: Outcome
    reason: str
    measurement: Measurement
    baseline: Measurement


def judge(compared: Comparison, metric: Metric) -> Judgement | None:
    """What windows of a cap (outer) and of the baseline (inner) say of the cap; `None` while that is open."""
    if not compared.rounds:
        return None
    cap, baseline, last = compared.outer, compared.inner, compared.rounds >= _ROUNDS
    cost = metric.versus(cap, baseline)
    numbers = f"{metric.name} {cost.value:.4f} ± {cost.stderr:.4f} of the baseline's"

    def found(outcome: Outcome, reason: str) -> Judgement:
        return Judgement(outcome=outcome, reason=reason, measurement=cap, baseline=baseline)

    if metric.forbids(cap, baseline):
        return found(Outcome.TOO_SLOW, f"too slow: {_slowdown(cap, baseline, metric)}")
    if cost.value - 2 * cost.stderr > 1:
        return found(Outcome.NOT_BETTER, f"worse than the baseline: {numbers}")
    if not metric.allows(cap, baseline):
        unsure = f"not surely within the slowdown limit: {_slowdown(cap, baseline, metric)}"
        return found(Outcome.TOO_SLOW, unsure) if last else None
    if cost.value + 2 * cost.stderr < 1:
        return found(Outcome.BETTER, numbers)
    return found(Outcome.NOT_BETTER, f"not better beyond its error: {numbers}") if last else None


def _slowdown(cap: Measurement, baseline: Measurement, metric: Metric) -> str:
    ratio = cap.period_s / baseline.period_s
    error = math.hypot(cap.period_rel_stderr, baseline.period_rel_stderr)
    return f"{100 * (ratio - 1):+.2f} ± {100 * error:.2f} % time, {100 * (metric.max_slowdown or 0):g} % allowed"
