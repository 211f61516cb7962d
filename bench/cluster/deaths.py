"""python -m bench cluster deaths: one part after the other of a tuned job on several nodes dies or stops, at random
moments, and what became of limits, job and processes."""

import argparse
import itertools
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from statistics import median
from threading import Thread

from autocap.job.processes import ProcessId, identify
from autocap.limits.times import LOST_S
from autocap.testing.nvml import FileBoard
from bench.cluster import layout, runs, slurm, up
from bench.cluster.layout import Cluster
from bench.common import LOOK_S, Late, until, waited
from bench.faults import outcome
from bench.faults.outcome import Outcome, difference

AGENT, RELAY = (
    "autocap.plugins.fleet.nodes.agent",
    "autocap.plugins.fleet.nodes.ray_relay",
)  # in the commands of their processes
_BACK_S = 3.0  # in which limits are back on every node that lives
_LOOKED_ON_S = 1.0  # beyond that
_LEFT_S = 10.0  # after which nothing of ours is left
_STOPPED_S = (4.0, 12.0)  # for how long something is stopped
_LATEST_S = 16.0  # of a random moment after the job begins
_CHANGES = 24  # limits that are set on all cards in that time
_ITERATIONS = 280
_STATE_S = 0.05  # between two looks at the state of a job
_SCAN_S = 0.25  # between two looks at all processes
_PATIENCE_S = 60.0
_JOB_S = 180.0
_SEARCH = (
    "--metric", "energy", "--strategy", "linear", "--caps", "130,170,200,230", "--target-stderr", "30%",
    "--trial-seconds", "3", "--no-memory", "--retune", "never",
)  # fmt: skip
_SCRIPT_ITERATIONS = 1500  # of a batch job, which is ended before it has done them
_FREE_S = 3.0  # until nodes are free once the job is over
_TIMES_OUT_S = 150.0  # Slurm looks for jobs that are beyond their limit, of at least a minute, each half minute
_CUT_S = 12.0  # for how long a node has no network
_AWAY_S = 2.0  # of Slurm's controller
_NEVER = ("somebody else has",)  # nobody has
_HIGHEST_MW, _STEP_MW = 257_123, 1_009  # of the limits that are found


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Of an injection. victims: which processes, of the run and one of its nodes. engine: the only one that has it.

    ways: the signals that they may get. tuning_ends: whether it must, as long as something is stopped or for good, and
    then nothing of ours may be left though the job goes on; what stops before anything was measured is waited for.
    resumes: whether tuning may begin again once what was stopped goes on. job_ends: whether the job may; else each rank
    must do all of its iterations. whole_node: while it is stopped nobody can put anything back on that node. ruins: the
    cluster is of no use any more, and what it leaves of the job is its own business. strike: what else is done to it,
    in place of signals. stopped_s: for how long something is stopped. in_batch: it is a batch script, as documented.
    given_up_s: until who is silent is given up, where tuning ends by that at the latest. needs: what the cluster has
    to have. never: what is not to be said.
    """

    victims: "Callable[[Stage, runs.Started, str], Collection[ProcessId]]" = lambda stage, run, name: ()
    engine: str | None = None
    ways: tuple[int, ...] = (signal.SIGKILL, signal.SIGKILL, signal.SIGSTOP)
    tuning_ends: bool = True
    resumes: bool = False
    job_ends: bool = False
    whole_node: bool = False
    ruins: bool = False
    given_up_s: float = 0.0
    strike: "Callable[[Stage, runs.Started, str], object] | None" = None
    stopped_s: tuple[float, float] = _STOPPED_S
    in_batch: bool = False
    needs: str | None = None
    never: tuple[str, ...] = _NEVER


class Stage:
    """A cluster between injections. is_sound: whether another may follow in it."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster, self.is_sound = cluster, True
        self._folder = folder
        self._numbers = itertools.count()
        cards = cluster.nodes * cluster.gpus
        self._arrivals_mw = tuple(_HIGHEST_MW - _STEP_MW * card for card in range(cards))
        self._boards: list[FileBoard] = []
        self._daemons: set[ProcessId] = set()
        self._allocated: dict[str, str] = {}

    def injected(self, name: str, seed: int) -> Outcome:
        """Carry one out, and say what came of it."""
        kind, rng, result = KINDS[name], Random(f"{name} {seed}"), Outcome(kind=name, seed=seed)
        self._boards = up.new_boards(self.cluster, seed=seed + 1, arrivals_mw=self._arrivals_mw)
        self._daemons = set(layout.of_cluster(self.cluster))
        out = self._folder / f"run-{next(self._numbers)}"
        with ExitStack() as over:
            if kind.in_batch:
                count = ("--iterations", str(_SCRIPT_ITERATIONS))
                run, number = runs.in_batch(self.cluster, out, _SEARCH, count)
                self._allocated = up.environment(self.cluster) | {"SLURM_JOB_ID": number}
                over.callback(self.ask, "scancel", number)
            else:
                self._allocated = over.enter_context(runs.allocation(self.cluster))
                count = ("--iterations", str(_ITERATIONS))
                run = runs.on_cluster(self.cluster, self._allocated, out, _SEARCH, count)
            over.callback(self._clear, run)
            try:
                result = self._carried_out(kind, run, rng, result)
            except Late as error:
                result = replace(result, hung=str(error))
        result = replace(result, said=run.said(), silent=_untrue(kind, run.said()))
        # A helper that goes on has seen the cards of the boards before.
        self.is_sound = not (result.complaints or kind.ruins or self.cluster.helper)
        return result

    def on(self, run: runs.Started, name: str, word: str) -> list[ProcessId]:
        """Those of a run on a node whose command holds a word."""
        there = set(layout.of_node(self.cluster, name))
        return [one for one in self._of(run) if one in there and word in layout.command(one)]

    def _carried_out(self, kind: Kind, run: runs.Started, rng: Random, result: Outcome) -> Outcome:
        self._moment(run, rng)
        name, way = rng.choice(self.cluster.names), rng.choice(kind.ways)
        victims = list(kind.victims(self, run, name))
        if not victims and kind.strike is None:
            raise Late(f"nothing was found on {name} to strike")
        living = [one for one in self.cluster.names if one != name or not kind.whole_node]
        away = not self._are_back(living)
        goes_on = way == signal.SIGSTOP and (kind.resumes or not run.has_begun())
        if kind.strike is not None:
            kind.strike(self, run, name)
        for victim in victims:
            layout.send(victim, way)
        began_s, free = time.monotonic(), Future[str | None]()
        Thread(target=lambda: free.set_result(self._held() if kind.in_batch else None)).start()
        changed, back_s = self._put_back(living) if kind.tuning_ends and (kind.resumes or not goes_on) else (None, None)
        if way == signal.SIGSTOP:
            time.sleep(max(0.0, rng.uniform(*kind.stopped_s) - (time.monotonic() - began_s)))
            for victim in victims:
                layout.send(victim, signal.SIGCONT)
            changed = changed or (self._put_back([name])[0] if kind.whole_node and not goes_on else None)
        if kind.needs == "networks":
            hung = self._left(run, began_s, (f"-m {AGENT}", _WATCHDOG), name)
            time.sleep(max(0.0, _CUT_S - (time.monotonic() - began_s)))
            slurm.join(self.cluster, name)
            changed = changed or hung
        self._recover(name)
        hung = None
        if kind.tuning_ends and not goes_on:
            changed = changed or self._put_back(self.cluster.names)[0]
            hung = self._left(run, time.monotonic() + kind.given_up_s, _OURS)
        harmed = self._ended(kind, run)
        hung = hung or self._left(run, time.monotonic(), _OURS if kind.ruins else ())
        hung = hung or free.result()
        if kind.in_batch and not run.has_result():
            harmed = harmed or "there is no result.json"
        changed = changed or self._put_back(self.cluster.names)[0]
        return replace(result, changed=changed, harmed=harmed, hung=hung, back_s=back_s if away else None)

    def _moment(self, run: runs.Started, rng: Random) -> None:
        """A random one after the job began; or right after a limit was set, also in the middle of the next."""
        until(
            lambda: self._boards[0].whole()[0].start_s is not None or run.process.poll() is not None,
            "the job begins",
            _PATIENCE_S,
        )
        if rng.random() < 0.3:
            time.sleep(rng.uniform(0.0, _LATEST_S))
        else:
            count = rng.randint(1, _CHANGES)
            until(
                lambda: (
                    sum(len(board.read().changes) for board in self._boards) >= count or run.process.poll() is not None
                ),
                f"limit {count} is set",
                _PATIENCE_S,
            )
            time.sleep(rng.uniform(0.0, 0.5))
        if run.process.poll() is not None:
            raise Late(f"the run ended with {run.process.returncode} before the injection: {run.told()}")

    def _limits_mw(self, name: str) -> tuple[int, ...]:
        board = self._boards[self.cluster.names.index(name)]
        return tuple(board.requested_mw(gpu) for gpu in range(self.cluster.gpus))

    def _found_mw(self, name: str) -> tuple[int, ...]:
        first = self.cluster.gpus * self.cluster.names.index(name)
        return self._arrivals_mw[first : first + self.cluster.gpus]

    def _are_back(self, names: Collection[str]) -> bool:
        return all(self._limits_mw(name) == self._found_mw(name) for name in names)

    def _put_back(self, names: Collection[str]) -> tuple[str | None, float]:
        """What is wrong with how the limits of some nodes are from now on, and for how many seconds one was away. Also
        where all are as they were found it is looked on: what was asked for before may be under way."""
        began_s = time.monotonic()
        away_s, last = 0.0, None
        while (passed_s := time.monotonic() - began_s) < _BACK_S + _LOOKED_ON_S:
            for name in names:
                if wrong := difference(self._found_mw(name), self._limits_mw(name)):
                    away_s, last = passed_s, f"{name}: {wrong} after {passed_s:.2f} s"
            time.sleep(LOOK_S)
        return (last if away_s > _BACK_S else None), away_s

    def _ended(self, kind: Kind, run: runs.Started) -> str | None:
        """What harmed the job."""
        until(lambda: not self._job(run), "the job ends", _JOB_S, _SCAN_S)
        counts = [rank.steps for rank in run.ranks()]
        if kind.job_ends or counts == [_ITERATIONS] * self.cluster.nodes:
            return None
        return f"its ranks counted {counts} of {_ITERATIONS}: {run.told()}"

    def _job(self, run: runs.Started) -> list[ProcessId]:
        return [one for one in self._of(run) if _JOB in layout.command(one) and one.pid != run.process.pid]

    def _left(self, run: runs.Started, since_s: float, words: Collection[str], name: str | None = None) -> str | None:
        """What of a run is still there 10 s after a moment, on one node where that is named: all, or what has one of
        these words in its command."""

        def left() -> list[str]:
            run.process.poll()  # a zombie is gone
            there = self._of(run)
            if name is not None:
                there = [one for one in layout.of_node(self.cluster, name) if one in there]
            commands = [layout.command(one) for one in there]
            commands = [text for text in commands if name is None or not text.startswith("srun ")]
            return [text for text in commands if not words or any(word in text for word in words)]

        if waited(lambda: not left(), max(0.0, since_s + _LEFT_S - time.monotonic()), _SCAN_S) is not None:
            return None
        where = "still" if name is None else f"on {name}"
        return f"{_LEFT_S:g} s later there is {where} {'; '.join(text[:120] for text in left())}"

    def _of(self, run: runs.Started) -> list[ProcessId]:
        """Its processes, and what Slurm has on the nodes for them."""
        there = layout.of_cluster(self.cluster)
        every = {one: layout.command(one) for one in {*run.everyone(), *there} if one not in self._daemons}
        return [one for one, text in every.items() if not any(word in text for word in _SERVICES)]

    def daemons(self, name: str) -> list[ProcessId]:
        """Those of the engine on a node."""
        return [one for one in self._daemons if one in layout.of_node(self.cluster, name)]

    def ask(self, *command: str) -> str:
        """As the user would."""
        env = {**os.environ, **self._allocated}
        return subprocess.run(self.cluster.as_user(command), env=env, capture_output=True, text=True).stdout

    @property
    def number(self) -> str:
        """Of the job."""
        return self._allocated["SLURM_JOB_ID"]

    def _held(self) -> str | None:
        """Whether nodes are held for the job, though it is over."""
        if waited(lambda: set(self.ask("sinfo", "-hN", "-o", "%t").split()) == {"idle"}, _FREE_S, _SCAN_S) is not None:
            return None
        return f"{_FREE_S:g} s later nodes are {self.ask('sinfo', '-hN', '-o', '%N %t')}"

    def _recover(self, name: str) -> None:
        """Slurm's daemon of a node is started anew where it has died, as its service would."""
        if self.cluster.engine == "slurm" and not self.daemons(name):
            slurm.start_node(self.cluster, name)

    def _clear(self, run: runs.Started) -> None:
        """Leave nothing to the next one."""
        for one in self._of(run):
            layout.send(one, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            run.process.wait(_PATIENCE_S)


_JOB, _WATCHDOG = "bench.cluster.", "autocap.limits.watchdog"
_SERVICES = (" -N ", "slurmctld -D", "helper serve", "autocap.limits.fork_server")
_OURS = (AGENT, RELAY, _WATCHDOG, "ray::Actor")  # gone once the tuning has ended, though the job goes on


def _agent(stage: Stage, run: runs.Started, name: str) -> list[ProcessId]:
    return [one for one in stage.on(run, name, f"-m {AGENT}") if not layout.is_shell(one)]


def _carrier(stage: Stage, run: runs.Started, name: str) -> list[ProcessId]:
    """What carries the messages: srun, both of its processes, or the relay."""
    there = {one for node in stage.cluster.names for one in layout.of_node(stage.cluster, node)}
    words = ("srun", AGENT) if stage.cluster.engine == "slurm" else (RELAY,)
    return [one for one in run.everyone() if one not in there and all(word in layout.command(one) for word in words)]


def _controller(stage: Stage, run: runs.Started, name: str) -> list[ProcessId]:
    identity = identify(run.process.pid)
    return [] if identity is None else [identity]


def _daemon_named(word: str) -> "Callable[[Stage, runs.Started, str], list[ProcessId]]":
    def daemon(stage: Stage, run: runs.Started, name: str) -> list[ProcessId]:
        there = stage.daemons(name)
        return [one for one in there if word in layout.command(one).split(" ")[0]]

    return daemon


def _kill_step(stage: Stage, run: runs.Started, name: str) -> None:
    """The step of the agents, as a whole: agents and watchdogs on all nodes at once."""
    for line in stage.ask("squeue", "--steps", "-h", "-o", "%i %j", f"--jobs={stage.number}").splitlines():
        step, program = line.split(None, 1)
        if program == "sh":
            stage.ask("scancel", "--signal=KILL", step)


def _restart_controller(stage: Stage, run: runs.Started, name: str) -> None:
    for one in layout.of_cluster(stage.cluster):
        if layout.command(one).endswith("slurmctld -D"):
            layout.send(one, signal.SIGKILL)
    time.sleep(_AWAY_S)
    slurm.start_controller(stage.cluster)


def _time_out(stage: Stage, run: runs.Started, name: str) -> None:
    """Returns once Slurm has begun to end it."""
    subprocess.run(
        ["scontrol", "update", f"JobId={stage.number}", "TimeLimit=1"], env=up.environment(stage.cluster), check=True
    )
    states = ("squeue", "-h", "-o", "%T", f"--jobs={stage.number}")
    until(lambda: "RUNNING" not in stage.ask(*states), "the time limit", _TIMES_OUT_S, _STATE_S)


def _untrue(kind: Kind, said: Sequence[str]) -> str | None:
    """What was said and is not so."""
    wrong = [text for text in said if any(words in text for words in kind.never)]
    return f"it is not true that: {wrong[0]}" if wrong else None


_KILLED, _STOPPED = (signal.SIGKILL,), (signal.SIGSTOP,)
_TUNES_ON = (*_NEVER, "tuning ended")
_SCRIPT = Kind(
    strike=lambda stage, run, name: stage.ask("scancel", stage.number),
    engine="slurm",
    ways=_KILLED,
    job_ends=True,
    in_batch=True,
    never=(*_NEVER, "a signal has ended its agent", "has not answered"),
)
KINDS = {
    "agent": Kind(victims=_agent, resumes=True),
    "controller": Kind(victims=_controller, resumes=True),
    "relay": Kind(victims=_carrier, resumes=True),
    "node": Kind(
        victims=lambda stage, run, name: layout.of_node(stage.cluster, name),
        ways=_STOPPED,
        whole_node=True,
        resumes=True,
    ),
    "scancel": replace(_SCRIPT, in_batch=False, never=_NEVER),
    "end": Kind(  # the job's rank on one node
        victims=lambda stage, run, name: stage.on(
            run, name, "bench.cluster.job" if stage.cluster.engine == "slurm" else "ray::Rank"
        ),
        ways=_KILLED,
        job_ends=True,
    ),
    "slurmd": Kind(victims=_daemon_named("slurmd"), engine="slurm", tuning_ends=False),
    "hiccup": Kind(
        victims=_agent, engine="slurm", ways=_STOPPED, stopped_s=(2.8, 2.8), tuning_ends=False, never=_TUNES_ON
    ),
    "helper": Kind(  # which is started again at once
        victims=lambda stage, run, name: [
            one for one in layout.of_node(stage.cluster, name) if "helper serve" in layout.command(one)
        ],
        engine="slurm",
        ways=_KILLED,
        tuning_ends=False,
        needs="helper",
        never=_TUNES_ON,
    ),
    "step": Kind(strike=_kill_step, engine="slurm", ways=_KILLED),
    "network": Kind(
        strike=lambda stage, run, name: slurm.cut(stage.cluster, name),
        engine="slurm",
        ways=_KILLED,
        needs="networks",
        given_up_s=LOST_S,
    ),
    "slurmctld": Kind(strike=_restart_controller, engine="slurm", ways=_KILLED, tuning_ends=False, never=_TUNES_ON),
    "script": _SCRIPT,
    "timelimit": replace(_SCRIPT, strike=_time_out),
    "requeue": replace(_SCRIPT, strike=lambda stage, run, name: stage.ask("scontrol", "requeue", stage.number)),
    "raylet": Kind(victims=_daemon_named("raylet"), engine="ray", job_ends=True, ruins=True),
    "head": Kind(  # which is on the first node, whatever other was drawn
        victims=lambda stage, run, name: _daemon_named("gcs_server")(stage, run, stage.cluster.names[0]),
        engine="ray",
        job_ends=True,
        ruins=True,
    ),
}

_INJECTIONS = 100
_AT_ONCE = 3  # clusters
_PROFILE = "quadro-rtx-6000/alexnet"


def main(argv: Sequence[str]) -> int:
    """Inject and print; 1 where a limit was left changed, a job harmed, or something hung or stayed."""
    parser = argparse.ArgumentParser(prog="python -m bench cluster deaths", description=__doc__)
    up.add_options(parser)
    parser.set_defaults(profile=_PROFILE)
    outcome.add_options(parser, _INJECTIONS, "of each kind")
    parser.add_argument("--at-once", type=int, default=_AT_ONCE, metavar="N", help="clusters (default: %(default)s)")
    args = parser.parse_args(argv)
    there = [
        name
        for name, kind in KINDS.items()
        if kind.engine in (None, args.engine) and (kind.needs is None or getattr(args, kind.needs))
    ]
    kinds = outcome.chosen(parser, args.kinds, there)
    drawn = outcome.drawn(kinds, args.injections * len(kinds), args.seed)
    began_s = time.monotonic()
    with ThreadPoolExecutor(args.at_once) as threads:
        shares = [drawn[first :: args.at_once] for first in range(args.at_once)]
        outcomes = [one for some in threads.map(lambda share: _several(args, share), shares) for one in some]
    return outcome.report(outcomes, began_s, args.json, back=_backs, said=6)


def _backs(backs_s: dict[str, list[float]]) -> Iterator[str]:
    for name, took_s in sorted(backs_s.items()):
        times = f"{median(took_s):.2f} s (median), {max(took_s):.2f} s (worst of {len(took_s)})"
        yield f"{name}: limits that were away were back on all living nodes after {times}"


def _several(args: argparse.Namespace, drawn: Sequence[tuple[str, int]]) -> list[Outcome]:
    """Injections one after the other into a cluster, or into a new one where it was left in no good state."""
    outcomes: list[Outcome] = []
    rest = list(drawn)
    while rest:
        with tempfile.TemporaryDirectory(prefix="acd-") as folder:
            Path(folder).chmod(0o777 if args.helper else 0o700)
            cluster = up.cluster_of(args, Path(folder, "c"))
            with up.started(cluster):
                stage = Stage(cluster, Path(folder))
                while rest and stage.is_sound:
                    outcomes.append(one := stage.injected(*rest.pop(0)))
                    print(f"{one.kind}, seed {one.seed}: {'; '.join(one.complaints) or 'fine'}", file=sys.stderr)
    return outcomes
