"""What became of the limits of nodes whose agents are gone: new agents there put back what is left, and read.

Slurm kills an agent together with its watchdog where it kills a step as a whole, and then nobody is left on the node.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing

from autocap.clock import RunClock
from autocap.errors import EngineUnavailable
from autocap.limits import Restored
from autocap.limits.times import SETTLED_WITHIN_S
from autocap.plugins.fleet.nodes.agents import Agent
from autocap.plugins.fleet.nodes.fleet import Channel
from autocap.plugins.fleet.nodes.protocol import Done, Failed, Lost, Settle, Target

Reopen = Callable[[Sequence[str]], Channel]  # the way to new agents on some of the job's nodes, by their names
_LOOK_S = 0.02


def settled(
    gone: Sequence[Agent], target: Target, reopen: Reopen, clock: RunClock, pause: Callable[[float], object]
) -> Mapping[int, tuple[Restored, ...]]:
    """What became of the limits of some agents' nodes, by the agents' numbers; those of which nothing is known are left
    out. Waits for it."""
    known: dict[int, tuple[Restored, ...]] = {}
    left = dict(enumerate(gone))
    try:
        channel = reopen([agent.name for agent in gone])
    except EngineUnavailable:
        return known
    with closing(channel):
        for place, agent in left.items():
            assert agent.found is not None  # its limits could not have been set else
            uuids = tuple(gpu.uuid for gpu in agent.found.gpus)
            order = Settle(target=target, kind=agent.found.kind, uuids=uuids, original_w=agent.found.original_w)
            channel.send(order, (place,))
        end_s = clock.now() + SETTLED_WITHIN_S
        while left and clock.now() < end_s:
            try:
                heard = channel.receive()
            except EngineUnavailable:
                break
            for place, message in heard:
                if isinstance(message, Done) and place in left:
                    known[left[place].number] = message.restored
                if isinstance(message, Done | Failed | Lost):
                    left.pop(place, None)
            pause(_LOOK_S)
    return known
