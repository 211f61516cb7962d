"""A real Ray cluster of two nodes on this machine: the relay, its actors, agents, and their deaths."""

import os
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from argparse import Namespace
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from autocap.errors import EngineUnavailable
from autocap.job.processes import ProcessId, identify
from autocap.plugins.fleet.nodes.carriers import ray as carrier
from autocap.plugins.fleet.nodes.channel import Channel
from autocap.plugins.fleet.nodes.protocol import Heartbeat, Hello, Lost
from bench.cluster import layout, up
from bench.cluster.layout import Cluster
from tests.plugins.fleet.nodes.hearing import MARK, PATIENCE_S, heard, marked, until

pytestmark = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
ECHO = str(Path(__file__).parent.parent / "plugins/fleet/nodes/echo_agent.py")
NODES = 2
PROFILE = "quadro-rtx-6000/alexnet"
# A job as users write it, with a runtime_env of its own; it says what its workers have in their environment.
JOB = """
import os, time, ray
ray.init(log_to_driver=False, runtime_env={"env_vars": {"MINE": "yes"}})
@ray.remote(num_cpus=1)
class Worker:
    def given(self): return [os.environ.get(name) for name in ("AUTOCAP_STEP_MAP", "MINE", "PYTHONPATH")]
workers = [Worker.options(runtime_env={"env_vars": {"RANK": str(rank)}}).remote() for rank in range(2)]
given = ray.get([worker.given.remote() for worker in workers])
print(ray.get_runtime_context().get_job_id(), *sum(given, []), flush=True)
time.sleep(600)
"""


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """With a token, ports and a folder of its own: other clusters may run on this machine."""
    with tempfile.TemporaryDirectory(prefix="act-", dir="/tmp") as folder:  # Ray's sockets need a short path
        options = {"nodes": NODES, "gpus": 1, "engine": "ray", "spread": 0.0, "profile": PROFILE}
        options |= {"helper": False, "networks": False}
        one = up.cluster_of(Namespace(**options), Path(folder, "c"))
        with up.started(one):
            yield one


def _daemons(cluster: Cluster, name: str) -> list[ProcessId]:
    there = layout.of_cluster(cluster)
    return [one for one in there if Path(layout.command(one).split(" ")[0]).name == name]


def _may_hurry() -> bool:
    """Whether a process of ours that is nice may be so no more."""
    hurried = ("import os", "os.nice(5)", "os.setpriority(os.PRIO_PROCESS, 0, 0)")
    return subprocess.run([sys.executable, "-c", "; ".join(hurried)], stderr=subprocess.DEVNULL).returncode == 0


def _actors(cluster: Cluster) -> list[str]:
    commands = [layout.command(one) for one in layout.of_cluster(cluster)]
    return [command for command in commands if command.startswith("ray::Actor")]


def _channel(cluster: Cluster, folder: Path, mark: str, driver: int | None = None, job: str | None = None) -> Channel:
    agent, environ = (sys.executable, ECHO, str(folder)), {**up.environment(cluster), MARK: mark}
    channel = carrier.open_channel(environ["RAY_ADDRESS"], driver=driver, job=job, agent=agent, environ=environ)
    try:
        until(lambda: bool(channel.receive() or channel.job), "the agents' start")
    except EngineUnavailable:
        channel.close()
        raise
    return channel


def test_agents_of_a_job_answer_and_its_workers_get_what_counts_their_steps(cluster: Cluster, tmp_path: Path) -> None:
    given = carrier.for_workers({"AUTOCAP_STEP_MAP": "map-of-this-run", "PYTHONPATH": "/hook"})
    job = subprocess.Popen(
        [sys.executable, "-c", JOB], env={**up.environment(cluster), **given}, stdout=subprocess.PIPE, text=True
    )
    mark = uuid.uuid4().hex
    # From us the relay, which is a driver too, descends as well.
    channel = _channel(cluster, tmp_path, mark, driver=os.getpid())
    try:
        name, *found = job.stdout.readline().split()
        assert (channel.job.id, len(channel.job.nodes)) == (name, NODES)
        assert [found[:2], found[3:5]] == [["map-of-this-run", "yes"]] * 2
        assert all(path.startswith("/hook:") for path in (found[2], found[5]))
        hello: dict[int, Hello] = {}
        end_s = time.monotonic() + 2 * PATIENCE_S
        while len(hello) < NODES and time.monotonic() < end_s:
            channel.send(Heartbeat(number=1, interval_s=0.1, counted=True))
            hello |= {number: said for number, said in channel.receive() if isinstance(said, Hello)}
            time.sleep(0.1)
        is_nice = {os.getpriority(os.PRIO_PROCESS, one.pid) > 0 for one in hello.values()}
        assert is_nice == {not _may_hurry()}
        os.kill(hello[1].pid, signal.SIGKILL)
        lost: list[Lost] = []
        while not lost and time.monotonic() < end_s:
            channel.send(Heartbeat(number=2, interval_s=0.1, counted=True))
            lost += [said for number, said in channel.receive() if isinstance(said, Lost) and number == 1]
            time.sleep(0.1)
        assert lost == [Lost(why="its agent ended with status 137")]
        assert set(heard(channel, 1, number=3)) == {0}
        channel.close()
        until((tmp_path / "left-0").exists, "the agent's leaving")
        assert (tmp_path / "left-0").read_text() == "end of input"
        channel = _channel(cluster, tmp_path, mark, job=name)
        assert (channel.job.id, len(channel.job.nodes)) == (name, NODES)
        assert set(heard(channel, NODES, number=1)) == {0, 1}
        channel.close()
        with pytest.raises(EngineUnavailable, match=rf"^Ray has no running job nope; those that run: {name} \(.+\)$"):
            _channel(cluster, tmp_path, mark, job="nope")
    finally:
        channel.close()
        job.kill()
        job.communicate()
    until(lambda: not _actors(cluster) and not marked(mark), "what is left of ours")


@pytest.mark.parametrize("death", ["relay", "raylet", "head"])
def test_agents_leave_by_themselves_whoever_dies(cluster: Cluster, tmp_path: Path, death: str) -> None:
    mark = uuid.uuid4().hex
    channel = _channel(cluster, tmp_path, mark)
    heard(channel, NODES, number=1)
    relay = identify(channel.pid)
    assert relay is not None
    victims = {
        "relay": [relay],
        "raylet": _daemons(cluster, "raylet")[-1:],
        "head": _daemons(cluster, "gcs_server") + _daemons(cluster, "raylet"),
    }[death]
    assert victims
    for victim in victims:
        layout.send(victim, signal.SIGKILL)
    channel.close()
    until(lambda: len(list(tmp_path.glob("left-*"))) == NODES, f"only {sorted(tmp_path.iterdir())}")
    until(lambda: not _actors(cluster) and not marked(mark), "what is left of ours")
