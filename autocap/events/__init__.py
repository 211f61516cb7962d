"""What the controller and the runner announce: the only source of every report.

Each event is frozen and carries `t_s`, seconds on the run's own clock. `runlog` writes them as they happen;
`summarise` folds them into a Summary.
"""

from collections.abc import Sequence

from autocap.events.base import KINDS, Event, PluginEvent
from autocap.events.quote import Followed, Quoted, Sourced
from autocap.events.run import (
    ASKED,
    BLOCK_ENDED,
    JOB_ENDED,
    CapSet,
    CardRecalled,
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
    RunStarted,
    SetterChosen,
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
    TrialEnded,
    TrialStarted,
    TrialWithdrawn,
    WouldTry,
)
from autocap.events.settled import LastTotals
from autocap.events.sweep import (
    SweepRunEnded,
    SweepRunStarted,
    SweepStarted,
)


def record_kind(found: Sequence[Event]) -> str:
    """What a record is of, by its events: "run", "sweep", or what a plug-in calls its own."""
    return next(filter(None, (one.begins for one in found)), "run")
