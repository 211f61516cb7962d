"""A budget over the nodes of a real Ray cluster, and whom its relay calls."""

import asyncio
import os
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import pytest

from autocap.plugins.fleet.nodes.protocol import SetAllocation, line_of, said
from bench.budget_nodes.command import ground, injected

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
WORD = line_of(SetAllocation(number=1, policy="fair", since=(0,), serials=(0,), parts_w=(0.0,))).strip()


def test_a_budget_goes_on_and_ends_well_where_an_actor_dies() -> None:
    with ground("ray") as place:
        outcome = injected(place, place.cluster.directory / "run", "SIGKILL to an actor", 1)
    assert outcome.complaints == (), outcome.said


class FakeActor:
    """Answers for all it is given, unless it is stuck."""

    def __init__(self, number: int, *, stuck: bool = False) -> None:
        self.number, self.stuck = number, stuck
        self.groups: list[tuple[list[int], int]] = []
        self.exchange = self

    async def remote(self, lines: bytes, answers: int, others: list[tuple[int, "FakeActor"]]) -> Any:
        self.groups.append(([self.number, *(number for number, _ in others)], answers))
        while self.stuck:
            await asyncio.sleep(0)
        return [(self.number, [WORD], None), *((number, [WORD], "it is gone") for number, _ in others)]


@pytest.mark.parametrize("apart", [True, False])
def test_who_keeps_a_group_waiting_is_called_alone_where_the_others_do_not_depend_on_it(apart, monkeypatch) -> None:
    relay_module = import_module("autocap.plugins.fleet.nodes.ray_relay")
    monkeypatch.setattr(relay_module, "RAY_LATE_S", 0.0)
    actors = {number: FakeActor(number, stuck=number == 0) for number in range(3)}
    heard, out = os.pipe()

    async def play() -> None:
        relay = relay_module.Relay(actors, out, apart=apart)
        for _ in range(2):
            relay._pass([WORD])
            for _ in range(8):
                await asyncio.sleep(0)
        actors[0].stuck = False
        for _ in range(8):
            await asyncio.sleep(0)

    asyncio.run(play())
    os.close(out)
    with os.fdopen(heard) as lines:
        texts = [line.split(": ", 1) for line in lines]
    if apart:
        assert actors[0].groups == [([0, 1, 2], 1), ([0], 1)]
        assert actors[1].groups == [([1, 2], 1)]
        assert [number for number, text in texts if "it is gone" in text] == ["2", "1"]
    else:
        assert actors[0].groups == [([0, 1, 2], 1)] * 2
        assert actors[1].groups == []
    assert {type(said(text)) for number, text in texts if number == "0"} == {SetAllocation}
