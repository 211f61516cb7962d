"""How the nodes are reached that `--nodes NAME[:ADDRESS]` names: by Slurm, by Ray, or by what another package adds."""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from autocap.job import registry
from autocap.job.processes import ProcessId
from autocap.plugins.fleet.nodes.channel import EngineJob
from autocap.plugins.fleet.nodes.protocol import Target

if TYPE_CHECKING:  # an agent waits for none of it
    from autocap.plugins.fleet.nodes.agent.finding import JobHere
    from autocap.plugins.fleet.nodes.agent_pool import Channel
    from autocap.plugins.fleet.nodes.guardian import Reopen

AGENT = (sys.executable, "-P", "-m", "autocap.plugins.fleet.nodes.agent")  # -P: nothing from the job's folder
NO_RAY = f"{sys.executable} has no Ray; install it, in the version of the cluster: pip install 'ray>=2.60,<3'"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """How messages reach a job's nodes. names: of these, in the order of their agents' numbers; none where they are
    known once it runs, as its id then is. open: starts the agents. reopen: starts other ones on some nodes.
    for_workers: what a child needs in its environment so that its processes on the nodes have some settings in theirs;
    `None` where they inherit it."""

    target: Target
    names: tuple[str, ...]
    open: "Callable[[], Channel]"
    reopen: "Reopen | None" = None
    for_workers: Callable[[Mapping[str, str], Mapping[str, str]], dict[str, str]] | None = None


class Transport(Protocol):
    """Its methods raise UsageError for an address or a job that it cannot have, and EngineUnavailable where the engine,
    or the job, is not there. address: what stands behind the name, "" for nothing. job: as --job has it.

    has_job_around: whether we may be inside a job that --job need not name.
    """

    has_job_around: bool

    def nodes(self, address: str, job: str | None) -> EngineJob:
        """Those that there are, also before a job runs on them."""

    def carrier(self, address: str, job: str | None, *, driver: int | None, agent: Sequence[str]) -> Carrier:
        """driver: the process that is to start the job, or an ancestor of it; `None` for a job that is named, or for
        all nodes. agent: the command that runs on each node."""

    def job_here(self, target: Target, workers: Collection[ProcessId]) -> "JobHere":
        """On a node: which processes are the job's. workers: that the engine itself says are."""


def reached_by(where: str) -> tuple[Transport, str]:
    """The transport that --nodes names, and the address behind it. Raises UsageError where there is none."""
    name, _, address = where.partition(":")
    made: Transport = registry.chosen("transports", name, f"--nodes {where}")()
    return made, address
