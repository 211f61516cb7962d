"""Nodes whose devices draw what they are told to, behind a virtual network."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from autocap.job.processes import ProcessId
from autocap.plugins.fleet.nodes.agent_pool import AgentPool
from autocap.plugins.fleet.nodes.backend import ClusterDevice, ClusterSource
from autocap.plugins.fleet.nodes.protocol import Begin, Target
from autocap.records import CapRange, GpuInfo, NodeReading, Reading, SensorInfo, StepReading
from bench.cluster.network import Network, VirtualAgent, VirtualChannel
from bench.simulation.clock import EventClock

RANGE = CapRange(min_w=100.0, max_w=300.0, default_w=250.0)
SENSOR = SensorInfo(update_s=0.1, window_s=0.0, settle_s=0.2, counter_s=0.02)
JOB = ProcessId(1, 1)
BEGIN = Begin(
    target=Target(engine="slurm", job="7"),
    device="auto",
    gpus=None,
    via="auto",
    progress="auto",
    node_power="none",
    shared_gpu=False,
    observe=False,
    wait_s=10.0,
)


@dataclass
class PlainMachine:
    """Devices of one node. watts: of each at a virtual time; rate: steps a second."""

    clock: EventClock
    name: str
    count: int = 2
    cap_range: CapRange = RANGE
    watts: Callable[[float], float] = lambda t_s: 200.0
    joules: Callable[[float], float] = lambda t_s: 200.0 * t_s
    rate: float = 10.0
    beside_w: float | None = None
    sensor: SensorInfo = SENSOR
    gpus: tuple[GpuInfo, ...] = field(init=False)
    caps_w: tuple[float, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.gpus = tuple(
            GpuInfo(index=index, uuid=f"GPU-{self.name}-{index}", name="plain", cap_range=self.cap_range)
            for index in range(self.count)
        )
        self.caps_w = (self.cap_range.default_w,) * self.count

    def read(self) -> tuple[Reading, ...]:
        now_s = self.clock.now()
        return tuple(
            Reading(t_s=now_s, power_w=self.watts(now_s), energy_j=self.joules(now_s), requested_w=cap_w)
            for cap_w in self.caps_w
        )

    def steps(self) -> StepReading | None:
        count = int(self.rate * self.clock.now())
        return StepReading(count=count, t_s=count / self.rate) if count else None

    def node(self) -> NodeReading | None:
        if self.beside_w is None:
            return None
        return NodeReading(t_s=self.clock.now(), power_w=self.beside_w, whole=False)

    def set_caps(self, caps_w: Sequence[float]) -> None:
        self.caps_w = tuple(caps_w)


@dataclass
class World:
    """Some nodes and the fleet that the controller has of them."""

    clock: EventClock
    channel: VirtualChannel
    agents: list[VirtualAgent]
    fleet: AgentPool

    @classmethod
    def of(
        cls,
        nodes: int = 3,
        network: Network | None = None,
        seed: int = 0,
        ahead_s: Sequence[float] = (),
        drift: Sequence[float] = (),
        **machine: object,
    ) -> "World":
        clock = EventClock()
        channel = VirtualChannel(clock, network or Network(), seed)
        agents = []
        for number in range(nodes):
            made = PlainMachine(clock, f"{number}", **machine)  # type: ignore[arg-type]
            agent = VirtualAgent(
                number=number,
                machine=made,
                clock=clock,
                say=channel.say,
                ahead_s=ahead_s[number] if ahead_s else 0.0,
                drift=drift[number] if drift else 0.0,
            )
            agents.append(agent)
            channel.add(agent)
        fleet = AgentPool(
            channel, clock, [f"n{number}" for number in range(nodes)], pause=clock.pause, here=("ours", "clock")
        )
        return cls(clock, channel, agents, fleet)

    def machine(self, number: int) -> PlainMachine:
        found = self.agents[number].machine
        assert isinstance(found, PlainMachine)
        return found

    def device(self) -> ClusterDevice:
        source = ClusterSource(self.fleet, lambda: BEGIN, self.clock.pause, 10.0)
        found = source.find(JOB, float("inf"))
        assert found is not None
        return found

    def go_on(self, seconds: float, every_s: float = 0.1) -> None:
        """Tend the fleet for so long."""
        end_s = self.clock.now() + seconds
        while self.clock.now() < end_s:
            self.clock.pause(every_s)
            self.fleet.tend()


__all__ = ["BEGIN", "JOB", "RANGE", "PlainMachine", "World"]
