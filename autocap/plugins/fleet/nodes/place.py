"""The nodes of a Slurm or Ray job as the place where a session's job runs."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace

from autocap.clock import RunClock
from autocap.config import NODE_POWER, RunConfig
from autocap.devices import node as node_power
from autocap.devices.base import CheckCaps, PowerSource, Tunable
from autocap.errors import EngineUnavailable, UsageError
from autocap.events import ActuatorChosen
from autocap.job.attached import AttachedJob, FollowedJob
from autocap.job.processes import ProcessId, identify
from autocap.job.signals import SignalClock
from autocap.knobs import POWER_LIMIT, Knob
from autocap.limits import Guardian, Restored
from autocap.plugins.fleet.nodes import aftermath
from autocap.plugins.fleet.nodes.agents import Agent
from autocap.plugins.fleet.nodes.carriers import AGENT
from autocap.plugins.fleet.nodes.counting import ClusterCounter, of_agents
from autocap.plugins.fleet.nodes.device import ClusterDevice, ClusterSampler, ClusterSource
from autocap.plugins.fleet.nodes.fleet import Channel, Fleet
from autocap.plugins.fleet.nodes.guardian import ClusterGuardian
from autocap.plugins.fleet.nodes.protocol import Begin, Target
from autocap.plugins.fleet.nodes.transport import Carrier, reached_by
from autocap.records import NodeReading, StepReading
from autocap.session.actuating import Actuation, NewGuardian
from autocap.session.place import Place

# For all agents to answer, where the job runs already; where it was started just now they have waited before.
_ANSWER_S, _LAST_ANSWER_S = 75.0, 5.0


def place(where: str, job: str | None, pid: int | None = None, *, begins: bool) -> "ClusterPlace":
    """Where the job of `run` and `attach` is. pid: of a process that asked to be tuned. begins: we start the job, which
    nothing keeps from running: untuned, where its nodes cannot be told.

    Raises UsageError, and EngineUnavailable where the engine or the job is not there.
    """
    transport, address = reached_by(where)
    if job is None and pid is None and not begins and not transport.has_job_around:
        raise UsageError(
            f"--nodes {where} has many jobs; name one with --job ID, its id in Ray, as "
            "ray.get_runtime_context().get_job_id() gives it in the driver, or its submission's"
        )
    try:
        driver = os.getpid() if job is None else None
        return ClusterPlace(transport.carrier(address, job, driver=driver, agent=AGENT), pid)
    except EngineUnavailable as error:
        if not begins:
            raise
        return nowhere(error)


def nowhere(why: EngineUnavailable) -> "ClusterPlace":
    """The place of a command whose nodes cannot be told, so that it runs untuned."""

    def refuse() -> Channel:
        raise why

    return ClusterPlace(Carrier(target=Target(engine="", job=""), names=(), open=refuse))


class ClusterJob(FollowedJob):
    """A job that runs already on nodes where only agents see it.

    pid, identity: our own, as none of its processes need run here.
    """

    def __init__(self, target: Target, fleet: Callable[[], Fleet | None]) -> None:
        super().__init__()
        self.pid = os.getpid()
        identity = identify(self.pid)
        self.identity = identity or ProcessId(self.pid, 0)
        self.command: tuple[str, ...] = (f"{target.engine} job {target.job}",)
        self._fleet = fleet

    def poll(self) -> int | None:
        """0 once its processes have ended on all nodes, or it was left; `None` until then."""
        fleet = self._fleet()
        if fleet is not None and self.left_because is None:
            self.left_because = fleet.over
        return 0 if self.left_because is not None or (fleet is not None and fleet.ended) else None


class MachinesPower(PowerSource):
    """What --node-power reads on all nodes together; it comes with the samples."""

    name, whole, refresh_s = "", False, None

    def __init__(self, name: str, clock: RunClock) -> None:
        self.name, self._clock = name, clock
        self.whole = node_power.holds_gpus(name)

    def read(self) -> NodeReading:
        """Nothing is known before the agents sample."""
        return NodeReading(t_s=self._clock.now(), power_w=None, whole=self.whole)


class ClusterPlace(Place):
    """pid: of the process that asked for it, of a job that tunes itself."""

    remembers = attends = False

    def __init__(self, carrier: Carrier, pid: int | None = None) -> None:
        super().__init__(pid)
        self._carrier = carrier
        self._fleet: Fleet | None = None
        self._counter: ClusterCounter | None = None
        self._runs_already = False
        self._clock: SignalClock | None = None

    def job(self, stack: ExitStack) -> FollowedJob:
        """As Place has it."""
        self._runs_already = self._pid is None
        if self._pid is not None:
            return stack.enter_context(AttachedJob(self._pid))
        return ClusterJob(self._carrier.target, lambda: self._fleet)

    def source(self, config: RunConfig, clock: SignalClock, check: CheckCaps, owner_uid: int | None) -> ClusterSource:
        """The agents are started here, before the job is."""
        self._clock = clock
        with clock.lifted():  # what carries the messages is to feel it when it is asked to end
            channel = self._carrier.open()
        self._fleet = fleet = Fleet(channel, clock, self._carrier.names, pause=time.sleep)
        within_s = _ANSWER_S if self._runs_already else _LAST_ANSWER_S
        return ClusterSource(fleet, lambda: self._begin(config), time.sleep, within_s, close=channel.close)

    def require(self, config: RunConfig) -> None:
        """Only the agents can tell."""

    def node(self, config: RunConfig, clock: SignalClock, stack: ExitStack) -> PowerSource | None:
        """As Place has it; the agents open the meters."""
        return None if config.node_power == NODE_POWER else MachinesPower(config.node_power, clock)

    def counting(self, kind: str, *, ours: bool, step_map_fd: int | None) -> ClusterCounter:
        """As Place has it."""
        self._counter = ClusterCounter(
            kind, ours=ours, step_map_fd=step_map_fd, tell=self._tell, for_workers=self._carrier.for_workers
        )
        return self._counter

    def actuation(self, actuator: str, device: Tunable, new_guardian: NewGuardian = Guardian) -> Actuation:
        """Each agent chooses by itself who sets its limits."""
        fleet = self._fleet
        assert fleet is not None
        of_nodes = tuple(
            ActuatorChosen(
                t_s=0.0, name=found.actuator, where=found.where, reason=found.reason, node=fleet.agents[number].name
            )
            for number, found in enumerate(fleet.found or ())
        )
        return Actuation(
            name="agents", gpus=device.gpus, guardian=lambda job: ClusterGuardian(fleet, self._look), of_nodes=of_nodes
        )

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
    ) -> ClusterSampler:
        """As Place has it."""
        assert self._fleet is not None
        assert isinstance(device, ClusterDevice)
        return ClusterSampler(self._fleet, device, steps, pace)

    def _look(self, gone: Sequence[Agent]) -> Mapping[int, tuple[Restored, ...]]:
        reopen, clock = self._carrier.reopen, self._clock
        if reopen is None or clock is None:
            return {}

        def opened(nodes: Sequence[str]) -> Channel:
            with clock.lifted():
                return reopen(nodes)

        return aftermath.settled(gone, self._target(), opened, clock, time.sleep)

    def _tell(self, counted: bool) -> None:
        if self._fleet is not None:
            self._fleet.counted = counted

    def _target(self) -> Target:
        known = self._carrier.target
        assert self._fleet is not None
        return replace(known, job=self._fleet.job or known.job)  # what was named may be its submission

    def _begin(self, config: RunConfig) -> Begin:
        return Begin(
            target=self._target(),
            device=config.device,
            gpus=config.gpus,
            actuator=config.actuator,
            progress=of_agents(config.progress, config.step_map_fd),
            node_power=config.node_power,
            shared_gpu=config.shared_gpu,
            observe=config.tune.observe,
            wait_s=0.0 if self._runs_already else config.tune.wait_s,
            step_map=None if self._counter is None else self._counter.step_map,
        )
