"""What is remembered of the job of a session: looked up once its devices are known, and kept when it has ended.

Nothing here keeps a run from going on: what cannot be read counts as not there, what cannot be kept is a warning.
"""

import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from autocap import __version__
from autocap.devices.base import Device
from autocap.events import ASKED, JOB_ENDED, Decided, Event, Remembered, RunStarted, Tally
from autocap.job.invoking_user import InvokingUser
from autocap.knobs import POWER_LIMIT, Knob
from autocap.records import SensorInfo
from autocap.runlog.memory.entry import FORMAT, Entry, Setup, key_of, shortened, with_curve
from autocap.runlog.memory.job import Job
from autocap.runlog.memory.store import MemoryStore, default_place
from autocap.session.earlier import Earlier, branch, curve_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled:
    """What there is of a job. runs: how many have told of it. age_s: seconds since the last of them began."""

    key: str
    runs: int
    age_s: float
    earlier: Earlier

    def event(self, t_s: float, setting: float | None) -> Remembered:
        """setting: the best of those that the run may try, as `Earlier.best_w` has it."""
        return Remembered(t_s=t_s, key=self.key, runs=self.runs, age_s=self.age_s, setting=setting)


@dataclass(slots=True, kw_only=True)
class JobMemory:
    """The memory of one job. now: when its run began."""

    job: Job
    store: MemoryStore
    now: datetime = field(default_factory=lambda: datetime.now(UTC))
    _setup: Setup | None = None
    _sensor: SensorInfo | None = None

    @classmethod
    def of(cls, command: Sequence[str], pid: int | None, user: InvokingUser | None) -> Self | None:
        """pid: of a job that runs already, `None` for a command that is to be started here. user: the one behind sudo.

        `None` where the user has no place for it, or what the job was started with cannot be read.
        """
        place = default_place(user)
        try:
            job = Job.of(command, os.environ, Path.cwd()) if pid is None else Job.running(pid)
        except OSError:  # the folder is gone
            log.debug("what makes the job cannot be told", exc_info=True)
            return None
        return None if place is None or job is None else cls(job=job, store=MemoryStore(place))

    def recall(self, device: Device, node: str | None, knob: Knob = POWER_LIMIT) -> Recalled | None:
        """What is remembered of the job on these devices; `None` for nothing. node: the source of the machine's
        power. knob: that is turned."""
        gpus = tuple(sorted(gpu.name for gpu in device.gpus))
        self._setup = Setup(
            kind=device.kind,
            emulated=device.emulated,
            gpus=gpus,
            driver=branch(device.driver),
            node=node,
            knob=None if knob.is_power_limit else knob,
        )
        self._sensor = device.sensor
        entry = self.store.read(self._key)
        curves = () if entry is None else entry.fresh(self.now)
        if entry is None or not curves or entry.setup.knob != self._setup.knob:
            return None
        self.store.use(self._key)
        age_s = max(0.0, (self.now - curves[-1].when).total_seconds())
        return Recalled(key=self._key, runs=entry.runs, age_s=age_s, earlier=Earlier(curves=curves))

    def remember(self, events: Sequence[Event], ended_because: str | None = None) -> None:
        """Keep what a run has shown that came to a decision, or whose job ended before; nothing of any other, or of one
        that has only ratios. ended_because: why its tuning ended, `None` where that is not known.

        Raises MemoryUnavailable where it cannot be kept.
        """
        curve = curve_of(events)
        if curve is None or curve.baseline.is_relative or self._setup is None or self._sensor is None:
            return
        if not any(isinstance(event, Decided) for event in events):
            return
        curve = replace(curve, job_iterations=_job_iterations(events, ended_because))
        before = self.store.read(self._key)
        curves = () if before is None else before.fresh(self.now)
        self.store.write(
            Entry(
                format=FORMAT,
                key=self._key,
                autocap_version=__version__,
                command=shortened(self.job.command),
                setup=self._setup,
                sensor=self._sensor,
                runs=before.runs + 1 if before is not None and curves else 1,
                curves=with_curve(curves, curve),
            )
        )

    @property
    def _key(self) -> str:
        assert self._setup is not None  # it is looked up before anything is kept
        return key_of(self.job, self._setup)


_UNREAD_S = 10.0  # at the job's end; longer where a driver answered no more
# By the mode of a run: why its tuning ended where it saw the whole job. A tuned block ends its tuning by a signal.
_WHOLE = {"run": (JOB_ENDED,), "tune": (JOB_ENDED, ASKED)}


def _job_iterations(events: Sequence[Event], ended_because: str | None) -> float | None:
    """How many iterations the job had; `None` where it was not seen from its beginning to its end."""
    mode = next((event.mode for event in events if isinstance(event, RunStarted)), "")
    last = next((event for event in reversed(events) if isinstance(event, Tally)), None)
    if last is None or last.iterations <= 0 or ended_because not in _WHOLE.get(mode, ()):
        return None
    is_read = last.t_s - last.since_s - last.elapsed_s <= _UNREAD_S  # until its end
    return last.iterations if is_read else None
