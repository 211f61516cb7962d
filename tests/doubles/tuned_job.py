"""What a tuning in this process is given beside its device, in virtual time."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from autocap import events
from autocap.events import State
from autocap.job.processes import ProcessId, own_identity
from autocap.progress import Progress
from autocap.records import SensorInfo, StepReading


@dataclass
class EndsOnceHeld:
    """The job as a process, which is left once a cap is held. heard: what keeps its events."""

    heard: Any
    pid: int = field(default_factory=os.getpid)
    identity: ProcessId | None = field(default_factory=own_identity)

    def poll(self) -> int | None:
        states = [event.state for event in self.heard.events if isinstance(event, events.StateEntered)]
        return 0 if states and states[-1] in (State.HOLDING, State.DONE) else None


@dataclass
class CountedBy:
    """steps: the job's own count. progress: what is made of it."""

    steps: Callable[[], StepReading | None]
    progress: Callable[[SensorInfo], Progress]
    kind: str
    fault: str | None = None
    remarks: tuple[str, ...] = ()

    def read(self, origin_s: float, *, needed: bool = True) -> StepReading | None:
        return self.steps()
