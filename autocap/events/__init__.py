"""What the controller and the runner announce: the only source of every report.

Each event is frozen and carries `t_s`, seconds on the run's own clock. `runlog` writes them as they happen;
`summarise` folds them into a Summary.
"""

from collections.abc import Sequence

from autocap.events.base import KINDS, PluginEvent, begun_by, event, name_of
from autocap.events.prices import Followed, PriceEvent, Quoted, Sourced
from autocap.events.run import (
    ASKED,
    BLOCK_ENDED,
    JOB_ENDED,
    ActuatorChosen,
    CapSet,
    DeviceFound,
    IdleEstimated,
    LimitRestored,
    MetricInfo,
    NodeMetered,
    OptionValue,
    ProgramFound,
    ProgressFound,
    Remembered,
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
    BaselineRefined,
    Decided,
    Granted,
    HeldMeasured,
    PerGpuDecided,
    PerGpuTried,
    Predicted,
    SearchEvent,
    TrialEnded,
    TrialStarted,
    TrialWithdrawn,
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
from autocap.events.totals import LastTotals

Event = RunEvent | SearchEvent | SweepEvent | PriceEvent | PluginEvent

__all__ = [
    "ASKED",
    "BLOCK_ENDED",
    "JOB_ENDED",
    "KINDS",
    "ActuatorChosen",
    "BaselineMeasured",
    "BaselineRefined",
    "CapSet",
    "Decided",
    "DeviceFound",
    "Event",
    "FinishedRun",
    "Followed",
    "GpuSet",
    "Granted",
    "HeldMeasured",
    "IdleEstimated",
    "LastTotals",
    "LimitRestored",
    "MetricInfo",
    "NodeMetered",
    "OptionValue",
    "PerGpuDecided",
    "PerGpuTried",
    "PlannedRun",
    "PluginEvent",
    "Predicted",
    "ProgramFound",
    "ProgressFound",
    "Quoted",
    "Remembered",
    "RunEnded",
    "RunStarted",
    "SettingsTaken",
    "Sourced",
    "State",
    "StateEntered",
    "SweepPlan",
    "SweepRunEnded",
    "SweepRunStarted",
    "SweepStarted",
    "Tally",
    "TrialEnded",
    "TrialStarted",
    "TrialWithdrawn",
    "Used",
    "Warned",
    "WouldTry",
    "event",
    "name_of",
    "record_kind",
]


def record_kind(found: Sequence[Event]) -> str:
    """What a record is of, by its events: "run", "sweep", or what a plug-in calls its own."""
    return next(filter(None, (begun_by(type(event)) for event in found)), "run")
