"""What the controller and the runner announce: the only source of every report.

Each event is frozen and carries `t_s`, seconds on the run's own clock. `runlog` writes them as they happen;
`summarise` folds them into a Summary.
"""

from autocap.events.run import *  # noqa: F403 - the names of each file are the names here
from autocap.events.run import RunEvent
from autocap.events.search import *  # noqa: F403
from autocap.events.search import SearchEvent
from autocap.events.sweep import *  # noqa: F403
from autocap.events.sweep import SweepEvent

Event = RunEvent | SearchEvent | SweepEvent
