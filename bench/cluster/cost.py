"""python -m bench cluster cost: what tuning a job on many nodes takes, and how soon a cap has reached all of them.

Processor time of the controller, of what carries the messages, and of an agent, as shares of one core, once while caps
are searched and once while one is held; what the emulated GPUs take in a process is taken off. Those of each node are
emulated by themselves: in lock step every process would have to play the cards of all.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median

from autocap.job.processes import ProcessId, spent_ticks
from autocap.testing.nvml import FileBoard
from autocap.testing.nvml.install import COST_VARIABLE, emulated_s
from bench.cluster import layout, runs, up
from bench.cluster.deaths import AGENT, RELAY
from bench.cluster.jobs import ahead_s
from bench.cluster.layout import Cluster
from bench.common import Late, until

_PROFILE = "quadro-rtx-6000/alexnet"
_ITERATIONS = 100_000  # more than there is time for: the run is ended
_SEARCHED_S, _HELD_S = 25.0, 30.0  # over which processor time is taken
_LEAST_S = 5.0  # of that, where the run goes on before
_SETTLE_S, _PATIENCE_S, _LOOK_S = 3.0, 240.0, 0.25
_TRIES = 4  # on a machine that does much else a run may end before it holds
_SEARCH_PCT, _HOLD_PCT, _AGENT_PCT, _REACH_MS = 5.0, 1.0, 1.0, 200.0  # what is asked


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """Percent of a core: of the controller, of the carrier's processes outside the nodes, and of the median agent, with
    the carrier's process on its node, and of the busiest. seconds: over which."""

    seconds: float
    controller: float
    carrier: float
    agent: float
    busiest: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """searching, holding: the shares in either. reach_ms: from each decision to set a cap until the last node had it
    requested. spread_ms: from the first node to the last."""

    engine: str
    agents: int
    searching: Shares
    holding: Shares
    reach_ms: tuple[float, ...]
    spread_ms: tuple[float, ...]


def main(argv: Sequence[str]) -> int:
    """Measure and print; 1 where it takes more than is asked."""
    parser = argparse.ArgumentParser(prog="python -m bench cluster cost", description=__doc__)
    parser.add_argument("--agents", type=int, default=16, metavar="N", help="nodes, each with one (default: 16)")
    parser.add_argument("--gpus", type=int, default=1, metavar="N", help="emulated GPUs in each (default: 1)")
    parser.add_argument("--engine", choices=sorted(up.ENGINES), default="slurm", help="(default: slurm)")
    parser.add_argument("--json", type=Path, metavar="OUT", help="write what was measured")
    args = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="acc-") as folder:
        os.environ[COST_VARIABLE] = str(Path(folder, "cost"))  # which the nodes' processes get
        options = argparse.Namespace(
            **vars(args), nodes=args.agents, spread=0.03, helper=False, networks=False, profile=_PROFILE
        )
        cluster = up.cluster_of(options, Path(folder, "c"))
        with up.started(cluster), runs.allocation(cluster) as allocated:
            cost = _tried(cluster, {**allocated, COST_VARIABLE: os.environ[COST_VARIABLE]}, Path(folder))
    if cost is None:
        print(f"none of {_TRIES} runs came as far as to hold a cap, so nothing was measured; try a quieter machine")
        return 1
    print("\n".join(table(cost)))
    if args.json is not None:
        args.json.write_text(json.dumps(asdict(cost), indent=1))
    return int(not _is_cheap(cost))


def _tried(cluster: Cluster, allocated: dict[str, str], folder: Path) -> Cost | None:
    for number in range(_TRIES):
        up.new_boards(cluster, seed=1 + number)
        for board in cluster.boards:
            FileBoard(board).update(lambda state: replace(state, nodes=()))
        try:
            return _measured(cluster, allocated, folder / f"run-{number}")
        except Late as error:
            print(f"run {number + 1} is not counted: {error}", file=sys.stderr)
    return None


def _measured(cluster: Cluster, allocated: dict[str, str], out: Path) -> Cost:
    search = ("--metric", "energy", "--no-memory", "--retune", "never")
    run = runs.on_cluster(cluster, allocated, out, search, ("--iterations", str(_ITERATIONS)))
    shares = []
    try:
        for state, seconds in (("SEARCHING", _SEARCHED_S), ("HOLDING", _HELD_S)):
            until(partial(_is_in, run, state), f"the run is {state}", _PATIENCE_S, _LOOK_S)
            time.sleep(_SETTLE_S)
            shares.append(_shares(cluster, run, state, seconds, Path(allocated[COST_VARIABLE])))
    finally:
        with suppress(ProcessLookupError):
            os.kill(run.process.pid, signal.SIGTERM)
        run.wait(_PATIENCE_S)
    reach_ms, spread_ms = _reached(run, cluster)
    return Cost(
        engine=cluster.engine,
        agents=cluster.nodes,
        searching=shares[0],
        holding=shares[1],
        reach_ms=reach_ms,
        spread_ms=spread_ms,
    )


def _events(run: runs.Started) -> list[dict[str, object]]:
    log = run.out / "events.jsonl"
    text = log.read_text() if log.exists() else ""
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


def _is_in(run: runs.Started, state: str) -> bool:
    if run.process.poll() is not None:
        raise Late(f"the run ended with {run.process.returncode}: {run.told()}")
    states = [event["state"] for event in _events(run) if event["event"] == "state_entered"]
    return states[-1:] == [state]


def _shares(cluster: Cluster, run: runs.Started, state: str, seconds: float, log: Path) -> Shares:
    everyone, inside = run.everyone(), set(layout.of_cluster(cluster))
    agents = [one for one in inside if f" -m {AGENT}" in layout.command(one) and not layout.is_shell(one)]
    outside = [one for one in everyone if one not in inside]
    carriers = [one for one in outside if any(word in layout.command(one) for word in (f"-m {AGENT}", RELAY))]
    carriers = [one for one in carriers if one.pid != run.process.pid]
    controller = [one for one in outside if one.pid == run.process.pid]
    groups = [controller, carriers]
    for name in cluster.names:
        there = layout.of_node(cluster, name)
        actors = [one for one in there if layout.command(one).startswith("ray::Actor")]
        groups += [[agent, *actors] for agent in agents if agent in there]
    before, began_s = [_spent_s(group, log) for group in groups], time.monotonic()
    while _is_in(run, state) and time.monotonic() < began_s + seconds:
        time.sleep(_LOOK_S)
    seconds = time.monotonic() - began_s
    pct = [100 * (_spent_s(group, log) - was) / seconds for group, was in zip(groups, before, strict=True)]
    if seconds < _LEAST_S:
        raise Late(f"the run was {state} for {seconds:.1f} s more: {run.told()}")
    return Shares(seconds=seconds, controller=pct[0], carrier=pct[1], agent=median(pct[2:]), busiest=max(pct[2:]))


def _spent_s(group: Sequence[ProcessId], log: Path) -> float:
    """Processor time so far, without what the emulated library took."""
    spent_s = sum(spent_ticks(one.pid) for one in group) / os.sysconf("SC_CLK_TCK")
    return spent_s - sum(emulated_s(log, one.pid) for one in group)


def _reached(run: runs.Started, cluster: Cluster) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """How long caps took to the last node, and from the first to the last, milliseconds."""
    boards = [FileBoard(place) for place in cluster.boards]
    ahead = ahead_s(run.out, cluster.boards)
    run_s = ahead[len(ahead) // 2] + boards[0].read().origin_s  # the boards' time in that of the run
    requested = [[change.t_s + run_s for change in board.read().changes] for board in boards]
    decided = [float(str(event["t_s"])) for event in _events(run) if event["event"] == "trial_started"]
    reach, spread = [], []
    for decided_s, next_s in zip(decided, [*decided[1:], float("inf")], strict=True):
        firsts = [next((t_s for t_s in times if decided_s <= t_s < next_s), None) for times in requested]
        met = [first for first in firsts if first is not None]
        if len(met) == len(boards):
            reach.append(1000 * (max(met) - decided_s))
            spread.append(1000 * (max(met) - min(met)))
    return tuple(reach), tuple(spread)


def _is_cheap(cost: Cost) -> bool:
    ours = [one.controller + one.carrier for one in (cost.searching, cost.holding)]
    agents = max(cost.searching.agent, cost.holding.agent)
    is_cheap = ours[0] <= _SEARCH_PCT and ours[1] <= _HOLD_PCT and agents <= _AGENT_PCT
    return is_cheap and bool(cost.reach_ms) and median(cost.reach_ms) <= _REACH_MS


def table(cost: Cost) -> Iterator[str]:
    """As Markdown."""
    heads = "controller | carrier | both | an agent | the busiest"
    yield f"| {cost.agents} agents under {cost.engine}, % of a core | over s | {heads} |"
    yield "|---|---|---|---|---|---|---|"
    for name, one in (("searching", cost.searching), ("holding", cost.holding)):
        both = one.controller + one.carrier
        ours = f"{one.controller:.2f} | {one.carrier:.2f} | {both:.2f} | {one.agent:.2f} | {one.busiest:.2f}"
        yield f"| {name} | {one.seconds:.0f} | {ours} |"
    yield ""
    if cost.reach_ms:
        yield (
            f"a cap had reached all nodes {median(cost.reach_ms):.0f} ms (median), {max(cost.reach_ms):.0f} ms (worst "
            f"of {len(cost.reach_ms)}) after it was decided, {median(cost.spread_ms):.0f} ms after the first of them"
        )
