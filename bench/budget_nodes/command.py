"""python -m bench budget nodes: one budget over four pretended nodes of Slurm or Ray: how soon one that falls by a
quarter is kept, and one fault after the other into others, and what became of them."""

import argparse
import os
import signal
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from autocap.errors import AutocapError
from autocap.job.processes import ProcessId
from autocap.plugins.fleet.budget.connection import SITE_SOCKET, SOCKET, call
from autocap.plugins.fleet.budget.protocol import Done, End
from autocap.testing.nvml import FileBoard, machine
from bench.budget_faults.command import (
    RANDOM_S,
    Act,
    kill_both,
    kill_during_a_drop,
    kill_supervisor,
    lowered,
    played,
    tell_drops,
    terminate,
    to_manager,
)
from bench.budget_faults.scene import Budget
from bench.cluster import layout, ray_nodes, runs, up
from bench.cluster.layout import Cluster
from bench.cluster.up import ENGINES
from bench.common import Late, waited
from bench.faults import outcome
from bench.faults.outcome import Outcome, difference
from bench.faults.scene import Boards

NODES, GPUS = 4, 2
PROFILES = ("quadro-rtx-6000/resnet50", "quadro-rtx-6000/alexnet", "quadro-rtx-6000/resnet50", "quadro-rtx-6000/vgg19")
ARRIVALS_MW = ((247_123, 251_007), (260_000, 260_000), (233_333, 233_333), (259_001, 240_500))
BUDGET_W, LESS_W = 1600.0, 1200.0
PATIENCE_S = 90.0
_MARK = "BUDGET_OVER_NODES"  # in the environment of the site and all that it starts
_ENDS, _RELAY = "autocap.plugins.fleet.multinode.node", "autocap.plugins.fleet.nodes.ray_relay"
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


class Held(Budget):
    """A budget from its start on."""

    def __init__(self, ground: Ground, out: Path, environ: Mapping[str, str]) -> None:
        self._ground, self._mark = ground, f"{_MARK}={out}"
        self._folder = ground.cluster.directory
        super().__init__(ground, self._folder / "state" / SITE_SOCKET, "a site")
        words = ("budget", f"{BUDGET_W:g}", "--nodes", ground.cluster.engine, "--out", str(out))
        self.text = out.with_name(f"{out.name}.err")
        with open(self.text, "wb") as said:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-P", "-m", "autocap", *words],
                env={**environ, _MARK: str(out)}, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
                start_new_session=True,
            )  # fmt: skip

    def is_whole(self) -> bool:
        """Whether the site hears all nodes, knows their jobs, and limits are within the budget."""
        now = self.standing()
        return now is not None and not now.failed and len(now.jobs) == NODES and self._ground.is_within(now.budget_w)

    def end(self) -> None:
        with closing(call([self._socket])) as there:
            there.ask(End(), Done)
        self._ground.until(self.has_ended, "the budget ends")

    def node(self, name: str) -> tuple[int, int]:
        """The PIDs of a node's end, and of its manager. Raises Late."""
        pid = self.manager_pid(self._folder / f"state-{name}" / SOCKET, f"the manager of {name}")
        stat = Path(f"/proc/{pid}/stat").read_text()
        return int(stat.rpartition(")")[2].split()[1]), pid

    @property
    def cluster(self) -> Cluster:
        return self._ground.cluster

    def carriers(self) -> list[int]:
        """The PIDs of what carries the lines to the nodes: srun, or the relay."""
        begins, holds = ("srun ", _ENDS) if self.cluster.engine == "slurm" else (sys.executable, _RELAY)
        there = ((one.pid, layout.command(one)) for one in self.everyone())
        return [pid for pid, command in there if command.startswith(begins) and holds in command]

    def on(self, name: str, word: str) -> list[int]:
        """The PIDs of the processes of a node that were started with a word."""
        return [one.pid for one in layout.of_node(self.cluster, name) if word in layout.command(one).split(" ")[0]]

    def everyone(self) -> list[ProcessId]:
        """All that it has started, on whatever node."""
        there = layout.of_cluster(self.cluster) if self.cluster.engine == "ray" else ()
        over_ray = [one for one in there if any(word in layout.command(one) for word in _OVER_RAY)]
        return list({*layout.marked(self._mark), *over_ray})

    def said(self) -> tuple[str, ...]:
        return tuple(self.text.read_text(errors="replace").splitlines())

    def told(self) -> str:
        """The last that it has said."""
        return " / ".join(self.said()[-4:]) or "it has said nothing"

    def entries(self) -> list[str]:
        return [
            name
            for node in self._ground.cluster.names
            for name in sorted(os.listdir(self._folder / f"state-{node}"))
            if not name.startswith("budget.")
        ]

    def abandon(self) -> None:
        """Kill what is left of it."""
        for one in self.everyone():
            layout.send(one, signal.SIGCONT)
            layout.send(one, signal.SIGKILL)
        self.supervisor.wait()


def _board(path: Path, number: int) -> FileBoard:
    made = machine(PROFILES[number], gpus=GPUS, arrivals_mw=ARRIVALS_MW[number])
    path.unlink()
    return FileBoard.create(path, replace(made, sensor="v100", start_s=None))


def _ended(job: "subprocess.Popen[bytes]") -> None:
    job.kill()
    job.wait()


_STOPPED_S = (4.0, 12.0)
_BACK_S, _GONE_S = 30.0, 30.0  # within which all limits are back, and nothing of it is left
_NOBODY_S = 150.0  # the latter, where a site looks for its nodes before


@dataclass(frozen=True, slots=True)
class Kind:
    """act: what is done; whether the budget goes on. ruins: the cluster is of no use any more."""

    act: Act[Held]
    ruins: bool = False


def injected(ground: Ground, out: Path, kind: str, seed: int) -> Outcome:
    """One injection into a budget of its own."""
    rng, result = Random(f"{kind} {seed}"), Outcome(kind=kind, seed=seed)
    held: Held | None = None
    try:
        held = ground.start(out)
        result = _played(ground, held, rng, kinds_of(ground.cluster.engine)[kind], result)
    except (Late, AutocapError) as error:
        result = replace(result, hung=str(error))
    finally:
        if held is not None:
            result = replace(result, said=held.said())
            held.abandon()
    return result


def _played(ground: Ground, held: Held, rng: Random, kind: Kind, result: Outcome) -> Outcome:
    result = played(ground, held, rng, kind.act, result, _BACK_S)
    harmed = None if all(len(board.read().jobs) == 1 for board in ground.boards) else "a job has ended"
    waited(lambda: not held.everyone(), _NOBODY_S if kind.ruins else _GONE_S)
    stays = len(held.everyone())
    return replace(result, harmed=harmed, hung=f"{stays} processes of it are left" if stays else None)


def dropped(ground: Ground, out: Path, held_s: float) -> tuple[float, float, float]:
    """A budget that falls by a quarter: seconds from the word to the last limit lowered, and to the cards' draw below
    it; and for how long it was exceeded afterwards, while it was held for so long. Raises Late."""
    held = ground.start(out)
    try:
        time.sleep(3.0)
        began_s, lowered_s, below_s = lowered(ground, held)
        time.sleep(held_s)
        ended_s = ground.now_s()
        held.end()
        if not ground.are_back():
            raise Late(f"not all is back at the end: {difference(ground.found_mw, ground.limits_mw())}")
        # The boards' own record is finer than looks at them.
        recorded_s = min(lowered_s, ground.above(LESS_W, began_s, began_s + lowered_s))
        return recorded_s, below_s, ground.above(LESS_W, began_s + lowered_s, ended_s)
    finally:
        held.abandon()


# What is done; whether the budget goes on.


def _killed(victims: Callable[[Held, Random], Sequence[int]], *, goes_on: bool = True) -> Act[Held]:
    def act(held: Held, rng: Random) -> bool:
        for pid in victims(held, rng):
            os.kill(pid, signal.SIGKILL)
        return goes_on

    return act


def _stopped(victims: Callable[[Held, Random], Sequence[int]]) -> Act[Held]:
    """For a while."""

    def act(held: Held, rng: Random) -> bool:
        pids = victims(held, rng)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(rng.uniform(*_STOPPED_S))
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        return True

    return act


def _carriers(held: Held, rng: Random) -> Sequence[int]:
    return held.carriers()


def _of_a_node(word: str) -> Callable[[Held, Random], Sequence[int]]:
    return lambda held, rng: held.on(f"node{rng.randint(1, 4)}", word)


def _kill_raylet(held: Held, rng: Random) -> bool:
    """It is started anew, as whoever looks after the cluster would."""
    name = f"node{rng.randint(2, 4)}"
    for pid in held.on(name, "raylet/raylet"):
        os.kill(pid, signal.SIGKILL)
    time.sleep(rng.uniform(0, RANDOM_S))
    ray_nodes.start_node(held.cluster, name)
    return True


def _stop_manager(held: Held, rng: Random) -> bool:
    os.kill(held.node(f"node{rng.randint(1, 4)}")[1], signal.SIGSTOP)
    return True


def _drop_and_kill(held: Held, rng: Random) -> bool:
    victim = rng.choice([held.manager_pid(), held.node(f"node{rng.randint(1, 4)}")[1], *held.carriers()])
    return kill_during_a_drop(held, rng, victim)


def kinds_of(engine: str) -> dict[str, Kind]:
    """By their names, those that there are under an engine."""
    carrier = "srun" if engine == "slurm" else "the relay"
    return _SITE | _lines(carrier) | _NODE | (_RAY if engine == "ray" else {})


_SITE = {
    "SIGKILL to the site": Kind(to_manager(signal.SIGKILL)),
    "SIGSTOP to the site": Kind(to_manager(signal.SIGSTOP)),
    "SIGKILL to its supervisor": Kind(kill_supervisor),
    "SIGKILL to both": Kind(kill_both),
    "SIGTERM, SIGINT or SIGQUIT": Kind(terminate),
}
_NODE = {
    "SIGKILL to a node's end": Kind(_killed(lambda held, rng: [held.node(f"node{rng.randint(1, 4)}")[0]])),
    "SIGKILL to a node's manager": Kind(_killed(lambda held, rng: [held.node(f"node{rng.randint(1, 4)}")[1]])),
    "SIGSTOP to a node's manager": Kind(_stop_manager),
    "a drop, and SIGKILL meanwhile": Kind(_drop_and_kill),
}
_RAY = {
    "SIGKILL to an actor": Kind(_killed(_of_a_node("ray::Actor"))),
    "SIGKILL to a raylet": Kind(_kill_raylet),
    "a raylet stopped for a while": Kind(_stopped(_of_a_node("raylet/raylet"))),
    "SIGKILL to Ray's head": Kind(_killed(lambda held, rng: held.on("node1", "gcs_server"), goes_on=False), ruins=True),
}


def _lines(carrier: str) -> dict[str, Kind]:
    return {
        f"SIGKILL to {carrier}": Kind(_killed(_carriers)),
        f"{carrier} stopped for a while": Kind(_stopped(_carriers)),
    }


def main(argv: Sequence[str]) -> int:
    """Measure and print; 1 where a limit was left changed, the budget exceeded for too long, a job harmed, or something
    hung."""
    parser = argparse.ArgumentParser(prog="python -m bench budget nodes", description=__doc__)
    parser.add_argument("--engine", choices=sorted(ENGINES), default="slurm", help="(default: slurm)")
    parser.add_argument("--drops", type=int, default=3, metavar="N", help="budgets that fall (default: %(default)s)")
    parser.add_argument("--hold", type=float, default=10.0, metavar="S", help="how long it is held then (default: 10)")
    outcome.add_options(parser, 22, separator=";")
    args = parser.parse_args(argv)
    kinds = outcome.chosen(parser, args.kinds, kinds_of(args.engine), ";")
    began_s = time.monotonic()
    drawn = outcome.drawn(kinds, args.injections, args.seed)
    outcomes: list[Outcome] = []
    with ground(args.engine) as place:
        _drops(place, args.drops, args.hold)
        _inject(place, drawn, outcomes)
    while len(outcomes) < len(drawn):
        with ground(args.engine) as place:
            _inject(place, drawn, outcomes)
    return outcome.report(outcomes, began_s, args.json, back=partial(outcome.longest, kinds), said=12)


def _drops(place: Ground, count: int, hold_s: float) -> None:
    drops = [dropped(place, place.cluster.directory / f"drop{number}", hold_s) for number in range(count)]
    if drops:
        lowered_s, below_s, above_s = zip(*drops, strict=True)
        tell_drops(lowered_s, below_s)
        print(f"held for {hold_s:g} s each, {count} times: exceeded for {max(above_s):.2f} s at most", flush=True)


def _inject(place: Ground, drawn: Sequence[tuple[str, int]], outcomes: list[Outcome]) -> None:
    """Those that are not yet among the outcomes, until one ruins the cluster."""
    for kind, seed in drawn[len(outcomes) :]:
        outcomes.append(injected(place, place.cluster.directory / f"run{len(outcomes)}", kind, seed))
        print(f"# {len(outcomes)} of {len(drawn)}: {kind}", file=sys.stderr, flush=True)
        if kinds_of(place.cluster.engine)[kind].ruins:
            return
