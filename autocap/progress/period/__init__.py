"""The period detector: how long a cycle of a power signal is, and how sure that is. Pure: arrays in, records out."""

from autocap.progress.period.counted import Witness
from autocap.progress.period.detect import detect
from autocap.progress.period.estimate import Cycles, PeriodEstimate, RatioEstimate, Template, Verdict
from autocap.progress.period.locate import count
from autocap.progress.period.period_ratio import lock, ratio

__all__ = [
    "Cycles",
    "PeriodEstimate",
    "RatioEstimate",
    "Template",
    "Verdict",
    "Witness",
    "count",
    "detect",
    "lock",
    "ratio",
]
