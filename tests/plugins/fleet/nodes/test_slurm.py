"""Real srun, slurmd and slurmctld, with four pretended nodes."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from autocap.cli import slurm_books
from autocap.errors import EngineUnavailable, UsageError
from autocap.job.slurm import energy_plugins, why_not_alone
from autocap.plugins.fleet.nodes.carriers import slurm
from autocap.plugins.fleet.nodes.channel import Channel, Channels, EngineJob
from autocap.plugins.fleet.nodes.protocol import Command, CommandKind, Done, HeartbeatReply, Hello, Lost
from bench.cluster import layout, up
from bench.cluster.slurm import missing
from tests.plugins.fleet.nodes.hearing import MARK, heard, marked, until

ECHO = str(Path(__file__).parent / "echo_agent.py")
TOLD_TO_END = """if 1:
    import os, signal
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    print(os.environ["SLURM_PROCID"], input(), flush=True)
    signal.sigwait({signal.SIGTERM})
    print("told", flush=True)
"""
needs_slurm = pytest.mark.skipif(missing() is not None, reason=f"Slurm: {missing()}")


@pytest.fixture(scope="module")
def cluster() -> Iterator[dict[str, str]]:
    with tempfile.TemporaryDirectory(prefix="act-") as folder:
        asked = ["--nodes=4", "--profile=quadro-rtx-6000/alexnet"]
        made = up.cluster_of(up.options(asked), Path(folder, "c"))
        with up.started(made):
            yield up.environment(made)
        assert layout.of_cluster(made) == []


class Running:
    """A job on all nodes, and a channel to echoing agents in it."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self.mark = uuid.uuid4().hex
        self.environment = {**environment, MARK: self.mark}
        said = self.ask("sbatch", "--nodes=4", "--gres=gpu:2", f"--output={folder}/job.txt", "--wrap=sleep 600")
        number = said.split()[-1]
        until(lambda: "RUNNING" in self.ask("squeue", f"--jobs={number}", "--format=%T"), "the job's start")
        self.job = slurm.find(number, self.environment)
        opened = slurm.open_channels(self.job, (sys.executable, ECHO, str(folder)), self.environment)
        self.channel = Channels(opened, self.job)

    def ask(self, *argv: str) -> str:
        return subprocess.run(argv, env=self.environment, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def running(cluster: dict[str, str], tmp_path: Path) -> Iterator[Running]:
    one = Running(cluster, tmp_path)
    try:
        yield one
    finally:
        one.channel.close()
        one.ask("scancel", one.job.id)
    until(lambda: not marked(one.mark), f"left behind: {marked(one.mark)}")


@pytest.mark.slow
@needs_slurm
def test_an_agent_a_node_answers_and_a_dead_one_is_told_of(running: Running, tmp_path: Path) -> None:
    hello = heard(running.channel, 4)
    assert {number: message.node for number, message in hello.items() if isinstance(message, Hello)} == {
        number: f"node{number + 1}" for number in range(4)
    }
    caps = tuple(float(cap) for cap in range(500))
    running.channel.send(Command(number=7, what=CommandKind.SET, caps_w=caps), to=(2,))
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
    running.channel.send(Command(number=9, what=CommandKind.END))
    until(lambda: len(list(tmp_path.glob("left-*"))) == 3, "three that leave")
    assert {path.read_text() for path in tmp_path.glob("left-*")} == {"at the end"}


@pytest.mark.slow
@needs_slurm
@pytest.mark.parametrize("death", ["srun", "scancel", "close"])
def test_agents_have_time_to_put_back(running: Running, tmp_path: Path, death: str) -> None:
    heard(running.channel, 4)
    if death == "srun":
        os.kill(running.channel.pids[0], signal.SIGKILL)
        assert all(isinstance(message, Lost) for message in heard(running.channel, 4).values())
    elif death == "scancel":
        running.ask("scancel", "--signal=USR1", running.job.id)  # as --signal sends to steps, for a checkpoint
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
    with pytest.raises(UsageError, match="not inside a Slurm job; start it in one, with sbatch or salloc"):
        slurm.find(None, {})
    with pytest.raises(UsageError, match="--job node1: not the id of a Slurm job"):
        slurm.find("node1", {})
    with pytest.raises(EngineUnavailable, match="there is no srun on PATH"):
        slurm.find("1", {"PATH": str(tmp_path)})


# What Slurm 22.05 prints: squeue of an array and of a heterogeneous job, scontrol of jobs that asked in several ways.
ARRAY = [f"2438700{4 + n % 4}|RUNNING|{os.geteuid()}|node{1 + n // 3}|24387004_{n}" for n in (1, 2, 3, 4)]
PARTS = [f"2438700{8 + n}|RUNNING|{os.geteuid()}|node{1 + n}|24387008+{n}" for n in (0, 1)]
ALIKE = "     Nodes=node[1-2] CPU_IDs=0-1 Mem=0 GRES=gpu:2(IDX:0-1)\n"
MIXED = (
    "     Nodes=node1 CPU_IDs=1 Mem=0 GRES=gpu:a100:2(IDX:0-1),gpu:v100:2(IDX:2-3)\n"
    "     Nodes=node2 CPU_IDs=1 Mem=0 GRES=gpu:1(IDX:0)\n     Nodes=node3 CPU_IDs=1 Mem=0 GRES=gpu:4(IDX:0-3)\n"
)
NONE = "     Nodes=node[1-2] CPU_IDs=0-1 Mem=0 GRES=\n"


class Answers:
    """Slurm's commands, as `slurm.ask` has their answers."""

    def __init__(self, jobs: list[str], details: str = "") -> None:
        self._jobs, self._details = jobs, details

    def __call__(self, environ: object, *argv: str) -> str:
        if argv[0] == "squeue":
            number = next(word for word in argv if word.startswith("--jobs=")).partition("=")[2]
            array, _, element = number.partition("_")
            rows = [row for row in self._jobs if not element or row.endswith(f"|{number}")]
            return "\n".join(row for row in rows if array in row or element)
        if "hostnames" in argv:
            return {"node[1-2]": "node1 node2", "node[1-3]": "node1 node2 node3"}.get(argv[-1], argv[-1])
        return self._details


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Callable[[Answers], None]:
    monkeypatch.setattr(slurm.shutil, "which", lambda program, path: program)
    return lambda made: monkeypatch.setattr(slurm, "ask", made)


def test_each_element_of_an_array_finds_itself_also_the_last_one(answers: Callable[[Answers], None]) -> None:
    answers(Answers(ARRAY))
    for element, raw in ((1, "24387005"), (4, "24387004")):
        environ = {"SLURM_JOB_ID": raw, "SLURM_ARRAY_JOB_ID": "24387004", "SLURM_ARRAY_TASK_ID": str(element)}
        found = slurm.find(None, environ)
        assert (found.id, found.nodes) == (raw, (f"node{1 + element // 3}",))
    with pytest.raises(EngineUnavailable, match=r"24387004 is an array of 4; name one of them, such as 24387004_1$"):
        slurm.find("24387004", {})


def test_a_heterogeneous_job_is_refused_in_a_sentence(answers: Callable[[Answers], None]) -> None:
    answers(Answers(PARTS))
    with pytest.raises(
        EngineUnavailable, match=r"^Slurm's job 24387008 is heterogeneous, which cannot be tuned as one"
    ):
        slurm.find(None, {"SLURM_JOB_ID": "24387008"})


@pytest.mark.parametrize(
    ("nodes", "details", "steps"),
    [
        ("node[1-2]", ALIKE, [("node1,node2", "--gres=gpu:2", "0")]),
        ("node[1-2]", NONE, [("node1,node2", None, "0")]),
        ("node[1-3]", MIXED, [("node1,node3", "--gres=gpu:4", "0"), ("node2", "--gpus=1", "2")]),
    ],
)
def test_a_step_asks_for_all_gpus_of_the_job(
    answers: Callable[[Answers], None],
    monkeypatch: pytest.MonkeyPatch,
    nodes: str,
    details: str,
    steps: list[tuple[str, str | None, str]],
) -> None:
    answers(Answers([f"7|RUNNING|{os.geteuid()}|{nodes}|7"], details))
    asked: list[tuple[str, str | None, str]] = []

    class Step:
        def __init__(self, argv: list[str], job: EngineJob, **rest: object) -> None:
            self.job = job
            gpus = next((word for word in argv if word.startswith(("--gres", "--gpus"))), None)
            where = next(word for word in argv if word.startswith("--nodelist")).partition("=")[2]
            asked.append((where, gpus, argv[argv.index("autocap-agent") + 1]))

        def leave(self) -> None:
            pass

    monkeypatch.setattr(slurm, "Channel", Step)
    slurm.open_channels(slurm.find("7", {}), environ={})
    assert asked == steps


def test_channels_number_the_agents_of_all_steps(tmp_path: Path) -> None:
    parts = [EngineJob(id="1", nodes=("a", "c")), EngineJob(id="1", nodes=("b",))]
    agent = "import sys\nfor line in sys.stdin: print(f'{sys.argv[1]}: ' + line, end='', flush=True)"
    opened = [Channel((sys.executable, "-c", agent, str(n)), job=part) for n, part in ((1, parts[0]), (0, parts[1]))]
    with closing(Channels(opened, EngineJob(id="1", nodes=("a", "c", "b")))) as channels:
        channels.send(HeartbeatReply(number=1, heard_s=0.0, said_s=0.0), (1,))
        channels.send(HeartbeatReply(number=2, heard_s=0.0, said_s=0.0), (2,))
        heard: list[tuple[int, object]] = []
        until(lambda: heard.extend(channels.receive()) or len(heard) == 2, "both")
        assert sorted((number, message.number) for number, message in heard) == [(1, 1), (2, 2)]  # type: ignore[attr-defined]


@pytest.mark.parametrize("shell", ["/bin/sh", "/bin/bash"])
def test_the_shell_of_a_task_passes_the_end_on_and_no_request_for_a_checkpoint(shell: str) -> None:
    """It alone gets Slurm's signals where steps are held in cgroups."""
    step = slurm.command(EngineJob(id="1", nodes=("a",)), (sys.executable, "-c", TOLD_TO_END), first=1)
    task = (shell, *step[step.index("/bin/sh") + 1 :])
    process = subprocess.Popen(task, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={"SLURM_PROCID": "2"})
    process.stdin.write(b"a word\n")
    process.stdin.flush()
    assert process.stdout.readline() == b"3 a word\n"
    for signum in (signal.SIGUSR1, signal.SIGTERM):
        process.send_signal(signum)
    assert process.communicate(timeout=60) == (b"told\n", None)
    assert process.returncode == 0


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
    assert re.match(
        r"srun --jobid=12 --overlap .*--nodes=2 --ntasks=2 .* -m autocap.plugins.fleet.nodes.agent$", command
    )


@needs_slurm
def test_a_slurm_without_a_database_says_in_one_sentence_that_it_keeps_no_books(cluster: dict[str, str]) -> None:
    with pytest.raises(EngineUnavailable, match=r"^this Slurm keeps no books \(accounting storage is disabled\)"):
        slurm_books.read("1", cluster)
    assert energy_plugins(cluster) == ((), 0.0)


@pytest.mark.slow
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
