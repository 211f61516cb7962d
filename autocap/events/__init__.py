"""What the controller and the runner announce: the only source of every report.

Each event is frozen and carries `t_s`, seconds on the run's own clock. `runlog` writes them as they happen;
`summarise` folds them into a Summary.
"""

from autocap.events.run import (
    CapSet,
    DeviceFound,
    IdleEstimated,
    LimitRestored,
    MetricInfo,
    NodeMetered,
    OptionValue,
    ProgressFound,
    RunEnded,
    RunStarted,
    State,
    StateEntered,
    Tally,
    Warned,
)
from autocap.events.search import (
    BaselineMeasured,
    Decided,
    PerGpuDecided,
    PerGpuTried,
    Predicted,
    TrialEnded,
    TrialStarted,
    WouldTry,
)
from autocap.events.sweep import (
    FinishedRun,
    GpuSet,
    PlannedRun,
    SweepPlan,
    SweepRunEnded,
    SweepRunStarted,
    SweepStarted,
    Used,
)

Event = (
    RunStarted
    | DeviceFound
    | NodeMetered
    | IdleEstimated
    | ProgressFound
    | StateEntered
    | CapSet
    | BaselineMeasured
    | TrialStarted
    | TrialEnded
    | Predicted
    | WouldTry
    | Decided
    | PerGpuTried
    | PerGpuDecided
    | Tally
    | Warned
    | LimitRestored
    | SweepStarted
    | SweepRunStarted
    | SweepRunEnded
    | RunEnded
)

__all__ = [
    "BaselineMeasured",
    "CapSet",
    "Decided",
    "DeviceFound",
    "Event",
    "FinishedRun",
    "GpuSet",
    "IdleEstimated",
    "LimitRestored",
    "MetricInfo",
    "NodeMetered",
    "OptionValue",
    "PerGpuDecided",
    "PerGpuTried",
    "PlannedRun",
    "Predicted",
    "ProgressFound",
    "RunEnded",
    "RunStarted",
    "State",
    "StateEntered",
    "SweepPlan",
    "SweepRunEnded",
    "SweepRunStarted",
    "SweepStarted",
    "Tally",
    "TrialEnded",
    "TrialStarted",
    "Used",
    "Warned",
    "WouldTry",
]
