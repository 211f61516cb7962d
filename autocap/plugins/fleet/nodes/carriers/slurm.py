"""Slurm: one step beside the job's own carries the lines, with an agent on each of its nodes. srun is all that is used.

    job = find("4711")
    channels = Channels(open_channels(job), job)

Nothing listens for it beside what Slurm has anyway, and it starts within a second.
"""

import os
import re
import shutil
import signal
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from itertools import groupby
from pathlib import Path

from autocap.errors import EngineUnavailable, UsageError
from autocap.job.processes import ProcessId, import_path
from autocap.job.slurm import ask
from autocap.limits.times import OTHERS_DONE_S
from autocap.plugins.fleet.nodes.agent.finding import SlurmJob
from autocap.plugins.fleet.nodes.channel import Channel, Channels, EngineJob, RetriedChannels, Told
from autocap.plugins.fleet.nodes.protocol import Target
from autocap.plugins.fleet.nodes.transport import AGENT, Carrier
from autocap.text import printable

_KEPT = ("SLURM_CONF", "SLURM_JWT")  # how to reach Slurm
# Slurm kills whatever is left of a step when its task ends, but an agent that died has a watchdog that needs seconds to
# put back. The task is therefore a shell, which outlives the signals that ask for the agent's end, and passes them on:
# where steps are held in cgroups, as by most sites, Slurm sends them to the shell alone. Those that `sbatch --signal`
# sends to a job's own steps, for a checkpoint, are none of the agent's.
_TASK = (
    "trap 't=1; kill -TERM $a' TERM INT HUP QUIT; trap '' USR1 USR2 ALRM; exec 3<&0; "
    'SLURM_PROCID=$((SLURM_PROCID + $1)); shift; "$@" <&3 3<&- & a=$!; '
    's=127; while t=; wait $a; w=$?; [ $w = 127 ] || s=$w; [ "$t" ]; do :; done; '  # a trap ends a wait
    "[ $s = 0 ] || { "
    'printf \'{"says":"lost","with":{"why":"its agent ended with status %s"}}\\n\' $s; '
    f"sleep {OTHERS_DONE_S:g}; }}; exit $s"
)
_GIVEN = re.compile(r"^ +Nodes=(\S+) .*\bGRES=(\S+)", re.MULTILINE)  # of `scontrol show job --details`
_GPUS = re.compile(r"\bgpu(?::[^:,()]+)?:(\d+)\b")  # of `gpu:a100:2(IDX:0-1)`, how many
_TASKS = re.compile(r"srun: error: [^:]+: tasks? ([\d,\- ]+): (.+)")
_NODE = re.compile(r"srun: error: Node failure on ([^\s,]+)")


def find(job: str | None = None, environ: Mapping[str, str] = os.environ) -> EngineJob:
    """The job with that id, or that in which we run. Raises UsageError where none is named, and EngineUnavailable with
    what to do where Slurm is not there, or the job is not one that runs and is ours."""
    number = job or environ.get("SLURM_JOB_ID")
    if not number:
        raise UsageError(
            "--nodes slurm: this is not inside a Slurm job; start it in one, with sbatch or salloc. To attach, "
            "and for devices and budget, name a running one with --job ID, as squeue --me lists them"
        )
    if not re.fullmatch(r"\d+(_\d+|\+\d+)?", number):
        raise UsageError(f"--job {number}: not the id of a Slurm job, such as 4711 or 4711_2")
    for program in ("srun", "squeue", "scontrol"):
        if shutil.which(program, path=environ.get("PATH")) is None:
            raise EngineUnavailable(
                f"--nodes slurm: there is no {program} on PATH; load the module with Slurm's commands, "
                "or run this where they are"
            )
    if job is None and environ.get("SLURM_ARRAY_TASK_ID"):  # the last element has the whole array's number
        number = f"{environ.get('SLURM_ARRAY_JOB_ID', number)}_{environ['SLURM_ARRAY_TASK_ID']}"
    answer = ask(environ, "squeue", "--noheader", "--states=all", f"--jobs={number}", "--format=%A|%T|%U|%N|%i")
    rows = [line.split("|") for line in answer.splitlines() if line.count("|") == 4]
    if not rows:
        raise EngineUnavailable(f"Slurm knows no job {number}; squeue --me lists yours")
    if any("+" in row[4] for row in rows):
        raise EngineUnavailable(
            f"Slurm's job {number} is heterogeneous, which cannot be tuned as one; tune each node by itself, with "
            "autocap attach --pid PID on it"
        )
    if len(rows) > 1:
        raise EngineUnavailable(
            f"Slurm's job {number} is an array of {len(rows)}; name one of them, such as {rows[0][4].strip()}"
        )
    raw, state, uid, nodes, _ = (field.strip() for field in rows[0])
    if int(uid) != os.geteuid():
        raise EngineUnavailable(
            f"Slurm's job {number} is user {uid}'s, and only they can run agents in it; you are {os.geteuid()}"
        )
    if state != "RUNNING":
        raise EngineUnavailable(f"Slurm's job {number} is {state}, not RUNNING; wait until squeue shows it as R")
    return _with_gpus(EngineJob(id=raw, nodes=_hosts(environ, nodes)), number, environ)


def _with_gpus(job: EngineJob, number: str, environ: Mapping[str, str]) -> EngineJob:
    """With how many GPUs Slurm gave it on each node, and nodes with as many one after the other."""
    said = ask(environ, "scontrol", "show", "job", "--details", number)
    given: dict[str, int] = {}
    for nodes, gres in _GIVEN.findall(said):
        names = _hosts(environ, nodes) if "[" in nodes else tuple(nodes.split(","))
        given |= dict.fromkeys(names, sum(map(int, _GPUS.findall(gres))))
    if not any(given.values()):
        return job
    counts = {node: given.get(node, 0) for node in job.nodes}
    alike = sorted(job.nodes, key=lambda node: list(counts.values()).index(counts[node]))
    return EngineJob(id=job.id, nodes=tuple(alike), gpus=tuple(counts[node] for node in alike))


def _hosts(environ: Mapping[str, str], nodes: str) -> tuple[str, ...]:
    return tuple(ask(environ, "scontrol", "show", "hostnames", nodes).split())


def open_channels(
    job: EngineJob, agent: Sequence[str] = AGENT, environ: Mapping[str, str] = os.environ
) -> list[Channel]:
    """The ways to an agent on each of the job's nodes: a step for all nodes on which the job has as many GPUs, as a
    step asks for the same on all of its nodes. Raises EngineUnavailable where srun cannot be started."""
    parts: list[Channel] = []
    with ExitStack() as undo:
        for _, group in groupby(job.nodes, job.held):
            part = job.on(tuple(group))
            first = sum(len(each.job.nodes) for each in parts if each.job is not None)
            parts.append(
                Channel(
                    command(part, agent, first),
                    job=part,
                    env=environment(environ),
                    told=told(part),
                    begun=leave_step,
                    ending=(signal.SIGKILL,),  # on SIGTERM srun would have Slurm kill the step, as `leave_step` says
                )
            )
            undo.callback(parts[-1].leave)
        undo.pop_all()
    return parts


def command(job: EngineJob, agent: Sequence[str] = AGENT, first: int = 0) -> list[str]:
    """The step: an agent a node, on the nodes of `job`, which may be some of the job's. first: the number of the first
    agent. It shares what the job has, and
    takes nothing from its other steps. It asks for all GPUs of the job there: what a step does not ask for is derived
    from how the job asked, and comes to fewer, or to none."""
    count = len(job.nodes)
    gpus = job.held(job.nodes[0])
    # Of one node `--gres` is refused where the job has other numbers on others; of several `--gpus` is shared out anew.
    asked = [] if not gpus else [f"--gpus={gpus}" if count == 1 else f"--gres=gpu:{gpus}"]
    return [
        "srun",
        f"--jobid={job.id}",
        "--overlap",  # with all other steps: CPUs, memory and GPUs
        "--mem=0",  # of the job's, no share of its own
        *asked,
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
        str(first),
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


class Slurm:
    """A `Transport`."""

    has_job_around = True

    def nodes(self, address: str, job: str | None) -> EngineJob:
        if address:
            raise UsageError(
                f"--nodes slurm:{printable(address)}: Slurm has no address here; name its job with --job ID"
            )
        return find(job)

    def carrier(self, address: str, job: str | None, *, driver: int | None, agent: Sequence[str]) -> Carrier:
        """As Transport has it; a job that we start runs in the job around us."""
        found = self.nodes(address, job)
        return Carrier(
            target=Target(engine="slurm", job=found.id),
            names=found.nodes,
            open=lambda: RetriedChannels(lambda: open_channels(found, agent), found),
            reopen=lambda nodes: Channels(open_channels(found.on(nodes), agent), found.on(nodes)),
        )

    def job_here(self, target: Target, workers: Collection[ProcessId]) -> SlurmJob:
        return SlurmJob(target, workers)
