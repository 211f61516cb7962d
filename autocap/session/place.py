"""Where a job runs, to a session: on this machine, or on whatever nodes another `Place` knows of."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from typing import Protocol, Self

from autocap import devices
from autocap.clock import RunClock
from autocap.config import RunConfig
from autocap.devices.base import CheckCaps, DeviceSource, PowerSource, Tunable
from autocap.job.attached import AttachedJob
from autocap.job.processes import ProcessId
from autocap.job.signals import SignalClock
from autocap.limits import Guardian
from autocap.progress import Progress
from autocap.progress.counter import IterationCounter
from autocap.records import SensorInfo, StepReading
from autocap.session.actuating import Actuation, NewGuardian, actuation, require_actuator
from autocap.session.preparing import open_node_power, settle_leftovers
from autocap.session.roles import Sampler
from autocap.session.sampling import LocalSampler


class JobThere(Protocol):
    """A job that runs already, as `FollowedJob` has it. command: its command line. left_because: why we left it before
    its end, or `None`."""

    pid: int
    identity: ProcessId
    command: tuple[str, ...]
    left_because: str | None

    def poll(self) -> int | None: ...

    def forward(self, signum: int, *, from_terminal: bool = False) -> None: ...

    def end(self, signum: int, *, from_terminal: bool = False) -> None: ...

    def kill(self) -> None: ...

    def suspend(self, *, from_terminal: bool = False) -> None: ...


class IterationSource(Protocol):
    """Says how many iterations the job has done. fault: why counting stopped. remarks: how they are counted, where the
    user is to know."""

    @property
    def fault(self) -> str | None: ...

    @property
    def remarks(self) -> tuple[str, ...]: ...

    def read(self, origin_s: float, *, needed: bool = True) -> StepReading | None:
        """The count, its time on a clock whose zero is `origin_s` on the system's monotonic one. needed: whether
        something is measured by it now."""

    def progress(self, sensor: SensorInfo) -> Progress:
        """What turns samples into marks."""


class Counting(IterationSource, Protocol):
    """A context manager that has a job's iterations counted."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...

    def follow(self, job: ProcessId | None) -> None:
        """The job is there: this process and its descendants. Raises AutocapError where what was asked for cannot be
        counted in it."""

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The child's environment."""

    def child_stdout(self) -> AbstractContextManager[int | None]:
        """The child's standard output while it is started; `None` is ours, inherited."""

    def drain(self, clock: RunClock) -> None:
        """Wait a moment for the child's last output to have gone through."""


class Place(Protocol):
    """What is particular to where a job runs. remembers: whether what was learnt of a job that runs already can be told
    apart from what was learnt of others."""

    remembers: bool

    def job(self, stack: ExitStack) -> JobThere:
        """The job that runs already, held until the stack closes. Raises TargetError where there is none."""

    def source(self, config: RunConfig, clock: SignalClock, check: CheckCaps, owner_uid: int | None) -> DeviceSource:
        """Finds its devices; owner_uid: of a job that runs already. Raises DeviceError."""

    def require(self, config: RunConfig) -> None:
        """Before there is a job: raises ActuatorUnavailable where what --actuator names is not there at all."""

    def leftovers(self, *, observe: bool) -> list[str]:
        """Put back what dead runs left, unless nothing is to be set; sentences on it."""

    def node(self, config: RunConfig, clock: SignalClock, stack: ExitStack) -> PowerSource | None:
        """The source that --node-power names, open until the stack closes; `None` for none. Raises
        DeviceUnavailable."""

    def counting(self, kind: str, *, ours: bool, step_map_fd: int | None) -> Counting:
        """Counts its iterations. kind: as --progress has it, or "none". ours: we start the job."""

    def actuation(self, actuator: str, device: Tunable, new_guardian: NewGuardian) -> Actuation:
        """How the limits of its devices are set. Raises ActuatorUnavailable."""

    def sampler(
        self,
        *,
        clock: RunClock,
        device: Tunable,
        steps: Callable[[], StepReading | None],
        node: PowerSource | None,
        pace: Callable[[], float],
    ) -> Sampler:
        """Reads its devices. pace: seconds between samples."""


class LocalPlace:
    """This machine. pid: of a job that runs already."""

    remembers = True

    def __init__(self, pid: int | None = None) -> None:
        self._pid = pid

    def job(self, stack: ExitStack) -> AttachedJob:
        """As Place has it."""
        assert self._pid is not None, "a job that is started here is not there yet"
        return stack.enter_context(AttachedJob(self._pid))

    def source(self, config: RunConfig, clock: SignalClock, check: CheckCaps, owner_uid: int | None) -> DeviceSource:
        """The kind of device that --device names."""
        return devices.open_source(config, clock, check, owner_uid)

    def require(self, config: RunConfig) -> None:
        """As Place has it."""
        require_actuator(config)

    def leftovers(self, *, observe: bool) -> list[str]:
        """As Place has it."""
        return settle_leftovers(observe=observe)

    def node(self, config: RunConfig, clock: SignalClock, stack: ExitStack) -> PowerSource | None:
        """As Place has it."""
        return open_node_power(config, clock, stack)

    def counting(self, kind: str, *, ours: bool, step_map_fd: int | None) -> IterationCounter:
        """As Place has it."""
        return IterationCounter(kind, ours=ours, step_map_fd=step_map_fd)

    def actuation(self, actuator: str, device: Tunable, new_guardian: NewGuardian = Guardian) -> Actuation:
        """As Place has it."""
        return actuation(actuator, device, new_guardian)

    def sampler(
        self,
        *,
        clock: RunClock,
        device: Tunable,
        steps: Callable[[], StepReading | None],
        node: PowerSource | None,
        pace: Callable[[], float],
    ) -> LocalSampler:
        """One sample each time."""
        return LocalSampler(clock=clock, device=device, steps=steps, node=node)
