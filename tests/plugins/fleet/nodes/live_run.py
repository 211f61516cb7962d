"""A program: one whole session over simulated agents in real time.

python -m tests.plugins.fleet.nodes.live_run run OUT -- COMMAND…
python -m tests.plugins.fleet.nodes.live_run ray OUT -- COMMAND…    whose nodes are known once it has run for a while
python -m tests.plugins.fleet.nodes.live_run attach OUT SECONDS     whose job ends after so long
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path

from autocap.cli import Parser, options
from autocap.job.signals import SignalClock
from autocap.plugins.fleet.nodes.backend import Carrier, ClusterBackend
from autocap.plugins.fleet.nodes.carriers import ray
from autocap.plugins.fleet.nodes.channel import EngineJob
from autocap.plugins.fleet.nodes.protocol import Begin, Message, Target
from autocap.session.modes import attach, run
from bench.cluster.network import Network, VirtualAgent, VirtualChannel
from bench.simulation.clock import EventClock
from tests.plugins.fleet.nodes.world import PlainMachine

NODES = ("east", "west")
LATE_S = 1.5


class LiveChannel(VirtualChannel):
    """Goes on with the time of day whenever it is used."""

    def __init__(self) -> None:
        self._began_s = time.monotonic()
        self._live = EventClock()
        super().__init__(self._live, Network())
        for number in range(len(NODES)):
            machine = PlainMachine(self._live, NODES[number])
            agent = VirtualAgent(number=number, machine=machine, clock=self._live, say=self.say, ahead_s=1e4 * number)
            self.add(agent)

    def end_job_at(self, t_s: float) -> None:
        for agent in self._agents:
            self._live.at(t_s, agent.end_job)

    def send(self, message: Message, to: Sequence[int] | None = None) -> None:
        self._catch_up()
        super().send(message, to)

    def receive(self) -> list[tuple[int, Message]]:
        self._catch_up()
        return super().receive()

    def close(self) -> None:
        self._catch_up()
        print("closed")
        for agent in self._agents:
            print("story", agent.number, *(what for _, what in agent.story))

    def _catch_up(self) -> None:
        self._live.wait_until(time.monotonic() - self._began_s)


class LateChannel(LiveChannel):
    """As the one to a relay: of which job the agents are is known late, and till then nobody is there to be told."""

    job: EngineJob | None = None  # type: ignore[assignment]

    def send(self, message: Message, to: Sequence[int] | None = None) -> None:
        assert self.job is not None, f"{message} is said to nobody"
        if isinstance(message, Begin):
            print("begin", message.target.engine, message.target.job, message.step_map)
        super().send(message, to)

    def receive(self) -> list[tuple[int, Message]]:
        if time.monotonic() < self._began_s + LATE_S:
            return []
        self.job = EngineJob(id="0500", nodes=NODES)
        return super().receive()


def main(mode: str, out: str, *words: str) -> int:
    channel = LateChannel() if mode == "ray" else LiveChannel()
    carrier = Carrier(target=Target(engine="slurm", job="7"), names=NODES, open=lambda: channel)
    if mode == "ray":
        carrier = Carrier(
            target=Target(engine="ray", job=""), names=(), open=lambda: channel, for_workers=ray.for_workers
        )
    place = ClusterBackend(carrier)
    parser = Parser(prog="live", allow_abbrev=False, add_help=False)
    options.declare(parser, "attach" if mode == "attach" else "run")
    args = parser.parse_args(["--out", str(Path(out)), "--no-memory", "--nodes", "slurm"])
    args.child = None if mode == "attach" else list(words[1:])
    with SignalClock() as clock:
        if mode != "attach":
            return run(options.run_config(args, "run"), clock, place)
        channel.end_job_at(float(words[0]))
        return attach(options.attach_config(args), clock, place)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
