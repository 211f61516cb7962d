"""What is done to a budget that runs, and what must have come of it."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Protocol, TypeVar

from autocap.errors import AutocapError
from bench.budget_faults.scene import BUDGET_W, LESS_W, Floor
from bench.faults.aftermath import send
from bench.faults.boards import Boards
from bench.faults.outcome import Outcome, difference
from bench.waiting import Late, waited

LEASE_S = 3.0
_SETTLES_S = 4.0  # after a fault, before the budget is ended
RANDOM_S = 3.0  # a random moment


class Budget(Protocol):
    """One that runs, on one machine or several."""

    @property
    def supervisor(self) -> "subprocess.Popen[bytes] | None": ...

    def manager_pid(self) -> int: ...

    def tell(self, watts: float) -> float: ...

    def is_whole(self) -> bool: ...

    def entries(self) -> list[str]: ...

    def end(self) -> None: ...


B = TypeVar("B", bound=Budget)
Act = Callable[[B, Random], bool]  # what is done; whether the budget goes on


def injected(kind: str, seed: int) -> Outcome:
    """One injection into a budget of its own."""
    rng, result, act = Random(f"{kind} {seed}"), Outcome(kind=kind, seed=seed), KINDS[kind]
    with TemporaryDirectory() as folder, Floor(Path(folder) / "floor") as floor:
        try:
            floor.start_jobs(3)
            floor.start_budget(BUDGET_W)
            if act in WITH_TUNER:
                floor.start_tuner(3)
            return replace(played(floor, floor, rng, act, result), harmed=floor.harmed(), said=floor.said())
        except Late as error:
            return replace(result, hung=str(error), said=floor.said())


def played(boards: Boards, budget: B, rng: Random, act: Act[B], result: Outcome, within_s: float = 10.0) -> Outcome:
    """Do it at a random moment, and see whether the budget is kept, and whether all is back within so long after its
    end. Raises Late."""
    begun_s = boards.now_s()
    time.sleep(rng.uniform(0, RANDOM_S))
    goes_on = act(budget, rng)
    changed = None
    if goes_on:
        time.sleep(_SETTLES_S)
        boards.until(budget.is_whole, "it is whole again")
        ended_s = boards.now_s()
        budget.end()
        above_s = boards.above(BUDGET_W, begun_s, ended_s)
        changed = f"above the budget for {above_s:.2f} s" if above_s > LEASE_S else None
        result = replace(result, back_s=above_s)
    began_s = time.monotonic()
    waited(lambda: boards.are_back() and not budget.entries(), within_s)
    if not goes_on:
        result = replace(result, back_s=time.monotonic() - began_s)
    left = budget.entries()
    changed = changed or difference(boards.found_mw, boards.limits_mw())
    return replace(result, changed=changed or (f"{', '.join(left)} lies in a state directory" if left else None))


def to_manager(signum: signal.Signals) -> Act[Budget]:
    """A signal to whoever manages the budget, who is replaced."""

    def act(budget: Budget, rng: Random) -> bool:
        os.kill(budget.manager_pid(), signum)
        return True

    return act


def kill_supervisor(budget: Budget, rng: Random) -> bool:
    assert budget.supervisor is not None
    budget.supervisor.kill()
    return False


def kill_both(budget: Budget, rng: Random) -> bool:
    assert budget.supervisor is not None
    pids = [budget.supervisor.pid, budget.manager_pid()]
    rng.shuffle(pids)
    for pid in pids:
        send(pid, signal.SIGKILL)
    return False


def terminate(budget: Budget, rng: Random) -> bool:
    assert budget.supervisor is not None
    os.kill(budget.supervisor.pid, rng.choice([signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]))
    return False


def kill_during_a_drop(budget: Budget, rng: Random, pid: int) -> bool:
    """pid: who is killed."""
    with ThreadPoolExecutor(1) as beside:
        word = beside.submit(budget.tell, LESS_W)
        time.sleep(rng.uniform(0, 0.5))
        send(pid, signal.SIGKILL)
        with suppress(AutocapError):  # the word may have come too late
            word.result()
    return True


def _kill_tuner(floor: Floor, rng: Random) -> bool:
    assert floor.tuner is not None
    floor.tuner.kill()
    return True


def _stop_tuner(floor: Floor, rng: Random) -> bool:
    assert floor.tuner is not None
    os.kill(floor.tuner.pid, signal.SIGSTOP)
    time.sleep(rng.uniform(0.5, 4.0))
    os.kill(floor.tuner.pid, signal.SIGCONT)
    return True


def _kill_job(floor: Floor, rng: Random) -> bool:
    player = floor.players.pop(rng.randrange(len(floor.players)))
    player.kill()
    player.wait()
    return True


def _drop(floor: Floor, rng: Random) -> bool:
    floor.tell(LESS_W)
    return True


KINDS: dict[str, Act[Floor]] = {
    "SIGKILL to the manager": to_manager(signal.SIGKILL),
    "SIGSTOP to the manager": to_manager(signal.SIGSTOP),
    "SIGKILL to the supervisor": kill_supervisor,
    "SIGKILL to both": kill_both,
    "SIGTERM, SIGINT or SIGQUIT": terminate,
    "SIGKILL to a tuner": _kill_tuner,
    "a tuner stopped for a while": _stop_tuner,
    "a job is killed": _kill_job,
    "the budget falls": _drop,
    "SIGKILL while the budget falls": lambda floor, rng: kill_during_a_drop(floor, rng, floor.manager_pid()),
}
WITH_TUNER = (_kill_tuner, _stop_tuner)


def dropped(seed: int) -> tuple[float, float]:
    """Four jobs on eight cards, and a budget that falls by a quarter: seconds from the word to the last limit lowered,
    and to the cards' draw below it."""
    with TemporaryDirectory() as folder, Floor(Path(folder) / "floor") as floor:
        floor.start_jobs()
        floor.start_budget(BUDGET_W)
        floor.until(lambda: floor.joined() == len(floor.jobs), "all have joined")
        time.sleep(3.0 + seed % 3)
        return lowered(floor, floor)[1:]


def lowered(boards: Boards, budget: Budget) -> tuple[float, float, float]:
    """Have a budget fall by a quarter: when that was said, and the seconds from then to the last limit lowered, and to
    the cards' draw below it. Raises Late."""
    began_s = budget.tell(LESS_W)
    boards.until(lambda: boards.is_within(LESS_W), "all limits are lowered")
    lowered_s = boards.now_s() - began_s
    boards.until(lambda: boards.power_w() <= LESS_W, "the cards draw less")
    return began_s, lowered_s, boards.now_s() - began_s
