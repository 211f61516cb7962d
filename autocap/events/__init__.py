"""What the controller and the runner announce: the only source of every report.

Each event is frozen and carries `t_s`, seconds on the run's own clock. `runlog` writes them as they happen;
`summarise` folds them into a Summary.
"""

from autocap.events.run import (
    BLOCK_ENDED,
    JOB_ENDED,
    CapSet,
    DeviceFound,
    IdleEstimated,
    LimitRestored,
    MetricInfo,
    NodeMetered,
    OptionValue,
    ProgramFound,
    ProgressFound,
    RunEnded,
    RunEvent,
    RunStarted,
    SettingsTaken,
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
    SearchEvent,
    TrialEnded,
    TrialStarted,
    WouldTry,
)
from autocap.events.sweep import (
    FinishedRun,
    GpuSet,
    PlannedRun,
    SweepEvent,
    SweepPlan,
    SweepRunEnded,
    SweepRunStarted,
    SweepStarted,
    Used,
)

Event = RunEvent | SearchEvent | SweepEvent

__all__ = [
    "BLOCK_ENDED",
    "JOB_ENDED",
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
    "ProgramFound",
    "ProgressFound",
    "RunEnded",
    "RunStarted",
    "SettingsTaken",
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
