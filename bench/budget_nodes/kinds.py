"""What is done to a budget over several nodes, and what must have come of it."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from autocap.errors import AutocapError
from bench.budget_faults.kinds import (
    RANDOM_S,
    Act,
    kill_both,
    kill_during_a_drop,
    kill_supervisor,
    lowered,
    played,
    terminate,
    to_manager,
)
from bench.budget_nodes.scene import LESS_W, Ground, Held
from bench.cluster import ray_nodes
from bench.faults.outcome import Outcome, difference
from bench.waiting import Late, waited

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
