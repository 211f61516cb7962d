"""The driver of autocap's own Ray job, as a process that may end when Ray likes.

It finds the nodes on which a job's workers run, has an actor with an agent on each, and carries lines: those on its
standard input to the agents, the agents' as `N: {json}` to its standard output, as srun would. Its first line is
`job: {"id": …, "nodes": […]}`. When its input ends it takes the actors down and leaves.

Without an agent that line, of the nodes that offer GPUs, is all it says. With `--on` the nodes are told, and each is
spoken to as soon as it can be, or lost: those that cannot be reached keep no other one waiting.

An actor takes seconds to start, and so do a job's workers. So both start at the same time: there is an actor on every
node of a cluster that is not large before it is known which of them the job has.

A call costs this process more than a millisecond. So the actors are called in groups: one of each passes the lines on
to the others, and brings back what all of them have said; nothing is called while the controller says nothing."""

import argparse
import asyncio
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from autocap.job.processes import import_path
from autocap.limits.times import HEAD_ANSWERS_S, HEAD_EVERY_S, LEAVES_S, RAY_LATE_S, RAY_WAIT_S, TERM_S
from autocap.plugins.fleet.nodes import ray_actor
from autocap.plugins.fleet.nodes.agent.standard_streams import own_stdout
from autocap.plugins.fleet.nodes.protocol import (
    BadLine,
    Command,
    Heartbeat,
    Lost,
    Message,
    SetAllocation,
    addressed,
    line_of,
)
from autocap.plugins.fleet.nodes.transport import NO_RAY
from autocap.wire import lines
from autocap.wire.line_process import write_whole
from autocap.wire.stream import LineStream

try:
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from autocap.plugins.fleet.nodes.ray_jobs import (
        NAMESPACE,
        RayJob,
        all_nodes,
        head_answers,
        job_of,
        living,
        offering,
        why_not,
    )
except ImportError as error:
    raise ImportError(NO_RAY) from error

GROUP = 16
_MOST_AHEAD = 32  # nodes that get an actor before it is known which of them the job has
_CONNECT_EVERY_S, _LOOK_EVERY_S = 1.0, 0.25
_STEADY_S = 2.0  # for which the job's nodes stay the same: workers start one after the other
_MOST_BYTES = 1 << 20


class ActorPool:
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


class Relay:
    """actors: of nodes, by their numbers. out: the descriptor that the protocol has to itself. apart: a node that keeps
    its group waiting is called alone, as the others do not depend on it."""

    def __init__(self, actors: Mapping[int, Any], out: int, *, apart: bool = False) -> None:
        self.actors, self._out, self._apart = dict(actors), out, apart
        self._given: dict[int, set[int]] = {}  # of which others each group's first has the actors
        self._said_lost: set[int] = set()
        self._controller = LineStream(0, None, _MOST_BYTES)
        self.ended = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._in_flight: dict[int, list[float]] = {}  # when they began, by the group's first

    def read(self) -> None:
        """Take what stands on our standard input."""
        self._controller.read(_MOST_BYTES)
        if self._controller.ended:
            self.ended.set()
        self._pass(self._controller.lines())

    def _pass(self, lines: Sequence[bytes]) -> None:
        """Start a call of each group that is spoken to."""
        read: list[tuple[bytes, Message, tuple[int, ...] | None]] = []
        for line in lines:
            with suppress(BadLine):
                read.append((line, *addressed(line)))
        for group in self._groups():
            ours, answers = [], 0
            for line, message, to in read:
                if to is None or set(to) & set(group):
                    ours.append(line + b"\n")
                    answers += isinstance(message, Heartbeat | Command | SetAllocation) and (
                        to is None or set(group) <= set(to)
                    )
            if ours and len(self._in_flight.get(group[0], ())) < ray_actor.CALLS_AT_ONCE:
                call = asyncio.create_task(self._call(group, b"".join(ours), answers))
                self._calls.add(call)
                call.add_done_callback(self._calls.discard)

    def _groups(self) -> Iterator[list[int]]:
        living, now_s = sorted(set(self.actors) - self._said_lost), time.monotonic()
        late = {one for one in living if self._apart and now_s > min(self._in_flight.get(one) or [now_s]) + RAY_LATE_S}
        prompt = [one for one in living if one not in late]
        for start in range(0, len(prompt), GROUP):
            yield prompt[start : start + GROUP]
        yield from ([one] for one in late)

    async def _call(self, group: list[int], lines: bytes, answers: int) -> None:
        first = group[0]
        has = self._given.setdefault(first, set())
        others = [(number, None if number in has else self.actors[number]) for number in group[1:]]
        has.update(group[1:])
        calls, began_s = self._in_flight.setdefault(first, []), time.monotonic()
        calls.append(began_s)
        try:
            said: ray_actor.Said = await self.actors[first].exchange.remote(lines, answers, others)
        except RayError as error:
            self.lost(first, f"Ray says: {_first_line(error)}")
            return
        finally:
            calls.remove(began_s)
        for number, heard, gone in said:
            for line in heard:
                self._say(number, line)
            if gone is not None:
                self.lost(number, gone)

    async def leave(self, within_s: float) -> None:
        """End all agents, and give their last words."""

        async def one(number: int, actor: Any) -> None:
            with suppress(RayError, asyncio.TimeoutError):
                for line in await asyncio.wait_for(actor.leave.remote(), within_s):
                    self._say(number, line)

        await asyncio.gather(*(one(number, actor) for number, actor in self.actors.items()))

    def lost(self, number: int, why: str) -> None:
        """Say that nobody is there, once."""
        if number not in self._said_lost:
            self._said_lost.add(number)
            self._say(number, line_of(Lost(why=why)).strip())

    def _say(self, number: int, line: bytes) -> None:
        with suppress(BrokenPipeError):  # nobody hears any more: our input ends next
            write_whole(self._out, b"%d: %s\n" % (number, line))


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m autocap.plugins.fleet.nodes.ray_relay", description="carries lines over Ray"
    )
    parser.add_argument("--address", default="auto")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--driver-pid", type=int, help="the job whose driver that is, or descends from it")
    which.add_argument("--job", help="a Ray job's id, or its submission id")
    which.add_argument("--on", type=lambda text: text.split(","), help="the names of the nodes, by comma")
    parser.add_argument("agent", nargs="*", help="its command line")
    given = parser.parse_args(argv)
    out = own_stdout()  # whatever Ray prints is not for whoever reads the lines
    for signum in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda *_: sys.exit(0))
    if not _connect(given.address, again=bool(given.agent)):
        return 1
    try:
        if given.job is not None and (why := why_not(given.job)) is not None:
            print(why, file=sys.stderr, flush=True)
            return 1
        if not given.agent:
            write_whole(out, _first(offering()))
        elif given.on:
            asyncio.run(_carry_to(given.on, given.agent, out))
        else:
            is_named = given.driver_pid is not None or given.job is not None
            look = (lambda: job_of(given.driver_pid, given.job)) if is_named else all_nodes
            asyncio.run(_carry(given.agent, out, look))
    except RayError as error:
        print(f"Ray says: {_first_line(error)}", file=sys.stderr, flush=True)
        return 1
    finally:
        ray.shutdown()
    return 0


def _connect(address: str, *, again: bool) -> bool:
    """Whether the cluster was reached. again: it is waited for; the job that is started together with us may be what
    starts it."""
    while True:
        try:
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", namespace=NAMESPACE)
            return True
        except (ConnectionError, RuntimeError) as error:
            print(f"Ray cannot be reached at {address}: {error}", file=sys.stderr, flush=True)
        if not again or _has_ended():
            return False
        time.sleep(_CONNECT_EVERY_S)


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
    """Whether nobody holds the other end of our input any more; what stands in it is for nobody either."""
    watch = select.poll()
    watch.register(0, select.POLLHUP)
    return any(event & select.POLLHUP for _, event in watch.poll(0))


async def _carry(agent: Sequence[str], out: int, look: Callable[[], RayJob | None]) -> None:
    ends, nodes = ActorPool(agent), all_nodes().node_ids
    if len(nodes) <= _MOST_AHEAD:
        ends.make(nodes)
    try:
        job = await _job(look)
        if job is not None:
            relay = Relay(dict(enumerate(await ends.take(job))), out)
            write_whole(out, _first(job))
            await _pass_on(relay)
    finally:
        ends.end_all()


async def _carry_to(names: Sequence[str], agent: Sequence[str], out: int) -> None:
    """As `_carry`, to these nodes, each by itself."""
    ends, relay = ActorPool(agent), Relay({}, out, apart=True)
    joining = asyncio.gather(*(_join(ends, relay, number, name) for number, name in enumerate(names)))
    try:
        await _pass_on(relay)
    finally:
        joining.cancel()
        ends.end_all()


async def _join(ends: ActorPool, relay: Relay, number: int, name: str) -> None:
    there = living(name)
    if len(there) != 1:  # for a while after it was started anew Ray knows it twice
        relay.lost(number, f"Ray has {len(there) or 'no'} nodes of that name")
        return
    try:
        relay.actors[number] = await ends.take_one(there[0], number, name)
    except RayError as error:
        relay.lost(number, f"Ray says: {_first_line(error)}")


def _first(job: RayJob) -> bytes:
    return b"job: " + json.dumps({"id": job.id, "nodes": job.names}).encode() + b"\n"


async def _pass_on(relay: Relay) -> None:
    loop = asyncio.get_running_loop()
    loop.add_reader(0, relay.read)
    for signum in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signum, relay.ended.set)
    ended, headless = asyncio.create_task(relay.ended.wait()), asyncio.create_task(_headless())
    await asyncio.wait({ended, headless}, return_when=asyncio.FIRST_COMPLETED)
    loop.remove_reader(0)
    await relay.leave(LEAVES_S + TERM_S)
    if headless.done():
        print(f"Ray's head has not answered within {HEAD_ANSWERS_S:g} s", file=sys.stderr, flush=True)
        os._exit(1)  # Ray would wait for it for a minute
    headless.cancel()


async def _headless() -> None:
    """Wait for as long as the cluster's head answers."""
    with suppress(asyncio.TimeoutError):  # of a dead head Ray's call comes back much later than told
        while await asyncio.wait_for(asyncio.to_thread(head_answers, HEAD_ANSWERS_S), HEAD_ANSWERS_S):
            await asyncio.sleep(HEAD_EVERY_S)


def _first_line(error: RayError) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
