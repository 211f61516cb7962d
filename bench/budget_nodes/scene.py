"""A budget over the pretended nodes of a Slurm or Ray cluster: a site, and on each node a manager and a job."""

import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from autocap.job.processes import ProcessId
from autocap.plugins.fleet.budget.calling import SITE_SOCKET, SOCKET, call
from autocap.plugins.fleet.budget.words import Done, End, Standing
from autocap.testing.nvml import FileBoard, machine
from bench.budget_faults.scene import answering, standing, told
from bench.cluster import processes, runs, up
from bench.cluster.layout import Cluster
from bench.faults.boards import Boards
from bench.waiting import Late

NODES, GPUS = 4, 2
PROFILES = ("quadro-rtx-6000/resnet50", "quadro-rtx-6000/alexnet", "quadro-rtx-6000/resnet50", "quadro-rtx-6000/vgg19")
ARRIVALS_MW = ((247_123, 251_007), (260_000, 260_000), (233_333, 233_333), (259_001, 240_500))
BUDGET_W, LESS_W = 1600.0, 1200.0
PATIENCE_S = 90.0
_MARK = "BUDGET_OVER_NODES"  # in the environment of the site and all that it starts
_ENDS, _RELAY = "autocap.plugins.fleet.site.node", "autocap.plugins.fleet.nodes.ray_relay"
# What runs on Ray's nodes for it, which has the environment of their raylets.
_OVER_RAY = (_ENDS, "autocap.limits.watchdog", "ray::Actor")


@contextmanager
def ground(engine: str) -> Iterator["Ground"]:
    """A cluster with its jobs, for some budgets one after the other."""
    with TemporaryDirectory(prefix="bn") as folder, ExitStack() as stack:
        args = Namespace(
            nodes=NODES, gpus=GPUS, engine=engine, spread=0.0, helper=False, networks=False, profile=PROFILES[0]
        )
        cluster = up.cluster_of(args, Path(folder, "c"))
        stack.enter_context(up.started(cluster))
        yield Ground(cluster, stack.enter_context(runs.allocation(cluster)), stack)


class Ground(Boards):
    """cluster: started. environ: of who uses the allocation of all its nodes. stack: ends the jobs."""

    def __init__(self, cluster: Cluster, environ: Mapping[str, str], stack: ExitStack) -> None:
        self.cluster, self._env = cluster, dict(environ)
        boards = [_board(path, number) for number, path in enumerate(cluster.boards)]
        super().__init__(boards, [mw for found in ARRIVALS_MW for mw in found], patience_s=PATIENCE_S)
        origin_s = time.monotonic()
        for board in boards:
            board.update(lambda state: replace(state, origin_s=origin_s))
        for name, profile in zip(cluster.names, PROFILES, strict=True):
            stack.callback(_ended, self._job(name, profile))
        self.until(lambda: all(len(board.read().jobs) == 1 for board in self.boards), "all jobs compute")

    def _job(self, name: str, profile: str) -> "subprocess.Popen[bytes]":
        """On a node; over Ray beside it, in the environment that its processes have."""
        player = ("-m", "autocap.testing.nvml.player", "--gpus", "0,1", "--iterations", "9999999")
        is_slurm, quiet = self.cluster.engine == "slurm", subprocess.DEVNULL
        step = ("srun", "-N1", "-n1", f"--nodelist={name}", "--overlap") if is_slurm else ()
        env = self._env if is_slurm else self._env | self.cluster.on_node(name)
        command = [*step, sys.executable, *player, "--profile", profile]
        return subprocess.Popen(command, env=env, stdin=quiet, stdout=quiet, stderr=quiet)

    # The budget.

    def start(self, out: Path) -> "Held":
        """A budget that is held, by all nodes, on return. Raises Late."""
        held = Held(self, out, self._env)
        try:
            self.until(lambda: held.has_ended() or held.is_whole(), "the budget is held")
        except Late as error:
            held.abandon()
            raise Late(f"{error}: {held.told()}") from None
        if held.has_ended():
            raise Late(f"the budget has ended before it was held: {held.told()}")
        return held


class Held:
    """A budget from its start on. supervisor: the process that a user starts."""

    def __init__(self, ground: Ground, out: Path, environ: Mapping[str, str]) -> None:
        self._ground, self._mark = ground, f"{_MARK}={out}"
        self._folder = ground.cluster.directory
        self._site = self._folder / "state" / SITE_SOCKET
        words = ("budget", f"{BUDGET_W:g}", "--nodes", ground.cluster.engine, "--out", str(out))
        self.text = out.with_name(f"{out.name}.err")
        with open(self.text, "wb") as said:
            self.supervisor = subprocess.Popen(
                [sys.executable, "-P", "-m", "autocap", *words],
                env={**environ, _MARK: str(out)}, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip

    def standing(self, node: str | None = None) -> Standing | None:
        """What the site, or a node's manager, says; `None` while nobody answers."""
        return standing(self._site if node is None else self._folder / f"state-{node}" / SOCKET)

    def is_whole(self) -> bool:
        """Whether the site hears all nodes, knows their jobs, and limits are within the budget."""
        now = self.standing()
        return now is not None and not now.failed and len(now.jobs) == NODES and self._ground.is_within(now.budget_w)

    def tell(self, watts: float) -> float:
        """Another budget; when that was said, on the boards' clock. Raises AutocapError."""
        return told(self._ground, self._site, watts)

    def end(self) -> None:
        """Raises Late, AutocapError."""
        with closing(call([self._site])) as there:
            there.ask(End(), Done)
        self._ground.until(self.has_ended, "the budget ends")

    def has_ended(self) -> bool:
        return self.supervisor.poll() is not None

    def manager_pid(self) -> int:
        """Of the site. Raises Late where none answers."""
        return answering(self._ground, self._site, "a site answers")

    def node(self, name: str) -> tuple[int, int]:
        """The PIDs of a node's end, and of its manager. Raises Late."""
        pid = answering(self._ground, self._folder / f"state-{name}" / SOCKET, f"the manager of {name} answers")
        stat = Path(f"/proc/{pid}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1]), pid

    @property
    def cluster(self) -> Cluster:
        return self._ground.cluster

    def carriers(self) -> list[int]:
        """The PIDs of what carries the lines to the nodes: srun, or the relay."""
        begins, holds = ("srun ", _ENDS) if self.cluster.engine == "slurm" else (sys.executable, _RELAY)
        there = ((one.pid, processes.command(one)) for one in self.everyone())
        return [pid for pid, command in there if command.startswith(begins) and holds in command]

    def on(self, name: str, word: str) -> list[int]:
        """The PIDs of the processes of a node that were started with a word."""
        return [
            one.pid for one in processes.of_node(self.cluster, name) if word in processes.command(one).split(" ")[0]
        ]

    def everyone(self) -> list[ProcessId]:
        """All that it has started, on whatever node."""
        there = processes.of_cluster(self.cluster) if self.cluster.engine == "ray" else ()
        over_ray = [one for one in there if any(word in processes.command(one) for word in _OVER_RAY)]
        return list({*processes.found(self._mark), *over_ray})

    def said(self) -> tuple[str, ...]:
        return tuple(self.text.read_text(errors="replace").splitlines())

    def told(self) -> str:
        """The last that it has said."""
        return " / ".join(self.said()[-4:]) or "it has said nothing"

    def entries(self) -> list[str]:
        """What of devices lies in the nodes' state directories."""
        return [
            name
            for node in self._ground.cluster.names
            for name in sorted(os.listdir(self._folder / f"state-{node}"))
            if not name.startswith("budget.")
        ]

    def abandon(self) -> None:
        """Kill what is left of it."""
        for one in self.everyone():
            processes.send(one, signal.SIGCONT)
            processes.send(one, signal.SIGKILL)
        self.supervisor.wait()


def _board(path: Path, number: int) -> FileBoard:
    made = machine(PROFILES[number], gpus=GPUS, arrivals_mw=ARRIVALS_MW[number])
    path.unlink()
    return FileBoard.create(path, replace(made, sensor="v100", start_s=None))


def _ended(job: "subprocess.Popen[bytes]") -> None:
    job.kill()
    job.wait()
