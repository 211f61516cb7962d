"""Where a job runs, to a session: on this machine, or on whatever nodes a plug-in's `Backend` knows of."""

from collections.abc import Callable
from contextlib import ExitStack

from autocap import devices
from autocap.clock import RunClock
from autocap.config import RunConfig
from autocap.devices.base import CheckCaps, DeviceSource, PowerSource, Tunable
from autocap.job import registry
from autocap.job.attached import AttachedJob, FollowedJob
from autocap.job.signals import SignalClock
from autocap.knobs import POWER_LIMIT, Knob
from autocap.limits import Guardian
from autocap.progress.counter import IterationCounter
from autocap.progress.counting import Counting
from autocap.records import StepReading
from autocap.session.polling import PollingComparison
from autocap.session.preparing import open_node_power, settle_leftovers
from autocap.session.roles import Sampler
from autocap.session.sampling import LocalSampler
from autocap.session.via import Actuation, NewGuardian, actuation, require_setter


class Backend:
    """What is particular to where a job runs: this machine, unless a subclass says otherwise. pid: of a job that runs
    already. remembers: whether what was learnt of such a job can be told apart from what was learnt of others.
    attends: whether drivers are called from here, each of which may take seconds to answer."""

    remembers = True
    attends = True

    def __init__(self, pid: int | None = None) -> None:
        self._pid = pid

    def job(self, stack: ExitStack) -> FollowedJob:
        """The job that runs already, held until the stack closes. Raises TargetError where there is none."""
        assert self._pid is not None, "a job that is started here is not there yet"
        return stack.enter_context(AttachedJob(self._pid))

    def source(self, config: RunConfig, clock: SignalClock, check: CheckCaps, owner_uid: int | None) -> DeviceSource:
        """Finds its devices, here of the kind that --device names; owner_uid: of a job that runs already. Raises
        DeviceError."""
        return devices.open_source(config, clock, check, owner_uid)

    def require(self, config: RunConfig) -> None:
        """Before there is a job: raises SetterUnavailable where what --via names is not there at all."""
        require_setter(config)

    def leftovers(self, *, observe: bool) -> list[str]:
        """Put back what dead runs left on this machine, unless nothing is to be set; sentences on it."""
        return settle_leftovers(observe=observe)

    def node(self, config: RunConfig, clock: SignalClock, stack: ExitStack) -> PowerSource | None:
        """The source that --node-power names, open until the stack closes; `None` for none. Raises
        DeviceUnavailable."""
        return open_node_power(config, clock, stack)

    def counting(self, kind: str, *, ours: bool, step_map_fd: int | None) -> Counting:
        """Counts its iterations. kind: as --progress has it, or "none". ours: we start the job."""
        name, _, argument = kind.partition(":")
        if name in registry.plugged_in("progress"):
            made: Counting = registry.load("progress", name)(argument, ours=ours)
            return made
        return IterationCounter(kind, ours=ours, step_map_fd=step_map_fd)

    def actuation(self, via: str, device: Tunable, new_guardian: NewGuardian = Guardian) -> Actuation:
        """How the limits of its devices are set. Raises SetterUnavailable."""
        return actuation(via, device, new_guardian)

    def sampler(
        self,
        *,
        clock: RunClock,
        device: Tunable,
        steps: Callable[[], StepReading | None],
        node: PowerSource | None,
        pace: Callable[[], float],
        is_steady: Callable[[], bool],
        knob: Knob = POWER_LIMIT,
    ) -> Sampler:
        """Reads its devices. pace: seconds between samples. is_steady: whether nothing is needed for some seconds."""
        patient = isinstance(clock, SignalClock)
        local = LocalSampler(clock=clock, device=device, steps=steps, node=node, patient=patient, knob=knob)
        return PollingComparison(local, clock=clock, steps=steps, is_steady=is_steady, pace=pace)
