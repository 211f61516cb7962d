"""What is done to a budget over several nodes, and what must have come of it."""

import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from autocap.errors import AutocapError
from bench.budget_nodes.scene import ARRIVALS_MW, BUDGET_W, LESS_W, Ground, Held
from bench.cluster import ray_nodes
from bench.cluster.runs import Late
from bench.faults.outcome import Outcome, difference

LEASE_S = 3.0
_RANDOM_S, _SETTLES_S = 3.0, 4.0  # a random moment; after a fault, before the budget is ended
_STOPPED_S = (4.0, 12.0)
_BACK_S, _GONE_S = 30.0, 30.0  # within which all limits are back, and nothing of it is left
_NOBODY_S = 150.0  # the latter, where a site looks for its nodes before
FOUND_MW = tuple(mw for found in ARRIVALS_MW for mw in found)


@dataclass(frozen=True, slots=True)
class Kind:
    """act: what is done; whether the budget goes on. ruins: the cluster is of no use any more."""

    act: "Callable[[Held, Random], bool]"
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
    begun_s = ground.now_s()
    time.sleep(rng.uniform(0, _RANDOM_S))
    goes_on = kind.act(held, rng)
    changed = None
    if goes_on:
        time.sleep(_SETTLES_S)
        ground.until(held.is_whole, "the site hears all nodes again")
        ended_s = ground.now_s()
        held.end()
        above_s = ground.above(BUDGET_W, begun_s, ended_s)
        changed = f"above the budget for {above_s:.2f} s" if above_s > LEASE_S else None
        result = replace(result, back_s=above_s)
    began_s = time.monotonic()
    with suppress(Late):
        ground.until(lambda: ground.limits_mw() == FOUND_MW and not held.entries(), "all is back", _BACK_S)
    if not goes_on:
        result = replace(result, back_s=time.monotonic() - began_s)
    changed = changed or difference(FOUND_MW, ground.limits_mw())
    left = held.entries()
    changed = changed or (f"{', '.join(left)} lies in a state directory" if left else None)
    harmed = None if all(len(board.read().jobs) == 1 for board in ground.boards) else "a job has ended"
    with suppress(Late):
        ground.until(lambda: not held.everyone(), "nothing of it is left", _NOBODY_S if kind.ruins else _GONE_S)
    stays = len(held.everyone())
    hung = f"{stays} processes of it are left" if stays else None
    return replace(result, changed=changed, harmed=harmed, hung=hung)


def dropped(ground: Ground, out: Path, held_s: float) -> tuple[float, float, float]:
    """A budget that falls by a quarter: seconds from the word to the last limit lowered, and to the cards' draw below
    it; and for how long it was exceeded afterwards, while it was held for so long. Raises Late."""
    held = ground.start(out)
    try:
        time.sleep(3.0)
        began_s = held.tell(LESS_W)
        ground.until(lambda: ground.is_within(LESS_W), "all limits are lowered")
        lowered_s = ground.now_s() - began_s
        ground.until(lambda: ground.power_w() <= LESS_W, "the cards draw less")
        below_s = ground.now_s() - began_s
        time.sleep(held_s)
        ended_s = ground.now_s()
        held.end()
        if ground.limits_mw() != FOUND_MW:
            raise Late(f"not all is back at the end: {difference(FOUND_MW, ground.limits_mw())}")
        return _lowered_s(ground, began_s, lowered_s), below_s, ground.above(LESS_W, began_s + lowered_s, ended_s)
    finally:
        held.abandon()


def _lowered_s(ground: Ground, began_s: float, seen_s: float) -> float:
    """By the boards' own record, which is finer than looks at them."""
    return min(seen_s, ground.above(LESS_W, began_s, began_s + seen_s))


# What is done; whether the budget goes on.


def _kill_site(held: Held, rng: Random) -> bool:
    os.kill(held.site(), signal.SIGKILL)
    return True


def _stop_site(held: Held, rng: Random) -> bool:
    os.kill(held.site(), signal.SIGSTOP)
    return True


def _kill_supervisor(held: Held, rng: Random) -> bool:
    held.supervisor.kill()
    return False


def _kill_both(held: Held, rng: Random) -> bool:
    pids = [held.supervisor.pid, held.site()]
    rng.shuffle(pids)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    return False


def _terminate(held: Held, rng: Random) -> bool:
    os.kill(held.supervisor.pid, rng.choice([signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]))
    return False


def _kill_carrier(held: Held, rng: Random) -> bool:
    for pid in held.carriers():
        os.kill(pid, signal.SIGKILL)
    return True


def _stop_carrier(held: Held, rng: Random) -> bool:
    return _stopped(held.carriers(), rng)


def _stopped(pids: Sequence[int], rng: Random) -> bool:
    """For a while."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    time.sleep(rng.uniform(*_STOPPED_S))
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)
    return True


def _kill_actor(held: Held, rng: Random) -> bool:
    for pid in held.on(f"node{rng.randint(1, 4)}", "ray::Actor"):
        os.kill(pid, signal.SIGKILL)
    return True


def _kill_raylet(held: Held, rng: Random) -> bool:
    """It is started anew, as whoever looks after the cluster would."""
    name = f"node{rng.randint(2, 4)}"
    for pid in held.on(name, "raylet/raylet"):
        os.kill(pid, signal.SIGKILL)
    time.sleep(rng.uniform(0, _RANDOM_S))
    ray_nodes.start_node(held.cluster, name)
    return True


def _stop_raylet(held: Held, rng: Random) -> bool:
    return _stopped(held.on(f"node{rng.randint(1, 4)}", "raylet/raylet"), rng)


def _kill_head(held: Held, rng: Random) -> bool:
    for pid in held.on("node1", "gcs_server"):
        os.kill(pid, signal.SIGKILL)
    return False


def _kill_end(held: Held, rng: Random) -> bool:
    os.kill(held.node(f"node{rng.randint(1, 4)}")[0], signal.SIGKILL)
    return True


def _kill_manager(held: Held, rng: Random) -> bool:
    os.kill(held.node(f"node{rng.randint(1, 4)}")[1], signal.SIGKILL)
    return True


def _stop_manager(held: Held, rng: Random) -> bool:
    os.kill(held.node(f"node{rng.randint(1, 4)}")[1], signal.SIGSTOP)
    return True


def _drop_and_kill(held: Held, rng: Random) -> bool:
    victim = rng.choice([held.site(), held.node(f"node{rng.randint(1, 4)}")[1], *held.carriers()])
    with ThreadPoolExecutor(1) as beside:
        word = beside.submit(held.tell, LESS_W)
        time.sleep(rng.uniform(0, 0.5))
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
        with suppress(AutocapError):  # the word may have come too late
            word.result()
    return True


def kinds_of(engine: str) -> dict[str, Kind]:
    """By their names, those that there are under an engine."""
    carrier = "srun" if engine == "slurm" else "the relay"
    return _SITE | _lines(carrier) | _NODE | (_RAY if engine == "ray" else {})


_SITE = {
    "SIGKILL to the site": Kind(_kill_site),
    "SIGSTOP to the site": Kind(_stop_site),
    "SIGKILL to its supervisor": Kind(_kill_supervisor),
    "SIGKILL to both": Kind(_kill_both),
    "SIGTERM, SIGINT or SIGQUIT": Kind(_terminate),
}
_NODE = {
    "SIGKILL to a node's end": Kind(_kill_end),
    "SIGKILL to a node's manager": Kind(_kill_manager),
    "SIGSTOP to a node's manager": Kind(_stop_manager),
    "a drop, and SIGKILL meanwhile": Kind(_drop_and_kill),
}
_RAY = {
    "SIGKILL to an actor": Kind(_kill_actor),
    "SIGKILL to a raylet": Kind(_kill_raylet),
    "a raylet stopped for a while": Kind(_stop_raylet),
    "SIGKILL to Ray's head": Kind(_kill_head, ruins=True),
}


def _lines(carrier: str) -> dict[str, Kind]:
    return {
        f"SIGKILL to {carrier}": Kind(_kill_carrier),
        f"{carrier} stopped for a while": Kind(_stop_carrier),
    }
