"""`python -m autocap.cluster.ray_relay`: the driver of autocap's own Ray job, as a process that may end when Ray likes.

It finds the nodes on which a job's workers run, has an actor with an agent on each, and carries lines: those on its
standard input to the agents, the agents' as `N: {json}` to its standard output, as srun would. Its first line is
`job: {"id": …, "nodes": […]}`. When its input ends it takes the actors down and leaves.

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
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

from autocap.cluster import ray_actor
from autocap.cluster.carriers import NO_RAY
from autocap.cluster.protocol import BadLine, Do, Lost, Word, addressed, line_of
from autocap.job.processes import import_path

try:
    import ray
    from ray.exceptions import RayError
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from autocap.cluster.ray_jobs import RayJob, all_nodes, job_of
except ImportError as error:
    raise ImportError(NO_RAY) from error

GROUP = 8
_CONNECT_EVERY_S, _LOOK_EVERY_S = 1.0, 0.5
_STEADY_S = 2.0  # for which the job's nodes stay the same: workers start one after the other
_MOST_BYTES = 1 << 20


class Relay:
    """agent: its command line, to which the number is added. out: the descriptor that the protocol has to itself."""

    def __init__(self, job: RayJob, agent: Sequence[str], out: int) -> None:
        self._job, self._agent, self._out = job, agent, out
        self._said_lost: set[int] = set()
        self._held = b""
        self.ended = asyncio.Event()
        self._calls: set[asyncio.Task[None]] = set()
        self._in_flight: dict[int, int] = {}
        ray.cloudpickle.register_pickle_by_value(ray_actor)
        remote: Any = ray.remote(ray_actor.Actor)
        self._actors: dict[int, Any] = {
            number: remote.options(
                num_cpus=0, max_restarts=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
            ).remote(number)
            for number, node in enumerate(job.node_ids)
        }

    async def begin(self) -> None:
        """Start all agents once all actors are there, and say of which job they are. Raises RayError."""
        await asyncio.gather(*(actor.ready.remote() for actor in self._actors.values()))
        environment = {"PYTHONPATH": os.pathsep.join(import_path())}
        started = (
            actor.start.remote([*self._agent, "--number", str(number)], environment)
            for number, actor in self._actors.items()
        )
        await asyncio.gather(*started)
        _write(self._out, b"job: " + json.dumps({"id": self._job.id, "nodes": self._job.names}).encode() + b"\n")

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
        living = sorted(set(self._actors) - self._said_lost)
        for start in range(0, len(living), GROUP):
            group = living[start : start + GROUP]
            ours, answers = [], 0
            for line in lines:
                with suppress(BadLine):
                    message, to = addressed(line)
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
            self._lost(first, f"Ray says: {str(error).strip().splitlines()[0]}")
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
        job = _job(given.driver_pid, given.job)
        if job is not None:
            asyncio.run(_carry(Relay(job, given.agent, out)))
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


def _job(driver: int | None, name: str | None) -> RayJob | None:
    """Wait until the job's workers are all there; `None` where our input has ended before."""
    if driver is None and name is None:
        return all_nodes()
    found: RayJob | None = None
    since_s = time.monotonic()
    while not _has_ended():
        now = job_of(driver, name)
        if now != found:
            found, since_s = now, time.monotonic()
        if found is not None and time.monotonic() - since_s >= _STEADY_S:
            return found
        time.sleep(_LOOK_EVERY_S)
    return None


def _has_ended() -> bool:
    """Whether nobody holds the other end of our input any more; what stands in it is left there."""
    watch = select.poll()
    watch.register(0, select.POLLHUP)
    return any(event & select.POLLHUP and not event & select.POLLIN for _, event in watch.poll(0))


async def _carry(relay: Relay) -> None:
    loop = asyncio.get_running_loop()
    loop.add_reader(0, relay.read)
    for signum in (signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signum, relay.ended.set)
    ended = asyncio.create_task(relay.ended.wait())
    begun = asyncio.create_task(relay.begin())
    await asyncio.wait({ended, begun}, return_when=asyncio.FIRST_COMPLETED)
    if begun.done():
        await begun
        await ended
        loop.remove_reader(0)
        await relay.leave(ray_actor.LEAVE_S + 1.0)


def _write(out: int, data: bytes) -> None:
    while data:
        data = data[os.write(out, data) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
