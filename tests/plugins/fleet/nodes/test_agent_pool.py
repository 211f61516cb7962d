"""The controller's side of the nodes, over a virtual network: caps that reach all, and what becomes of who is gone."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from autocap.clock import VirtualClock
from autocap.errors import DeviceError, EngineUnavailable, GuardError, LimitRefused
from autocap.limits import Restored
from autocap.limits.recovery import Fate, Settled
from autocap.limits.times import LOST_S
from autocap.plugins.fleet.nodes.agent import settling
from autocap.plugins.fleet.nodes.agent.finding import SlurmJob
from autocap.plugins.fleet.nodes.agents import Agent
from autocap.plugins.fleet.nodes.backend import ClusterDevice, ClusterSampler
from autocap.plugins.fleet.nodes.guardian import ClusterGuardian, settled
from autocap.plugins.fleet.nodes.protocol import Command, Done, Failed, Fault, Lost, Message, Settle, Target
from autocap.records import CapRange, Sample
from autocap.session.search_space import common_range
from bench.cluster.network import Network, VirtualAgent
from tests.plugins.fleet.nodes.world import World

SLOW = Network(delay_s=(0.001, 0.1), lost=0.0)
LOSSY = Network(delay_s=(0.001, 0.1), lost=0.2)
PACE_S = 0.1
TARGET = Target(engine="slurm", job="7")


@contextmanager
def guarded(
    nodes: int, network: Network | None = None, *, caps_w: float | None = 150.0, **more: Any
) -> Iterator[tuple[World, ClusterDevice, ClusterGuardian]]:
    """A world whose devices are known, all under that cap."""
    world = World.of(nodes, network, **more)
    device = world.device()
    with ClusterGuardian(world.fleet) as guardian:
        if caps_w is not None:
            guardian.set_caps((caps_w,) * len(device.gpus))
        yield world, device, guardian


def sampled(world: World, seconds: float, device: object, guardian: ClusterGuardian | None = None) -> list[Sample]:
    sampler = ClusterSampler(world.fleet, device, lambda: None, lambda: PACE_S)  # type: ignore[arg-type]
    found: list[Sample] = []
    end_s = world.clock.now() + seconds
    while world.clock.now() < end_s:
        world.clock.pause(PACE_S)
        if guardian is not None:
            guardian.beat()
        found += sampler.samples()
    return found


def test_all_devices_of_all_nodes_are_one_device() -> None:
    world = World.of(3, SLOW, ahead_s=(0.0, 500.0, -20.0))
    device = world.device()
    assert [gpu.where for gpu in device.gpus] == [
        f"GPU {index} of node{node}" for node in (1, 2, 3) for index in (0, 1)
    ]
    assert [reading.requested_w for reading in device.read()] == [250.0] * 6
    samples = sampled(world, 20.0, device)
    assert len(samples) > 150
    assert all(len(sample.readings) == 6 for sample in samples)
    # Rows of clocks that are minutes apart stand beside one another, by as much as is said of the offsets.
    for agent, other in zip(world.fleet.agents, world.agents, strict=True):
        truth_s = other.own_s() - world.clock.now()
        assert abs(agent.offset.ahead_s - truth_s) <= agent.offset.error_s(world.clock.now()) <= 0.06
    joules = [sum(reading.energy_j or 0.0 for reading in sample.readings) for sample in samples]
    # Of 6 × 200 W: the error of an offset is the same in the first and the last sample, so only its drift is left.
    watts = (joules[-1] - joules[10]) / (samples[-1].t_s - samples[10].t_s)
    assert watts == pytest.approx(1200.0, rel=2e-3)


def test_a_set_is_said_until_all_have_done_it_and_done_once() -> None:
    with guarded(4, LOSSY, seed=3, caps_w=None) as (world, _, guardian):
        caps_w = tuple(150.0 + number for number in range(8))
        guardian.set_caps(caps_w)
        assert [cap_w for number in range(4) for cap_w in world.machine(number).caps_w] == list(caps_w)
        guardian.set_caps((120.0,) * 8)
    for agent in world.agents:
        assert [what for _, what in agent.story if what == "set"] == ["set", "set"]
        assert [what for _, what in agent.story][-2:] == ["end", "back"]


def test_samples_after_a_set_show_it_on_all_nodes() -> None:
    world = World.of(3, SLOW, ahead_s=(3.0, -3.0, 0.0))
    device = world.device()
    sampled(world, 3.0, device)
    with ClusterGuardian(world.fleet) as guardian:
        guardian.set_caps((140.0,) * 6)
        samples = sampled(world, 1.0, device)
        assert samples
        assert {reading.requested_w for sample in samples for reading in sample.readings} == {140.0}


@pytest.mark.slow
def test_a_rehearsal_is_awaited_for_longer_than_a_cap_is(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = VirtualAgent._do

    def later(agent: VirtualAgent, order: Command) -> None:
        agent.clock.at(agent.clock.now() + 5.0, lambda: at_once(agent, order))

    with guarded(2, caps_w=None) as (world, _, guardian):
        monkeypatch.setattr(VirtualAgent, "_do", later)
        guardian.rehearse()
        guardian.set_caps((150.0,) * 4)  # is put off, as long as the agents are heard
        world.clock.pause(6.0)
        assert world.machine(0).caps_w == world.machine(1).caps_w == (250.0, 250.0)
        assert guardian.beat()
        assert world.fleet.notes() == (
            "node1, node2: a cap was not set within 2 s; the limits of all nodes were put back, to try again",
        )
        monkeypatch.setattr(VirtualAgent, "_do", at_once)
        guardian.set_caps((150.0,) * 4)
        assert world.machine(0).caps_w == world.machine(1).caps_w == (150.0, 150.0)
        monkeypatch.setattr(VirtualAgent, "_do", later)
        until_s = world.clock.now() + LOST_S
        while world.clock.now() < until_s:
            guardian.set_caps((160.0,) * 4)
        with pytest.raises(GuardError, match="node1: its agent has not answered in time"):
            guardian.set_caps((160.0,) * 4)


def test_a_late_node_makes_a_gap_and_comes_back() -> None:
    with guarded(3, caps_w=None) as (world, device, guardian):
        sampled(world, 2.0, device, guardian)
        world.agents[1].dead = True
        gap = sampled(world, 1.6, device, guardian)[-1]
        assert [reading.power_w for reading in gap.readings] == [200.0, 200.0, None, None, 200.0, 200.0]
        world.agents[1].dead = False
        later = sampled(world, 1.0, device, guardian)[-1]
        assert [reading.power_w for reading in later.readings] == [200.0] * 6


@pytest.mark.parametrize("stopped_s", [2.8, 30.0])
def test_an_agent_that_stands_still_comes_back_and_meanwhile_all_limits_are_as_found(stopped_s: float) -> None:
    with guarded(3, SLOW) as (world, device, guardian):
        sampled(world, 2.0, device, guardian)
        world.agents[1].dead = True
        world.agents[1].machine.set_caps((250.0, 250.0))  # its watchdog
        for number in (0, 2):
            assert world.machine(number).caps_w == (150.0, 150.0)
        began_s = world.clock.now()
        sampler, samples = ClusterSampler(world.fleet, device, lambda: None, lambda: PACE_S), []
        while world.clock.now() < began_s + stopped_s:
            world.clock.pause(PACE_S)
            guardian.beat()
            samples += sampler.samples()
        for number in (0, 2):
            assert world.machine(number).caps_w == (250.0, 250.0)
            (back_s,) = [t_s for t_s, what in world.agents[number].story if what == "back"]
            assert back_s - began_s < 3.0
        guardian.set_caps((140.0,) * 6)  # is asked for again, once it is heard
        assert world.machine(0).caps_w == (250.0, 250.0)
        assert not any(sample.t_s > began_s + 2.5 for sample in samples)
        world.agents[1].dead = False
        beats = []
        for _ in range(8):
            beats.append(guardian.beat())
            if beats[-1]:
                guardian.set_caps((150.0,) * 6)
            assert {reading.requested_w for sample in sampler.samples() for reading in sample.readings} <= {150.0}
            world.clock.pause(0.2)
        assert beats.count(True) == 1
        assert [world.machine(number).caps_w for number in range(3)] == [(150.0, 150.0)] * 3
        (note,) = world.fleet.notes()
        assert note.startswith("node2: nothing was heard from its agent for ")


def test_a_set_that_a_silent_agent_does_not_answer_is_put_off_and_not_the_end() -> None:
    with guarded(2, caps_w=None) as (world, device, guardian):
        sampled(world, 1.0, device, guardian)
        world.agents[1].dead = True
        guardian.set_caps((150.0,) * 4)
        assert world.machine(0).caps_w == (250.0, 250.0)
        world.agents[1].dead = False
        sampled(world, 1.0, device, guardian)
        guardian.set_caps((150.0,) * 4)
        assert world.machine(1).caps_w == (150.0, 150.0)


def test_limits_that_were_put_back_are_heard_of_before_a_sample_shows_them() -> None:
    with guarded(3, SLOW) as (world, device, guardian):
        sampled(world, 2.0, device, guardian)
        world.agents[2].interrupt()
        sampler, heard, seen = ClusterSampler(world.fleet, device, lambda: None, lambda: PACE_S), [], []
        for _ in range(20):
            world.clock.pause(PACE_S)
            seen += [reading.requested_w for sample in sampler.samples() for reading in sample.readings]
            if world.fleet.was_put_back and not heard:  # as a runner, that beats less often than it samples
                world.clock.pause(0.3)
                seen += [reading.requested_w for sample in sampler.samples() for reading in sample.readings]
                heard.append(guardian.beat())
                guardian.set_caps((150.0,) * 6)
        assert heard == [True]
        assert set(seen) == {150.0}


@pytest.mark.slow
def test_a_lost_node_ends_the_tuning_and_all_others_put_back() -> None:
    with guarded(4, SLOW) as (world, device, guardian):
        sampled(world, 2.0, device, guardian)
        world.agents[2].dead = True
        dead_s = world.clock.now()
        with pytest.raises((GuardError, DeviceError), match="node3 for 60 s"):
            sampled(world, 65.0, device, guardian)
        began_s = world.clock.now()
        restored = guardian.restore()
        assert world.clock.now() - began_s < 0.5  # the lost one is told, and not waited for
        for number in (0, 1, 3):
            assert world.machine(number).caps_w == (250.0, 250.0)
            (back_s,) = [t_s for t_s, what in world.agents[number].story if what == "back"]
            assert back_s - dead_s < 3.0
        assert [one.restored for one in restored] == [True] * 4 + [None] * 2 + [True] * 2
        assert not any(one.failure for one in restored)  # nothing is to be tried again
        assert guardian.beat() is False  # it was said
        world.go_on(1.0)
        assert all(agent.dead for agent in world.agents)  # none is left
        assert guardian.restore() == restored
        assert list(ClusterSampler(world.fleet, device, lambda: None, lambda: PACE_S).samples()) == []


@pytest.mark.slow
def test_a_lost_node_ends_the_observing_as_well() -> None:
    world = World.of(3, SLOW)
    device = world.device()
    sampled(world, 2.0, device)
    world.agents[2].dead = True
    with pytest.raises(DeviceError, match="node3"):
        sampled(world, 65.0, device)
    world.go_on(1.0)
    assert all(agent.dead for agent in world.agents)
    assert sampled(world, 2.0, device) == []


def test_a_lost_node_ends_all_agents_before_the_devices_are_known() -> None:
    world = World.of(2)
    world.channel.say(1, Failed(why="it has no GPU"))
    with pytest.raises(DeviceError, match="node2: it has no GPU"):
        world.device()
    world.go_on(1.0)
    assert world.agents[0].dead


def test_a_silent_controller_lets_go_and_hears_of_it() -> None:
    with guarded(2) as (world, _, guardian):
        world.clock.pause(4.0)
        assert world.machine(0).caps_w == (250.0, 250.0)
        beats = []
        for _ in range(3):
            beats.append(guardian.beat())
            world.clock.pause(0.2)
        assert beats.count(True) == 1
        guardian.set_caps((150.0,) * 4)
        assert world.machine(0).caps_w == (150.0, 150.0)


@pytest.mark.parametrize(
    ("fault", "error"), [(Fault.REFUSED, LimitRefused), (Fault.FOREIGN, GuardError), (Fault.GUARD, GuardError)]
)
def test_one_nodes_refusal_is_told_with_its_name(fault: Fault, error: type[Exception]) -> None:
    world = World.of(3)
    world.device()
    world.agents[1].refuses = fault
    with ClusterGuardian(world.fleet) as guardian, pytest.raises(error, match="node2: its devices take none"):
        guardian.set_caps((150.0,) * 6)


def test_devices_that_differ_share_the_range_that_all_accept() -> None:
    world = World.of(2)
    world.machine(1).cap_range = CapRange(min_w=150.0, max_w=400.0, default_w=350.0)
    world.machine(1).__post_init__()
    shared = common_range(world.device().gpus)
    assert (shared.min_w, shared.max_w, shared.default_w) == (150.0, 300.0, 250.0)


def test_node_power_of_all_nodes_is_added_up() -> None:
    world = World.of(3, beside_w=120.0)
    samples = sampled(world, 2.0, world.device())
    assert {sample.node.power_w for sample in samples if sample.node is not None} == {360.0}


def test_the_job_ends_on_all_nodes() -> None:
    world = World.of(2)
    world.device()
    for number, agent in enumerate(world.agents):
        assert not world.fleet.ended
        agent.end_job()
        world.go_on(1.0 + number)
    assert world.fleet.ended
    assert world.fleet.trouble is None


def test_a_job_that_ends_on_one_node_alone_is_not_tuned_on() -> None:
    with guarded(2) as (world, device, guardian):
        world.agents[0].end_job()
        sampled(world, 1.0, device, guardian)
        assert world.machine(1).caps_w == (250.0, 250.0)  # at once, as perhaps it ends there as well
        assert not sampled(world, 1.0, device, guardian)
        with pytest.raises(GuardError, match="has ended on a node"):
            guardian.set_caps((150.0,) * 4)
        with pytest.raises(GuardError, match="node1 have ended"):
            sampled(world, 10.0, device, guardian)


def test_another_version_on_a_node_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.cluster.network.__version__", "0.0.0")
    with pytest.raises(DeviceError, match=r"node1: autocap there is 0\.0\.0, here"):
        World.of(1).device()


def test_a_controller_that_was_stopped_itself_does_not_call_others_silent() -> None:
    with guarded(2, caps_w=None) as (world, _, guardian):
        guardian.beat()
        world.clock.pause(30.0)
        guardian.beat()
        assert world.fleet.trouble is None
        assert not world.fleet.silent


class Step:
    """A later step: an agent on each node that answers as told, or not at all where nothing is told."""

    job = None

    def __init__(self, nodes: Sequence[str], answers: dict[str, Message]) -> None:
        self.nodes, self._answers = nodes, answers
        self.asked: dict[str, Settle] = {}
        self._said: list[tuple[int, Message]] = []
        self.closed = False

    def send(self, message: Message, to: Sequence[int] | None = None) -> None:
        assert isinstance(message, Settle)
        for place in to:
            self.asked[self.nodes[place]] = message
            if self.nodes[place] in self._answers:
                self._said.append((place, self._answers[self.nodes[place]]))

    def receive(self) -> list[tuple[int, Message]]:
        said, self._said = self._said, []
        return said

    def close(self) -> None:
        self.closed = True


def test_a_step_that_was_killed_as_a_whole_is_looked_at_by_another_one() -> None:
    world = World.of(4)
    world.device()
    steps: list[Step] = []

    def look(gone: Sequence[Agent]) -> dict[int, tuple[Restored, ...]]:
        assert [agent.number for agent in gone] == [0, 1, 3]
        return dict(settled(gone, TARGET, reopen, world.clock, world.clock.pause))

    def reopen(nodes: Sequence[str]) -> Step:
        back = {node: Restored(uuid=f"of {node}", original_w=250.0, final_w=250.0, restored=True) for node in nodes}
        answers: dict[str, Message] = {"node1": Done(number=0, restored=(back["node1"],)), "node2": Failed(why="no")}
        steps.append(Step(nodes, answers))
        return steps[-1]

    with ClusterGuardian(world.fleet, look) as guardian:  # type: ignore[arg-type]
        guardian.set_caps((150.0,) * 8)
        for number in (0, 1, 3):
            world.agents[number].dead = True  # and nobody puts back after it
            world.channel.say(number, Lost(why="Slurm says: Killed"))
        world.go_on(0.2)
        restored = {one.uuid: one for one in guardian.restore()}
    (step,) = steps
    assert step.closed
    assert step.asked["node1"].original_w == (250.0, 250.0)
    assert restored["of node1"].restored
    unknown = [one for one in restored.values() if one.restored is None]
    assert len(unknown) == 4  # of node2, which failed, and of node4, which said nothing
    assert {one.note for one in unknown if one.note} == {
        f"{node} puts back its limits by itself; what became of them is not known here" for node in ("node2", "node4")
    }


def test_where_no_new_step_can_be_started_nothing_is_known() -> None:
    world = World.of(2)
    world.device()

    def refused(nodes: Sequence[str]) -> Step:
        raise EngineUnavailable("srun cannot be started")

    assert settled(world.fleet.agents, TARGET, refused, world.clock, world.clock.pause) == {}


class Port:
    """Limits that are read in turn, the last one again and again."""

    def __init__(self, *limits_w: float | None) -> None:
        self._limits_w = list(limits_w)

    def requested_w(self, uuid: str) -> float | None:
        limit_w = self._limits_w[0] if len(self._limits_w) == 1 else self._limits_w.pop(0)
        if limit_w is None:
            raise DeviceError("lost")
        return limit_w

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("read_w", "fate", "restored", "tried_again"),
    [
        ((260.0,), None, True, False),
        ((150.0, 150.0, 260.0), None, True, False),  # a helper is at it
        ((150.0,), None, False, False),
        ((150.0,), Fate.FAILED, False, True),
        ((None,), None, None, False),
    ],
)
def test_an_agent_says_what_it_reads(
    monkeypatch: pytest.MonkeyPatch,
    read_w: tuple[float | None, ...],
    fate: Fate | None,
    restored: bool | None,
    tried_again: bool,
) -> None:
    monkeypatch.setattr(settling, "outside_limits", lambda kind, job: Port(*read_w))
    monkeypatch.setattr(SlurmJob, "roots", lambda self: ())
    left = [] if fate is None else [Settled(uuid="a", outcome=fate, sentence="a: 260 W could not be put back")]
    clock = VirtualClock()
    (one,) = settling.settled(
        Settle(target=TARGET, kind="nvml", uuids=("a",), original_w=(260.0,)), clock, lambda: left
    )
    assert (one.restored, one.final_w, one.failure is not None) == (restored, read_w[-1], tried_again)
    assert clock.now() <= 3.2
    if restored is False and fate is None:
        assert one.note == "the limit of a is 150 W, where 260 W was found on arrival"
