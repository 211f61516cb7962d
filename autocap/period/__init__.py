"""The period detector: how long a cycle of a power signal is, and how sure that is. Pure: arrays in, records out."""

from autocap.period.cycles import count
from autocap.period.detect import Witness, detect
from autocap.period.estimate import Cycles, PeriodEstimate, RatioEstimate, Template, Verdict
from autocap.period.ratio import lock, ratio

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
