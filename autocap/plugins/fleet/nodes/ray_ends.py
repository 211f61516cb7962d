"""The relay's actors: one on each node that it speaks to, or may have to."""

import asyncio
import os
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from autocap.job.processes import import_path
from autocap.limits.times import RAY_WAIT_S
from autocap.plugins.fleet.nodes import ray_actor
from autocap.plugins.fleet.nodes.ray_jobs import RayJob
from autocap.wire import lines


class Ends:
    """The actors on nodes that the job has or may have, by their node's id. agent: its command line."""

    def __init__(self, agent: Sequence[str]) -> None:
        for module in (ray_actor, lines):
            ray.cloudpickle.register_pickle_by_value(module)
        self._remote: Any = ray.remote(ray_actor.Actor)
        self._given = ([*agent, "--spare"], {"PYTHONPATH": os.pathsep.join(import_path())})
        self._actors: dict[str, Any] = {}
        self._waits: dict[str, asyncio.Task[None]] = {}

    def make(self, nodes: Collection[str]) -> None:
        """Start one on each of these nodes, unless it is there."""
        for node in nodes:
            if node not in self._actors or self._waits[node].done():
                on = NodeAffinitySchedulingStrategy(node, soft=False)
                actor = self._remote.options(num_cpus=0, max_restarts=0, scheduling_strategy=on).remote(*self._given)
                self._actors[node], self._waits[node] = actor, asyncio.create_task(_needed(actor))

    async def take(self, job: RayJob) -> list[Any]:
        """Those of a job's nodes, once all are there and know which they are; the others are ended. Raises RayError."""
        self.make(job.node_ids)
        self.end(set(self._actors) - set(job.node_ids))
        actors = [self._actors[node] for node in job.node_ids]
        await asyncio.gather(*(actor.wait.remote() for actor in actors))
        for wait in self._waits.values():
            wait.cancel()
        told = enumerate(zip(actors, job.names, job.pids, strict=True))
        await asyncio.gather(*(actor.begin.remote(number, name, pids) for number, (actor, name, pids) in told))
        return actors

    async def take_one(self, node: str, number: int, name: str) -> Any:
        """That of one node, once it is there and knows which it is, whatever others do. Raises RayError."""
        self.make([node])
        actor = self._actors[node]
        await actor.wait.remote()
        self._waits[node].cancel()
        await actor.begin.remote(number, name, ())
        return actor

    def end(self, nodes: Collection[str]) -> None:
        """Have no actor on these nodes any more. Its agent's input ends."""
        for node in nodes:
            self._waits.pop(node).cancel()
            ray.kill(self._actors.pop(node))

    def end_all(self) -> None:
        """Have none at all."""
        self.end(list(self._actors))


async def _needed(actor: Any) -> None:
    with suppress(RayError):  # it, or its node, is gone
        while True:
            await actor.wait.remote()
            await asyncio.sleep(RAY_WAIT_S)
