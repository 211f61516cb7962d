"""Slurm's own commands, asked for what they know of jobs and nodes; read-only, and nothing of it is shown unread."""

import os
import re
import subprocess
from collections.abc import Mapping

from autocap.errors import EngineUnavailable

_ASK_S = 20.0
_MOST_BYTES = 1 << 20  # of an answer
_SHOWN = 120
_UNKNOWN_JOB = "Invalid job id"
_ALONE = "submit it with --exclusive"
_OF_PARTITION = re.compile(r"\bOverSubscribe=(NO|EXCLUSIVE)\b")
NODE_METERS = frozenset({"ipmi", "xcc", "pm_counters"})  # plugins that read the whole node; rapl and gpu read parts


def ask(environ: Mapping[str, str], *argv: str) -> str:
    """What a command prints; nothing where it knows no such job. Raises EngineUnavailable with what to do where it
    cannot be asked."""
    try:
        answer = subprocess.run(
            argv, env=dict(environ), stdin=subprocess.DEVNULL, capture_output=True, timeout=_ASK_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise EngineUnavailable(
            f"{argv[0]} has not answered within {_ASK_S:g} s; try it by hand: {' '.join(argv)}"
        ) from None
    except FileNotFoundError:
        raise EngineUnavailable(
            f"there is no {argv[0]} on PATH; load the module with Slurm's commands, or run this where they are"
        ) from None
    except OSError as error:
        raise EngineUnavailable(f"{argv[0]} cannot be started: {error.strerror}") from error
    said = answer.stderr[:_MOST_BYTES].decode(errors="replace").strip()
    if answer.returncode and _UNKNOWN_JOB not in said:
        why = (said.splitlines() or [f"status {answer.returncode}"])[-1][:_SHOWN]
        raise EngineUnavailable(f"Slurm cannot be asked: {why}; try it by hand: {' '.join(argv)}")
    return answer.stdout[:_MOST_BYTES].decode(errors="replace")


def field(answer: str, name: str) -> str | None:
    """A field of `scontrol show`, which stands at the beginning of a line or has a line of its own as `name = value`;
    `None` where there is none. What a user may have written, such as a job's name, never begins a line so."""
    found = re.search(rf"^ *{re.escape(name)} *= *(\S+)", answer, re.MULTILINE)
    return None if found is None else found[1]


def energy_plugins(environ: Mapping[str, str] = os.environ) -> tuple[tuple[str, ...], float]:
    """What reads energy for Slurm here, such as `ipmi`, and how often it reads nodes beside the jobs' own readings,
    seconds; none, and 0 for never. Raises EngineUnavailable."""
    answer = ask(environ, "scontrol", "show", "config")
    names = (field(answer, "AcctGatherEnergyType") or "").split(",")
    plugins = [name.strip().rpartition("/")[2] for name in names]
    every = re.match(r"\d+", field(answer, "AcctGatherNodeFreq") or "")
    return tuple(name for name in plugins if name not in ("", "none", "(null)")), float(every[0]) if every else 0.0


def why_not_alone(
    environ: Mapping[str, str], job: str, nodes: str, cpus: int | None = None, partition: str = ""
) -> str | None:
    """Why a job may not have had its nodes for itself, so that their energy is not its own; `None` where it had them.

    nodes: as Slurm lists them. cpus: that it had, and the partition that it was in, for a job that Slurm's controller
    may have forgotten. Raises EngineUnavailable.
    """
    known = ask(environ, "scontrol", "show", "job", job)
    shares = field(known, "OverSubscribe")
    if shares == "NO":
        return None
    if shares == "YES":
        return f"job {job} lets others have its CPUs as well; {_ALONE}"
    if not known:
        of_partition = ask(environ, "scontrol", "show", "partition", partition) if partition else ""
        if _OF_PARTITION.search(of_partition) is None:
            return f"Slurm has forgotten whether job {job} let others have its CPUs; ask within minutes of its end"
    counted = re.search(r"^ *NumNodes=\S+ NumCPUs=(\d+) ", known, re.MULTILINE)
    had = cpus if counted is None else int(counted[1])
    listed = ask(environ, "scontrol", "--oneliner", "show", "node", nodes).splitlines()
    there = [re.search(r" CPUEfctv=(\d+) ", line) or re.search(r" CPUTot=(\d+) ", line) for line in listed]
    of_nodes = sum(int(found[1]) for found in there if found is not None)
    if had is None or not of_nodes or None in there:
        return f"Slurm does not say how many CPUs job {job} and its nodes have, and so whether it was alone there"
    if had < of_nodes:
        return f"job {job} had {had} of its nodes' {of_nodes} CPUs, and others may have had the rest; {_ALONE}"
    return None
