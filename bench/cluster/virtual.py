"""`python -m bench cluster virtual`: jobs on 1 to 512 nodes in virtual time, with clocks that differ and a bad network.

The controller, the loop, the fleet, the merger and the guardian are the real ones, and so are the lines that they
exchange with simulated agents. The first 16 nodes have cards of their own; each further one shows those of one of them.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from autocap import events
from autocap.clock import VirtualClock
from autocap.config import TuneConfig
from autocap.devices.model import profiles
from autocap.job.processes import ProcessId
from autocap.knobs import POWER_LIMIT
from autocap.metrics import Metric
from autocap.plugins.fleet.nodes.agent_pool import AgentPool
from autocap.plugins.fleet.nodes.backend import ClusterSampler, ClusterSource
from autocap.plugins.fleet.nodes.guardian import ClusterGuardian
from autocap.plugins.fleet.nodes.protocol import Begin, Target
from autocap.records import GpuInfo, Measurement, NodeReading, Reading, Sample, SensorInfo, StepReading
from autocap.session.runner import Runner
from autocap.session.search_space import cap_grid, settings_known
from autocap.testing.simulated.device import SimulatedDevice
from autocap.testing.simulated.job import SimulatedJob
from autocap.testing.simulated.node import LimitChange, SimulatedNode
from bench.budget.live import controller_of
from bench.cluster.network import Network, VirtualAgent, VirtualChannel
from bench.simulation.clock import EventClock
from bench.simulation.jobs import Log, SimulatedProcess, certain, tune

_OWN_NODES = 16
_JOB = ProcessId(1, 1)
_DRIFT, _AHEAD_S = 20e-6, 5.0
_TRUTH_S, _TRUTH_FROM_S = 120.0, 20.0  # simulated at each cap, and from when on it counts
_BEGIN = Begin(
    target=Target(engine="slurm", job="1"),
    device="auto",
    gpus=None,
    via="auto",
    progress="steps",
    node_power="none",
    shared_gpu=False,
    observe=False,
    wait_s=60.0,
)


class SlicedMachine:
    """The cards of one node among those of all. others: reads all of them at most once a moment."""

    def __init__(self, others: "Cards", number: int, gpus: int) -> None:
        self._others, self._owns = others, number < _OWN_NODES
        first = (number % _OWN_NODES) * gpus
        self._cards = range(first, first + gpus)
        self.sensor: SensorInfo = others.device.sensor
        self.gpus: tuple[GpuInfo, ...] = tuple(
            replace(others.device.gpus[card], index=index, uuid=f"SIM-{number}-{index}")
            for index, card in enumerate(self._cards)
        )
        self._caps_w: tuple[float, ...] = tuple(others.read()[card].requested_w or 0.0 for card in self._cards)

    def read(self) -> tuple[Reading, ...]:
        """Those of its cards; the limits are its own."""
        every = self._others.read()
        return tuple(
            replace(every[card], requested_w=cap_w, enforced_w=cap_w)
            for card, cap_w in zip(self._cards, self._caps_w, strict=True)
        )

    def steps(self) -> StepReading | None:
        """Of the job, which is in lock step."""
        return self._others.steps()

    def node(self) -> NodeReading | None:
        """Nobody reads the power of the machines."""
        return None

    def set_caps(self, caps_w: Sequence[float]) -> None:
        """Take hold of the cards, where they are its own."""
        self._caps_w = tuple(caps_w)
        if self._owns:
            now_s = self._others.clock.now()
            for card, cap_w in zip(self._cards, caps_w, strict=True):
                self._others.device.schedule(LimitChange(t_s=now_s, cap_w=cap_w, gpu=card))


class Cards:
    """All cards of a job."""

    def __init__(self, clock: VirtualClock, device: SimulatedDevice) -> None:
        self.clock, self.device = clock, device
        self._readings: tuple[Reading, ...] = ()
        self._steps: StepReading | None = None
        self._read_s = -1.0

    def read(self) -> tuple[Reading, ...]:
        """All of them, now."""
        self._look()
        return self._readings

    def steps(self) -> StepReading | None:
        """Of the job, now."""
        self._look()
        return self._steps

    def _look(self) -> None:
        now_s = self.clock.now()
        if now_s != self._read_s:
            self._read_s = now_s
            self._readings, self._steps = self.device.read(), self.device.steps(now_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One job. cap_w: kept. energy_j, time_s: per iteration, all of the job. cpu_s: of the controller's side, in
    samples samples. error_s: the largest of the offsets' at the end, by what is said and truly."""

    cap_w: float
    energy_j: float
    time_s: float
    cpu_s: float = 0.0
    samples: int = 0
    said_error_s: float = 0.0
    true_error_s: float = 0.0
    warnings: tuple[str, ...] = ()


@dataclass
class CountingLog(Log):
    """Also counts samples."""

    samples: int = 0

    def sample(self, sample: Sample) -> None:
        """One more."""
        self.samples += 1


def on_nodes(
    job: SimulatedJob,
    cards: SimulatedNode,
    nodes: int,
    gpus: int,
    network: Network,
    config: TuneConfig,
    seed: int,
    *,
    log: CountingLog | None = None,
) -> Ran:
    """Tune one job on so many nodes, to its end. log: hears of everything; a new one unless given."""
    clock = EventClock()
    every = Cards(clock, SimulatedDevice(clock, job, cards, seed=seed))
    channel = VirtualChannel(clock, network, seed)
    rng = np.random.default_rng(seed)
    agents = []
    for number in range(nodes):
        agent = VirtualAgent(
            number=number,
            machine=SlicedMachine(every, number, gpus),
            clock=clock,
            say=channel.say,
            ahead_s=float(rng.uniform(-_AHEAD_S, _AHEAD_S)),
            drift=float(rng.uniform(-_DRIFT, _DRIFT)),
        )
        agents.append(agent)
        channel.add(agent)
    began_s, spent_s = time.process_time(), clock.spent_s
    fleet = AgentPool(
        channel, clock, [f"n{number}" for number in range(nodes)], pause=clock.pause, here=("ours", "clock")
    )
    source = ClusterSource(fleet, lambda: _BEGIN, clock.pause, 30.0)
    device = source.find(_JOB, float("inf"))
    assert device is not None
    log = log or CountingLog()
    with ClusterGuardian(fleet) as guardian:
        original_w = settings_known(device.gpus, POWER_LIMIT, guardian.found)
        controller = controller_of(config, device.gpus, device.sensor, original_w, seed)
        runner = Runner(
            clock=clock,
            sampler=ClusterSampler(fleet, device, lambda: None, lambda: controller.interval_s),
            controller=controller,
            job=SimulatedProcess(every.device, clock, 86400.0),
            sink=log,
            pace=lambda: controller.interval_s,
            setter=guardian,
        )
        runner.run()
        now_s = clock.now()
        said_s = max(agent.offset.error_s(now_s) for agent in fleet.agents)
        true_s = max(
            abs(known.offset.ahead_s - (agent.own_s() - now_s))
            for known, agent in zip(fleet.agents, agents, strict=True)
        )
        guardian.restore()
    cpu_s = (time.process_time() - began_s) - (clock.spent_s - spent_s)
    ran = _ran(log, every.device, job, original_w[0])
    return replace(ran, cpu_s=cpu_s, samples=log.samples, said_error_s=said_s, true_error_s=true_s)


def _ran(log: Log, device: SimulatedDevice, job: SimulatedJob, original_w: float) -> Ran:
    ends_s = device.true_ends_s()
    end_s = float(ends_s[-1])
    decided = [event for event in log.events if isinstance(event, events.Decided)]
    kept_w = decided[-1].setting if decided else None
    return Ran(
        cap_w=original_w if kept_w is None else kept_w,
        energy_j=sum(device.true_energy_j(0.0, end_s)) / len(ends_s),
        time_s=end_s / len(ends_s),
        warnings=tuple(event.text for event in log.events if isinstance(event, events.Warned)),
    )


def at_cap(job: SimulatedJob, cards: SimulatedNode, cap_w: float, seed: int) -> Measurement:
    """What a cap on these cards truly costs."""
    clock = VirtualClock()
    steady = replace(job, iterations=None, jitter=0.0, episodes=(), stall_chance=0.0)
    device = SimulatedDevice(clock, steady, replace(cards, limit_w=cap_w), seed=seed)
    clock.wait_until(_TRUTH_S)
    done = device.true_iterations(_TRUTH_FROM_S, _TRUTH_S)
    joules = sum(device.true_energy_j(_TRUTH_FROM_S, _TRUTH_S))
    return certain((cap_w,), (_TRUTH_S - _TRUTH_FROM_S) / done, joules / done)


def main(argv: Sequence[str]) -> int:
    """Print a row for each number of nodes."""
    parser = argparse.ArgumentParser(prog="python -m bench cluster virtual", description=__doc__)
    parser.add_argument("--nodes", type=_numbers, default=(1, 4, 16, 64, 512), help="by comma (default: 1,4,16,64,512)")
    parser.add_argument("--gpus", type=int, default=2, help="of each node (default: 2)")
    parser.add_argument("--spread", type=float, default=3.0, help="of the cards' efficiency, percent (default: 3)")
    parser.add_argument("--lost", type=float, default=1.0, help="share of messages, percent (default: 1)")
    parser.add_argument("--delay-ms", type=_numbers, default=(1, 100), help="least,most of a message (default: 1,100)")
    parser.add_argument("--iterations", type=int, default=1500, help="of each job (default: 1500)")
    parser.add_argument("--profile", default="quadro-rtx-6000/resnet50")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args(argv)
    network = Network(delay_s=(args.delay_ms[0] / 1e3, args.delay_ms[1] / 1e3), lost=args.lost / 100)
    metric = Metric(name="eds", k=2.0)
    config = TuneConfig(metric=metric)
    job = SimulatedJob(profile=profiles.load(args.profile), iterations=args.iterations)
    print(
        f"{'nodes':>5} {'GPUs':>5} {'kept W':>7} {'regret %':>8} {'one node: W':>11} {'regret %':>8} "
        f"{'job, % of one':>13} {'samples':>7} {'CPU ms/sample':>13} {'a node, µs':>10} "
        f"{'clocks ±ms':>10} {'true ms':>7}"
    )
    for nodes in args.nodes:
        cards = SimulatedNode(gpus=min(nodes, _OWN_NODES) * args.gpus, efficiency_spread=args.spread / 100)
        ran = on_nodes(job, cards, nodes, args.gpus, network, config, args.seed)
        one = _on_one(job, cards, config, args.seed)
        cost = partial(at_cap, job, cards, seed=args.seed)
        original_w = job.profile.cap_range.default_w
        base = cost(original_w)
        gpus = SimulatedDevice(VirtualClock(), job, cards, seed=args.seed).gpus
        grid = cap_grid(config, gpus, (original_w,) * len(gpus))
        costs = {cap_w: metric.cost(cost(cap_w), base).value for cap_w in grid}
        best = min(costs.values())
        whole = [metric.cost(certain((each.cap_w,), each.time_s, each.energy_j), base).value for each in (ran, one)]
        a_sample_s = ran.cpu_s / max(1, ran.samples)
        print(
            f"{nodes:>5} {nodes * args.gpus:>5} {ran.cap_w:>7g} {100 * (costs[ran.cap_w] / best - 1):>8.2f} "
            f"{one.cap_w:>11g} {100 * (costs[one.cap_w] / best - 1):>8.2f} {100 * (whole[0] / whole[1] - 1):>+13.2f} "
            f"{ran.samples:>7} {1e3 * a_sample_s:>13.3f} {1e6 * a_sample_s / nodes:>10.1f} "
            f"{1e3 * ran.said_error_s:>10.1f} {1e3 * ran.true_error_s:>7.1f}",
            flush=True,
        )
        for text in ran.warnings:
            print(f"      {text}")
    return 0


def _on_one(job: SimulatedJob, cards: SimulatedNode, config: TuneConfig, seed: int) -> Ran:
    done = tune(job, config, "model", node=cards, seed=seed)
    return _ran(done.log, done.device, job, job.profile.cap_range.default_w)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is not numbers by comma, such as 1,4,16") from None
