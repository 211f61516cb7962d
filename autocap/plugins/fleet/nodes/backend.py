"""The nodes of a Slurm or Ray job as the place where a session's job runs: their devices as one device, which the
agents read and set, its samples, and its iterations. Of these the agents count steps and calls; its output and
`autocap.tune` count here."""

import math
import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Self

from autocap.clock import RunClock
from autocap.config import CALLS_WITHIN_SECONDS, NODE_POWER, PERIOD_WITHIN_SECONDS, RunConfig
from autocap.devices import node as node_power
from autocap.devices.base import CheckCaps, DeviceSource, LimitPort, PowerSource, Tunable
from autocap.errors import DeviceError, EngineUnavailable, UsageError
from autocap.events import SetterChosen
from autocap.job.attached import AttachedJob, FollowedJob
from autocap.job.processes import ProcessId, Roots, identify
from autocap.job.signals import SignalClock
from autocap.knobs import POWER_LIMIT, Knob
from autocap.limits import Guardian, Restored
from autocap.plugins.fleet.nodes.agent_pool import AgentPool, Channel
from autocap.plugins.fleet.nodes.agents import Agent
from autocap.plugins.fleet.nodes.guardian import ClusterGuardian, settled
from autocap.plugins.fleet.nodes.protocol import Begin, Target
from autocap.plugins.fleet.nodes.transport import AGENT, Carrier, reached_by
from autocap.progress import BestProgress, Progress, SpeedProgress, StepProgress
from autocap.progress.calls.target import KIND as CALLS
from autocap.progress.calls.target import call_target
from autocap.progress.counter import IterationCounter
from autocap.progress.counting import Counting
from autocap.progress.period.progress import PeriodProgress
from autocap.records import GpuInfo, NodeReading, Reading, Sample, SensorInfo, StepReading
from autocap.session.backend import Backend
from autocap.session.via import Actuation, NewGuardian

# A cap is in force on the last node somewhat after the sample at which it was decided.
_ACROSS_S = 0.5
_LOOK_S = 0.02
_GPUS = "nvml"  # the kind of what an engine calls GPUs
# For all agents to answer, where the job runs already; where it was started just now they have waited before.
_ANSWER_S, _LAST_ANSWER_S = 75.0, 5.0


def of_agents(kind: str, step_map_fd: int | None) -> str:
    """What the agents are to count, as --progress has it: nothing that is counted here, or not at all."""
    counted = kind in ("auto", "steps", CALLS) or kind.startswith(f"{CALLS}:")
    return kind if counted and step_map_fd is None else "none"


class ClusterCounter(Counting):
    """kind, ours, step_map_fd: as IterationCounter has them. tell: hears whether iterations need be counted.

    step_map: the path of the file in which the job's processes count, the same on every node; `None` without one.
    """

    def __init__(
        self,
        kind: str,
        *,
        ours: bool,
        step_map_fd: int | None,
        tell: Callable[[bool], object],
        for_workers: Callable[[Mapping[str, str], Mapping[str, str]], dict[str, str]] | None = None,
    ) -> None:
        self._for_workers = for_workers
        self._kind, self._ours, self._tell = kind, ours, tell
        self._inner = IterationCounter(kind, ours=ours, step_map_fd=step_map_fd)
        super().__init__(self._inner)
        self._counts_here = step_map_fd is not None or kind.startswith("regex:")
        self.step_map: str | None = None

    def __enter__(self) -> Self:
        if self._counts_here or (self._ours and self._kind in ("auto", "steps")):
            self._inner.__enter__()
            if not self._counts_here and self._inner.step_map is not None:
                self.step_map = str(self._inner.step_map)
        return self

    def follow(self, job: Roots | None) -> None:
        """The agents find its processes."""

    @property
    def remarks(self) -> tuple[str, ...]:
        """The agents' come as notes."""
        return ()

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """The child's, which it hands on to its nodes."""
        if self._for_workers is None or self.step_map is None:
            return self._inner.environment(base)
        return {**base, **self._for_workers(self._inner.environment({}), base)}

    def read(self, origin_s: float, *, needed: bool = True) -> StepReading | None:
        """What is counted here; `None` where the agents count."""
        self._tell(needed)
        return self._inner.read(origin_s) if self._counts_here else None

    def progress(self, sensor: SensorInfo) -> Progress:
        """What turns samples into marks: as on one machine, but whether calls can be counted only the agents know."""
        if self._ours or self._kind != "auto":
            return self._inner.progress(sensor)
        rest = BestProgress(PeriodProgress(sensor), SpeedProgress(), PERIOD_WITHIN_SECONDS, late=True)
        return BestProgress(StepProgress(CALLS, call_target(CALLS).what), rest, CALLS_WITHIN_SECONDS, late=True)


class ClusterDevice(Tunable):
    """What all agents have found, node by node in the order of their numbers."""

    def __init__(self, fleet: AgentPool) -> None:
        every = fleet.found
        assert every, "the devices are known once all agents have found theirs"
        self._fleet = fleet
        self.kind = _joined(found.kind for found in every)
        self.emulated = any(found.emulated for found in every)
        self.driver = _joined(found.driver for found in every if found.driver is not None) or None
        self.gpus = tuple(
            replace(gpu, node=agent.name)
            for agent, found in zip(fleet.agents, every, strict=True)
            for gpu in found.gpus
        )
        counters_s = [found.sensor.counter_s for found in every if found.sensor.counter_s is not None]
        self.sensor = SensorInfo(
            update_s=max(found.sensor.update_s for found in every),
            window_s=max(found.sensor.window_s for found in every),
            settle_s=max(found.sensor.settle_s for found in every) + _ACROSS_S,
            counter_s=max(counters_s) if len(counters_s) == len(every) else None,
        )
        self.readings = tuple(
            Reading(t_s=fleet.now(), power_w=None, requested_w=limit_w)
            for found in every
            for limit_w in found.original_w
        )

    def read(self) -> tuple[Reading, ...]:
        """As in the latest sample."""
        return self.readings

    def notes(self) -> tuple[str, ...]:
        """Of all agents, with the node's name."""
        return self._fleet.notes()

    def limits(self) -> LimitPort:
        """Raises DeviceError: each node's agent has its own."""
        raise DeviceError("limits on other nodes are set by their agents, and nowhere else")


class ClusterSource(DeviceSource):
    """begin: what the agents are to look for. within_s: for how long the only look waits for the last of them. close:
    ends the agents."""

    def __init__(
        self,
        fleet: AgentPool,
        begin: Callable[[], Begin],
        pause: Callable[[float], object],
        within_s: float,
        close: Callable[[], object] = lambda: None,
    ) -> None:
        self._fleet, self._begin, self._pause, self._within_s = fleet, begin, pause, within_s
        self._close = close

    def __exit__(self, *error: object) -> None:
        self._close()

    def find(self, job: object, waited_s: float) -> ClusterDevice | None:
        """As DeviceSource has it, once all agents have found theirs."""
        fleet = self._fleet
        end_s = fleet.now() + (self._within_s if math.isinf(waited_s) else 0.0)
        while True:
            fleet.tend()
            begin = self._begin()  # Ray's job is known only once it was found
            fleet.begin(begin)
            if (trouble := fleet.trouble) is not None:
                fleet.end(trouble)
                raise DeviceError(trouble)
            if fleet.found is not None:
                if begin.gpus is None:
                    _compare(fleet)
                return ClusterDevice(fleet)
            if fleet.now() >= end_s:
                break
            self._pause(_LOOK_S)
        if math.isinf(waited_s):
            missing = ", ".join(agent.name for agent in fleet.agents if agent.found is None)
            why = (
                f"no answer from the agents of {missing} within {self._within_s:g} s; see their nodes"
                if fleet.agents
                else f"the nodes of the job were not known within {self._within_s:g} s: not all of its actors live "
                "yet, or it has none; tune it once they do"
            )
            fleet.end(why)
            raise DeviceError(why)
        return None


class ClusterSampler:
    """A `Sampler`. steps: what is counted here, such as lines of output; it goes before what the nodes count. pace:
    seconds between samples."""

    def __init__(
        self,
        fleet: AgentPool,
        device: ClusterDevice,
        steps: Callable[[], StepReading | None],
        pace: Callable[[], float],
    ) -> None:
        self._fleet, self._device, self._steps, self._pace = fleet, device, steps, pace
        self._was_paused = False
        self._counted: deque[StepReading] = deque()  # here, the last at or before the latest sample, and since

    @property
    def gpus(self) -> tuple[GpuInfo, ...]:
        return self._device.gpus

    def samples(self) -> Iterator[Sample]:
        """What the agents have read, up to the time by which all have; nothing once they were ended, or the job has on
        one of its nodes, nor while one of them is stalled, or limits were put back and nobody has heard of it yet.

        Raises DeviceError, once, where one of them is gone.
        """
        fleet = self._fleet
        if fleet.over is not None:
            return
        fleet.expect_rows()
        here = self._steps()
        if here is not None and (not self._counted or here != self._counted[-1]):
            self._counted.append(here)
        fleet.interval_s = self._pace()
        fleet.tend()
        if (trouble := fleet.trouble) is not None:
            fleet.end(trouble)
            raise DeviceError(trouble)
        assert fleet.merger is not None
        if fleet.ending:
            return
        if fleet.unheard or fleet.was_put_back:  # which is heard with the next beat, and no sample until then counts
            self._was_paused = True
            return
        if self._was_paused:
            self._was_paused = False
            fleet.merger.drop_before(fleet.now())
        while (sample := fleet.merger.next(fleet.silent)) is not None:
            self._device.readings = sample.readings
            yield self._with_steps(sample)
        fleet.interval_s = self._pace()  # what was decided on is to be seen at once

    def notes(self) -> tuple[str, ...]:
        return self._device.notes()

    def _with_steps(self, sample: Sample) -> Sample:
        counted = self._counted
        while len(counted) > 1 and counted[1].t_s <= sample.t_s:
            counted.popleft()
        return replace(sample, steps=counted[0]) if counted and counted[0].t_s <= sample.t_s else sample


def _compare(fleet: AgentPool) -> None:
    """Say where another number of GPUs is tuned than the job was given."""
    for agent in fleet.agents:
        found, given = agent.found, fleet.held(agent)
        if given and found is not None and found.kind == _GPUS and len(found.gpus) != given:
            gpus = f"{given} GPU{'s' * (given != 1)}"
            fleet.note(f"{agent.name}: the job was given {gpus} there and uses {len(found.gpus)}, which are tuned")


def _joined(names: Iterator[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def backend(where: str, job: str | None, pid: int | None = None, *, begins: bool) -> "ClusterBackend":
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
        return ClusterBackend(transport.carrier(address, job, driver=driver, agent=AGENT), pid)
    except EngineUnavailable as error:
        if not begins:
            raise
        return nowhere(error)


def nowhere(why: EngineUnavailable) -> "ClusterBackend":
    """The place of a command whose nodes cannot be told, so that it runs untuned."""

    def refuse() -> Channel:
        raise why

    return ClusterBackend(Carrier(target=Target(engine="", job=""), names=(), open=refuse))


class ClusterJob(FollowedJob):
    """A job that runs already on nodes where only agents see it.

    pid, identity: our own, as none of its processes need run here.
    """

    def __init__(self, target: Target, fleet: Callable[[], AgentPool | None]) -> None:
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


class ClusterBackend(Backend):
    """pid: of the process that asked for it, of a job that tunes itself."""

    remembers = attends = False

    def __init__(self, carrier: Carrier, pid: int | None = None) -> None:
        super().__init__(pid)
        self._carrier = carrier
        self._fleet: AgentPool | None = None
        self._counter: ClusterCounter | None = None
        self._runs_already = False
        self._clock: SignalClock | None = None

    def job(self, stack: ExitStack) -> FollowedJob:
        self._runs_already = self._pid is None
        if self._pid is not None:
            return stack.enter_context(AttachedJob(self._pid))
        return ClusterJob(self._carrier.target, lambda: self._fleet)

    def source(self, config: RunConfig, clock: SignalClock, check: CheckCaps, owner_uid: int | None) -> ClusterSource:
        """The agents are started here, before the job is."""
        self._clock = clock
        with clock.lifted():  # what carries the messages is to feel it when it is asked to end
            channel = self._carrier.open()
        self._fleet = fleet = AgentPool(channel, clock, self._carrier.names, pause=time.sleep)
        within_s = _ANSWER_S if self._runs_already else _LAST_ANSWER_S
        return ClusterSource(fleet, lambda: self._begin(config), time.sleep, within_s, close=channel.close)

    def require(self, config: RunConfig) -> None:
        """Only the agents can tell."""

    def node(self, config: RunConfig, clock: SignalClock, stack: ExitStack) -> PowerSource | None:
        """As Place has it; the agents open the meters."""
        return None if config.node_power == NODE_POWER else MachinesPower(config.node_power, clock)

    def counting(self, kind: str, *, ours: bool, step_map_fd: int | None) -> ClusterCounter:
        self._counter = ClusterCounter(
            kind, ours=ours, step_map_fd=step_map_fd, tell=self._tell, for_workers=self._carrier.for_workers
        )
        return self._counter

    def actuation(self, via: str, device: Tunable, new_guardian: NewGuardian = Guardian) -> Actuation:
        """Each agent chooses by itself who sets its limits."""
        fleet = self._fleet
        assert fleet is not None
        of_nodes = tuple(
            SetterChosen(
                t_s=0.0, name=found.via, where=found.where, reason=found.reason, node=fleet.agents[number].name
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

        return settled(gone, self._target(), opened, clock, time.sleep)

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
            via=config.via,
            progress=of_agents(config.progress, config.step_map_fd),
            node_power=config.node_power,
            shared_gpu=config.shared_gpu,
            observe=config.tune.observe,
            wait_s=0.0 if self._runs_already else config.tune.wait_s,
            step_map=None if self._counter is None else self._counter.step_map,
        )
