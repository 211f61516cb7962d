"""Slurm: one step beside the job's own carries the lines, with an agent on each of its nodes. srun is all that is used.

    job = find("4711")
    channel = open_channel(job)

Nothing listens for it beside what Slurm has anyway, and it starts within a second.
"""

import os
import re
import shutil
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from autocap.cluster.carriers import AGENT
from autocap.cluster.channel import Channel, EngineJob, Told
from autocap.errors import EngineUnavailable, UsageError
from autocap.job.processes import import_path
from autocap.job.slurm import ask

_KEPT = ("SLURM_CONF", "SLURM_JWT")  # how to reach Slurm
# Slurm kills whatever is left of a step when its task ends, but an agent that died has a watchdog that needs seconds to
# put back. The task is therefore a shell, which with traps of its own outlives the signals that the agent gets.
_LINGER_S = 3
_TASK = (
    'trap : TERM INT HUP; "$@"; s=$?; [ $s = 0 ] || { '
    'printf \'{"says":"lost","with":{"why":"its agent ended with status %s"}}\\n\' $s; '
    f"sleep {_LINGER_S}; }}; exit $s"
)
_TASKS = re.compile(r"srun: error: [^:]+: tasks? ([\d,\- ]+): (.+)")
_NODE = re.compile(r"srun: error: Node failure on ([^\s,]+)")


def find(job: str | None = None, environ: Mapping[str, str] = os.environ) -> EngineJob:
    """The job with that id, or that in which we run. Raises UsageError where none is named, and EngineUnavailable with
    what to do where Slurm is not there, or the job is not one that runs and is ours."""
    number = job or environ.get("SLURM_JOB_ID")
    if not number:
        raise UsageError(
            "--nodes slurm: this is not inside a Slurm job; name one with --job ID, as squeue --me lists them"
        )
    if not re.fullmatch(r"\d+(_\d+|\+\d+)?", number):
        raise UsageError(f"--job {number}: not the id of a Slurm job, such as 4711 or 4711_2")
    for program in ("srun", "squeue", "scontrol"):
        if shutil.which(program, path=environ.get("PATH")) is None:
            raise EngineUnavailable(
                f"--nodes slurm: there is no {program} on PATH; load the module with Slurm's commands, "
                "or run this where they are"
            )
    answer = ask(environ, "squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%A|%T|%U|%N")
    rows = [line.split("|") for line in answer.splitlines() if line.count("|") == 3]
    if not rows:
        raise EngineUnavailable(f"Slurm knows no job {number}; squeue --me lists yours")
    if len(rows) > 1:
        raise EngineUnavailable(
            f"Slurm's job {number} is an array of {len(rows)}; name one of them, such as {number}_1"
        )
    raw, state, uid, nodes = (field.strip() for field in rows[0])
    if int(uid) != os.geteuid():
        raise EngineUnavailable(
            f"Slurm's job {number} is user {uid}'s, and only they can run agents in it; you are {os.geteuid()}"
        )
    if state != "RUNNING":
        raise EngineUnavailable(f"Slurm's job {number} is {state}, not RUNNING; wait until squeue shows it as R")
    return EngineJob(id=raw, nodes=tuple(ask(environ, "scontrol", "show", "hostnames", nodes).split()))


def open_channel(job: EngineJob, agent: Sequence[str] = AGENT, environ: Mapping[str, str] = os.environ) -> Channel:
    """The way to an agent on each of the job's nodes. Raises EngineUnavailable where srun cannot be started."""
    return Channel(
        command(job, agent),
        job=job,
        env=environment(environ),
        told=told(job),
        begun=leave_step,
        ending=(signal.SIGKILL,),  # on SIGTERM srun would have Slurm kill the step, as `leave_step` says
    )


def command(job: EngineJob, agent: Sequence[str] = AGENT) -> list[str]:
    """The step: an agent a node, on the nodes of `job`, which may be some of the job's. It shares what the job has,
    GPUs as well, and takes nothing from its other steps."""
    count = len(job.nodes)
    return [
        "srun",
        f"--jobid={job.id}",
        "--overlap",  # with all other steps: CPUs, memory and GPUs
        "--mem=0",  # of the job's, no share of its own
        f"--nodes={count}",
        f"--ntasks={count}",
        "--ntasks-per-node=1",
        f"--nodelist={','.join(job.nodes)}",
        "--distribution=block",
        "--cpu-bind=none",
        "--mpi=none",
        "--label",
        "--input=all",
        "--export=ALL",
        "--kill-on-bad-exit=0",  # one agent's death is not the others'
        "--wait=0",
        "--no-kill",  # nor a node's
        "/bin/sh",
        "-c",
        _TASK,
        "autocap-agent",
        *agent,
    ]


def environment(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """For the step: ours without the job's own choices, which srun would take for those of this step."""
    ours = {
        name: value
        for name, value in environ.items()
        if name in _KEPT or not name.startswith(("SLURM_", "SRUN_", "SLURMD_"))
    }
    return {**ours, "PYTHONPATH": os.pathsep.join(import_path())}


def leave_step(srun: int) -> None:
    """Let the step outlive an srun that is killed. srun has a child that would have Slurm kill the whole step, agents
    and their watchdogs in one stroke, so that nobody were left to put anything back. Without it the agents notice that
    nobody speaks to them any more, put back and leave."""
    for task in Path(f"/proc/{srun}/task").glob("*/children"):
        for child in task.read_text().split():
            with suppress(OSError):
                if Path(f"/proc/{child}/comm").read_text().strip() == "srun":
                    os.kill(int(child), signal.SIGKILL)


def told(job: EngineJob) -> Told:
    """What srun's errors say of single agents."""

    def of(line: str) -> list[tuple[int, str]]:
        if found := _TASKS.match(line):
            return [(number, f"Slurm says: {found[2]}") for number in _numbers(found[1])]
        if (found := _NODE.match(line)) and found[1] in job.nodes:
            return [(job.nodes.index(found[1]), "Slurm says: its node has failed")]
        return []

    return of


def _numbers(text: str) -> list[int]:
    """`0,2-4` as numbers."""
    spans = (part.strip().partition("-") for part in text.split(",") if part.strip())
    return [number for first, _, last in spans for number in range(int(first), int(last or first) + 1)]
