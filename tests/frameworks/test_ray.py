"""A real Ray cluster of two nodes on this machine: the relay, its actors, agents, and their deaths."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from autocap.cluster.carriers import ray as carrier
from autocap.cluster.channel import Channel
from autocap.cluster.protocol import Hello, Lost, Word
from tests.cluster.hearing import MARK, heard, marked, until

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
ECHO = str(Path(__file__).parent.parent / "cluster" / "echo_agent.py")
NODES = 2
# A job as users write it, with a runtime_env of its own; it says what its workers have in their environment.
JOB = """
import os, sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False, runtime_env={"env_vars": {"MINE": "yes"}})
@ray.remote(num_cpus=1)
class Worker:
    def given(self): return [os.environ.get(name) for name in ("AUTOCAP_STEP_MAP", "MINE", "PYTHONPATH")]
workers = [Worker.options(runtime_env={"env_vars": {"RANK": str(rank)}}).remote() for rank in range(2)]
given = ray.get([worker.given.remote() for worker in workers])
print(ray.get_runtime_context().get_job_id(), *sum(given, []), flush=True)
time.sleep(600)
"""


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self.environment = {**os.environ, MARK: self.mark, "RAY_USAGE_STATS_ENABLED": "0"}
        common = ("--num-cpus=1", "--object-store-memory=83886080", "--disable-usage-stats")
        port = self.address.partition(":")[2]
        head = ("--head", "--node-ip-address=127.0.0.1", f"--port={port}", "--include-dashboard=false")
        self._start(*head, f"--temp-dir={folder}/ray", *common)
        for _ in range(NODES - 1):
            self._start(f"--address={self.address}", *common)

    def _start(self, *options: str) -> None:
        words = (sys.executable, "-m", "ray.scripts.scripts", "start", *options)
        subprocess.run(words, env=self.environment, check=True, capture_output=True)

    def pids(self, name: str) -> list[int]:
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if f"{MARK}={self.mark}".encode() in (place / "environ").read_bytes().split(b"\0"):
                    command = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                    found += [int(place.name)] if name in command.split(" ")[0] else []
        return found

    def close(self) -> None:
        for pid in self.pids(""):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: not marked(self.mark), "the cluster's end")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:  # Ray's sockets need a short path
        one = Cluster(Path(folder))
        try:
            yield one
        finally:
            one.close()


def _channel(cluster: Cluster, folder: Path, mark: str, driver: int | None = None) -> Channel:
    agent, environ = (sys.executable, ECHO, str(folder)), {**cluster.environment, MARK: mark}
    channel = carrier.open_channel(cluster.address, driver=driver, agent=agent, environ=environ)
    until(lambda: bool(channel.receive() or channel.job), "the agents' start")
    return channel


def test_agents_of_a_job_answer_and_its_workers_get_what_counts_their_steps(cluster: Cluster, tmp_path: Path) -> None:
    given = carrier.for_workers({"AUTOCAP_STEP_MAP": "map-of-this-run", "PYTHONPATH": "/hook"})
    job = subprocess.Popen(
        [sys.executable, "-c", JOB, cluster.address],
        env={**cluster.environment, **given},
        stdout=subprocess.PIPE,
        text=True,
    )
    mark = uuid.uuid4().hex
    channel = _channel(cluster, tmp_path, mark, driver=job.pid)
    try:
        assert job.stdout is not None
        name, *found = job.stdout.readline().split()
        assert channel.job is not None
        assert (channel.job.id, len(channel.job.nodes)) == (name, NODES)
        assert [found[:2], found[3:5]] == [["map-of-this-run", "yes"]] * 2
        assert all(path.startswith("/hook:") for path in (found[2], found[5]))
        hello: dict[int, Hello] = {}
        end_s = time.monotonic() + 60
        while len(hello) < NODES and time.monotonic() < end_s:
            channel.send(Word(number=1, interval_s=0.1, counted=True))
            hello |= {number: said for number, said in channel.receive() if isinstance(said, Hello)}
            time.sleep(0.1)
        os.kill(hello[1].pid, signal.SIGKILL)
        lost: list[Lost] = []
        while not lost:
            channel.send(Word(number=2, interval_s=0.1, counted=True))
            lost += [said for number, said in channel.receive() if isinstance(said, Lost) and number == 1]
            time.sleep(0.1)
        assert lost == [Lost(why="its agent ended with status 137")]
        assert set(heard(channel, 1, number=3)) == {0}
    finally:
        channel.close()
        job.kill()
        job.communicate()
    until(lambda: not cluster.pids("ray::Actor") and not marked(mark), "what is left of ours")
    assert (tmp_path / "left-0").read_text() == "end of input"


@pytest.mark.parametrize("death", ["relay", "raylet", "head"])
def test_agents_leave_by_themselves_whoever_dies(cluster: Cluster, tmp_path: Path, death: str) -> None:
    mark = uuid.uuid4().hex
    channel = _channel(cluster, tmp_path, mark)
    heard(channel, NODES, number=1)
    victims = {
        "relay": [channel.pid],
        "raylet": cluster.pids("raylet")[-1:],
        "head": [*cluster.pids("gcs_server"), *cluster.pids("raylet")],
    }[death]
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    channel.close()
    until(lambda: len(list(tmp_path.glob("left-*"))) == NODES, f"only {sorted(tmp_path.iterdir())}")
    until(lambda: not cluster.pids("ray::Actor") and not marked(mark), "what is left of ours")
