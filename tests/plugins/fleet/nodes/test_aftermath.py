"""Agents that are gone: new ones on their nodes put back what is left, and what is said is what they read."""

from collections.abc import Sequence

import pytest

from autocap.clock import VirtualClock
from autocap.errors import DeviceError, EngineUnavailable
from autocap.limits import Restored
from autocap.limits.recovery import Fate, Settled
from autocap.plugins.fleet.nodes.agent import settling
from autocap.plugins.fleet.nodes.agent.finding import SlurmJob
from autocap.plugins.fleet.nodes.agents import Agent
from autocap.plugins.fleet.nodes.guardian import ClusterGuardian, settled
from autocap.plugins.fleet.nodes.protocol import Done, Failed, Lost, Message, Settle, Target
from tests.plugins.fleet.nodes.world import World

TARGET = Target(engine="slurm", job="7")


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
