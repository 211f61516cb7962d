"""`python -m autocap.cluster.ray_relay`: the driver of autocap's own Ray job, as a process that may end when Ray likes.

It finds the nodes on which a job's workers run, has an actor with an agent on each, and carries lines: those on its
standard input to the agents, the agents' as `N: {json}` to its standard output, as srun would. Its first line is
`job: {"id": …, "nodes": […]}`. When its input ends it takes the actors down and leaves.

An actor takes seconds to start, and so do a job's workers. So both start at the same time: there is an actor on every
node of a cluster that is not large before it is known which of them the job has.

A call costs this process about half a millisecond. So the actors are called in groups: one of each passes the lines on
to the others, and brings back what all of them have said; nothing is called while the controller says nothing.
"""

import argparse
import asyncio
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from autocap.cluster import ray_actor
from autocap.cluster.carriers import NO_RAY
from autocap.cluster.protocol import BadLine, Do, Lost, Message, Word, addressed, line_of
from autocap.job.processes import import_path

try:
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from autocap.cluster.ray_jobs import RayJob, all_nodes, head_answers, job_of
except ImportError as error:
    raise ImportError(NO_RAY) from error

GROUP = 8
_MOST_AHEAD = 32  # nodes that get an actor before it is known which of them the job has
_CONNECT_EVERY_S, _LOOK_EVERY_S = 1.0, 0.25
_STEADY_S = 2.0  # for which the job's nodes stay the same: workers start one after the other
_WAIT_EVERY_S = 2.0  # an actor that is not called for 6 s ends
_HEAD_EVERY_S, _HEAD_ANSWERS_S = 0.5, 1.5  # calls go on without it for a minute, then Ray ends this process
_MOST_BYTES = 1 << 20


class Ends:
    """The actors on nodes that the job has or may have, by their node's id. agent: its command line."""

    def __init__(self, agent: Sequence[str]) -> None:
        ray.cloudpickle.register_pickle_by_value(ray_actor)
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
            await asyncio.sleep(_WAIT_EVERY_S)


class Relay:
    """actors: of a job's nodes, by their numbers. out: the descriptor that the protocol has to itself."""

    def __init__(self, actors: Sequence[Any], out: int) -> None:
        self._actors, self._out = dict(enumerate(actors)), out
        self._said_lost: set[int] = set()
        self._held = b""
        self.ended = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._in_flight: dict[int, int] = {}

    def read(self) -> None:
        """Take what stands on our standard input."""
        data = os.read(0, _MOST_BYTES)
        if not data:
            self.ended.set()
            return
        *lines, self._held = (self._held + data).split(b"\n")
        self._pass(lines)

    def _pass(self, lines: Sequence[bytes]) -> None:
        """Start a call of each group that is spoken to."""
        read: list[tuple[bytes, Message, tuple[int, ...] | None]] = []
        for line in lines:
            with suppress(BadLine):
                read.append((line, *addressed(line)))
        living = sorted(set(self._actors) - self._said_lost)
        for start in range(0, len(living), GROUP):
            group = living[start : start + GROUP]
            ours, answers = [], 0
            for line, message, to in read:
                if to is None or set(to) & set(group):
                    ours.append(line + b"\n")
                    answers += isinstance(message, Word | Do) and (to is None or set(group) <= set(to))
            if ours and self._in_flight.get(group[0], 0) < ray_actor.CALLS_AT_ONCE:
                call = asyncio.create_task(self._call(group, b"".join(ours), answers))
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)

    async def _call(self, group: list[int], lines: bytes, answers: int) -> None:
        first = group[0]
        others = [(number, self._actors[number]) for number in group[1:]]
        self._in_flight[first] = self._in_flight.get(first, 0) + 1
        try:
            said: ray_actor.Said = await self._actors[first].exchange.remote(lines, answers, others)
        except RayError as error:
            self._lost(first, f"Ray says: {_first_line(error)}")
            return
        finally:
            self._in_flight[first] -= 1
        for number, heard, gone in said:
            for line in heard:
                self._say(number, line)
            if gone is not None:
                self._lost(number, gone)

    async def leave(self, within_s: float) -> None:
        """End all agents, and give their last words."""

        async def one(number: int, actor: Any) -> None:
            with suppress(RayError, asyncio.TimeoutError):
                for line in await asyncio.wait_for(actor.leave.remote(), within_s):
                    self._say(number, line)

        await asyncio.gather(*(one(number, actor) for number, actor in self._actors.items()))

    def _lost(self, number: int, why: str) -> None:
        if number not in self._said_lost:
            self._said_lost.add(number)
            self._say(number, line_of(Lost(why=why)).strip())

    def _say(self, number: int, line: bytes) -> None:
        with suppress(BrokenPipeError):  # nobody hears any more: our input ends next
            _write(self._out, b"%d: %s\n" % (number, line))


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m autocap.cluster.ray_relay", description="carries lines over Ray")
    parser.add_argument("--address", default="auto")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--driver-pid", type=int, help="the job whose driver that is, or descends from it")
    which.add_argument("--job", help="a Ray job's id, or its submission id")
    parser.add_argument("agent", nargs="+", help="its command line")
    given = parser.parse_args(argv)
    out = os.dup(1)
    os.dup2(2, 1)  # whatever Ray prints is not for whoever reads the lines
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda *_: sys.exit(0))
    _connect(given.address)
    try:
        asyncio.run(_carry(given.agent, out, lambda: _nodes(given.driver_pid, given.job)))
    except RayError as error:
        print(f"Ray says: {_first_line(error)}", file=sys.stderr, flush=True)
        return 1
    finally:
        ray.shutdown()
    return 0


def _connect(address: str) -> None:
    """Wait for the cluster: the job that is started together with us may be what starts it."""
    while True:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", namespace="autocap")
            return
        except (ConnectionError, RuntimeError) as error:
            print(f"Ray cannot be reached at {address}: {error}", file=sys.stderr, flush=True)
        if _has_ended():
            sys.exit(0)
        time.sleep(_CONNECT_EVERY_S)


def _nodes(driver: int | None, name: str | None) -> RayJob | None:
    return all_nodes() if driver is None and name is None else job_of(driver, name)


async def _job(look: Callable[[], RayJob | None]) -> RayJob | None:
    """Wait until the job's workers are all there; `None` where our input has ended before."""
    found: RayJob | None = None
    since_s = time.monotonic()
    while not _has_ended():
        now = look()
        if now != found:
            found, since_s = now, time.monotonic()
        if found is not None and (found.is_everywhere or time.monotonic() - since_s >= _STEADY_S):
            return found
        await asyncio.sleep(_LOOK_EVERY_S)
    return None


def _has_ended() -> bool:
    """Whether nobody holds the other end of our input any more; what stands in it is left there."""
    watch = select.poll()
    watch.register(0, select.POLLHUP)
    return any(event & select.POLLHUP and not event & select.POLLIN for _, event in watch.poll(0))


async def _carry(agent: Sequence[str], out: int, look: Callable[[], RayJob | None]) -> None:
    ends, nodes = Ends(agent), all_nodes().node_ids
    if len(nodes) <= _MOST_AHEAD:
        ends.make(nodes)
    try:
        job = await _job(look)
        if job is not None:
            relay = Relay(await ends.take(job), out)
            _write(out, b"job: " + json.dumps({"id": job.id, "nodes": job.names}).encode() + b"\n")
            await _pass_on(relay)
    finally:
        ends.end_all()


async def _pass_on(relay: Relay) -> None:
    loop = asyncio.get_running_loop()
    loop.add_reader(0, relay.read)
    for signum in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signum, relay.ended.set)
    ended, headless = asyncio.create_task(relay.ended.wait()), asyncio.create_task(_headless())
    await asyncio.wait({ended, headless}, return_when=asyncio.FIRST_COMPLETED)
    loop.remove_reader(0)
    await relay.leave(ray_actor.LEAVE_S + 1.0)
    if headless.done():
        print(f"Ray's head has not answered within {_HEAD_ANSWERS_S:g} s", file=sys.stderr, flush=True)
        os._exit(1)  # Ray would wait for it for a minute
    headless.cancel()


async def _headless() -> None:
    """Wait for as long as the cluster's head answers."""
    with suppress(asyncio.TimeoutError):  # of a dead head Ray's call comes back much later than told
        while await asyncio.wait_for(asyncio.to_thread(head_answers, _HEAD_ANSWERS_S), _HEAD_ANSWERS_S):
            await asyncio.sleep(_HEAD_EVERY_S)


def _first_line(error: RayError) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _write(out: int, data: bytes) -> None:
    while data:
        data = data[os.write(out, data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
