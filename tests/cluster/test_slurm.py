"""Real srun, slurmd and slurmctld, with four pretended nodes."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from autocap.cli import slurm_books
from autocap.cluster.carriers import slurm
from autocap.cluster.channel import EngineJob
from autocap.cluster.protocol import Deed, Do, Done, Hello, Lost
from autocap.errors import EngineUnavailable, UsageError
from autocap.job.slurm import energy_plugins, why_not_alone
from tests.cluster.fake_slurm import fake_slurm, missing
from tests.cluster.hearing import MARK, heard, marked, until

ECHO = str(Path(__file__).parent / "echo_agent.py")
needs_slurm = pytest.mark.skipif(missing() is not None, reason=f"Slurm: {missing()}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory() as folder, fake_slurm(Path(folder), nodes=4) as environment:
        yield environment


class Running:
    """A job on all nodes, and a channel to echoing agents in it."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.environment = {**environment, MARK: self.mark}
        said = self.ask("sbatch", "--nodes=4", "--gres=gpu:2", f"--output={folder}/job.txt", "--wrap=sleep 600")
        number = said.split()[-1]
        until(lambda: "RUNNING" in self.ask("squeue", f"--jobs={number}", "--format=%T"), "the job's start")
        self.job = slurm.find(number, self.environment)
        self.channel = slurm.open_channel(self.job, (sys.executable, ECHO, str(folder)), self.environment)

    def ask(self, *argv: str) -> str:
        return subprocess.run(argv, env=self.environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def running(cluster: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setenv("PATH", cluster["PATH"])
    one = Running(cluster, tmp_path)
    try:
        yield one
    finally:
        one.channel.close()
        one.ask("scancel", one.job.id)
    until(lambda: not marked(one.mark), f"left behind: {marked(one.mark)}")


@needs_slurm
def test_an_agent_a_node_answers_and_a_dead_one_is_told_of(running: Running, tmp_path: Path) -> None:
    hello = heard(running.channel, 4)
    assert {number: message.node for number, message in hello.items() if isinstance(message, Hello)} == {
        number: f"node{number + 1}" for number in range(4)
    }
    caps = tuple(float(cap) for cap in range(500))
    running.channel.send(Do(number=7, what=Deed.SET, caps_w=caps), to=(2,))
    done = heard(running.channel, 1)
    assert done == {2: Done(number=7, why="".join(f"{cap:08.1f} " for cap in caps))}
    # Beside it the job's own step starts at once, with all of its GPUs.
    own = (
        "srun",
        f"--jobid={running.job.id}",
        "--nodes=4",
        "--ntasks=4",
        "--gres=gpu:2",
        "printenv",
        "CUDA_VISIBLE_DEVICES",
    )
    assert running.ask(*own).split() == ["0,1"] * 4
    victim = hello[1]
    assert isinstance(victim, Hello)
    os.kill(victim.pid, signal.SIGKILL)
    until(lambda: (1, Lost(why="its agent ended with status 137")) in running.channel.receive(), "the loss")
    assert set(heard(running.channel, 3, number=8)) == {0, 2, 3}
    running.channel.send(Do(number=9, what=Deed.END))
    until(lambda: len(list(tmp_path.glob("left-*"))) == 3, "three that leave")
    assert {path.read_text() for path in tmp_path.glob("left-*")} == {"at the end"}


@needs_slurm
@pytest.mark.parametrize("death", ["srun", "scancel", "close"])
def test_agents_have_time_to_put_back(running: Running, tmp_path: Path, death: str) -> None:
    heard(running.channel, 4)
    if death == "srun":
        os.kill(running.channel.pid, signal.SIGKILL)
        assert all(isinstance(message, Lost) for message in heard(running.channel, 4).values())
    elif death == "scancel":
        running.ask("scancel", running.job.id)
    else:
        running.channel.close()
    until(
        lambda: len(list(tmp_path.glob("left-*"))) == 4,
        f"{sorted(tmp_path.iterdir())}: not all have left by themselves",
    )
    expected = {"srun": {"silence", "end of input"}, "scancel": {"told to"}, "close": {"end of input"}}[death]
    assert {path.read_text() for path in tmp_path.glob("left-*")} <= expected


@needs_slurm
def test_a_job_that_cannot_be_joined_says_why(cluster: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(EngineUnavailable, match="Slurm knows no job 99999; squeue --me lists yours"):
        slurm.find("99999", cluster)
    held = ("sbatch", "--hold", f"--output={tmp_path}/job.txt", "--wrap=true")
    number = subprocess.run(held, env=cluster, capture_output=True, text=True, check=True).stdout.split()[-1]
    with pytest.raises(EngineUnavailable, match=f"Slurm's job {number} is PENDING, not RUNNING"):
        slurm.find(number, cluster)
    subprocess.run(["scancel", number], env=cluster, check=True)


def test_without_a_job_or_slurm_it_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not inside a Slurm job; name one with --job ID"):
        slurm.find(None, {})
    with pytest.raises(UsageError, match="--job node1: not the id of a Slurm job"):
        slurm.find("node1", {})
    with pytest.raises(EngineUnavailable, match="there is no srun on PATH"):
        slurm.find("1", {"PATH": str(tmp_path)})


def test_what_srun_says_of_single_agents_is_understood() -> None:
    told = slurm.told(EngineJob(id="1", nodes=("a1", "a2", "b7")))
    assert told("srun: error: a2: task 1: Killed") == [(1, "Slurm says: Killed")]
    assert told("srun: error: a[1-2],b7: tasks 0,1-2: Exited with exit code 1") == [
        (number, "Slurm says: Exited with exit code 1") for number in range(3)
    ]
    assert told("srun: error: Node failure on b7") == [(2, "Slurm says: its node has failed")]
    assert told("srun: cluster configuration lacks support for cpu binding") == []


def test_the_step_takes_none_of_the_jobs_own_choices() -> None:
    environment = slurm.environment({"PATH": "/bin", "SLURM_CONF": "x", "SLURM_MEM_PER_CPU": "9", "SLURM_JOB_ID": "1"})
    assert environment.pop("PYTHONPATH")
    assert environment == {"PATH": "/bin", "SLURM_CONF": "x"}
    command = " ".join(slurm.command(EngineJob(id="12", nodes=("a", "b"))))
    assert re.match(r"srun --jobid=12 --overlap .*--nodes=2 --ntasks=2 .* -m autocap.cluster.agent$", command)


@needs_slurm
def test_a_slurm_without_a_database_says_in_one_sentence_that_it_keeps_no_books(cluster: dict[str, str]) -> None:
    with pytest.raises(EngineUnavailable, match=r"^this Slurm keeps no books \(accounting storage is disabled\)"):
        slurm_books.read("1", cluster)
    assert energy_plugins(cluster) == ((), 0.0)


@needs_slurm
def test_whether_a_job_has_its_nodes_for_itself_is_read_from_what_slurm_really_prints(running: Running) -> None:
    job = running.job.id
    assert why_not_alone(running.environment, job, "node[1-4]") == (
        f"job {job} had 4 of its nodes' 8 CPUs, and others may have had the rest; submit it with --exclusive"
    )
    said = running.ask("sbatch", "--exclusive", "--begin=now+600", "--wrap=sleep 1")
    alone = said.split()[-1]
    try:
        assert why_not_alone(running.environment, alone, "node1") is None
    finally:
        running.ask("scancel", alone)
