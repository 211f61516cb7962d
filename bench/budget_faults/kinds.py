"""What is done to a budget that runs, and what must have come of it."""

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from autocap.errors import AutocapError
from bench.budget_faults.scene import ARRIVALS_MW, BUDGET_W, LESS_W, Floor
from bench.faults.outcome import Outcome, difference
from bench.faults.processes import Late

LEASE_S = 3.0
_SETTLES_S = 4.0  # after a fault, before the budget is ended
_RANDOM_S = 3.0  # a random moment


def injected(kind: str, seed: int) -> Outcome:
    """One injection into a budget of its own."""
    rng, result = Random(f"{kind} {seed}"), Outcome(kind=kind, seed=seed)
    with TemporaryDirectory() as folder, Floor(Path(folder) / "floor") as floor:
        try:
            return replace(_played(floor, rng, KINDS[kind], result), said=floor.said())
        except Late as error:
            return replace(result, hung=str(error), said=floor.said())


def _played(floor: Floor, rng: Random, act: Callable[[Floor, Random], bool], result: Outcome) -> Outcome:
    floor.start_jobs(3)
    floor.start_budget(BUDGET_W)
    if act in WITH_TUNER:
        floor.start_tuner(3)
    begun_s = floor.now_s()
    time.sleep(rng.uniform(0, _RANDOM_S))
    goes_on = act(floor, rng)
    changed = None
    if goes_on:
        time.sleep(_SETTLES_S)
        floor.until(lambda: floor.standing() is not None, "a manager answers")
        ended_s = floor.now_s()
        floor.end()
        above_s = floor.above(BUDGET_W, begun_s, ended_s)
        changed = f"above the budget for {above_s:.2f} s" if above_s > LEASE_S else None
        result = replace(result, back_s=above_s)
    began_s = time.monotonic()
    with suppress(Late):
        floor.until(lambda: floor.are_back() and not _of_devices(floor), "all is back", 10.0)
    if not goes_on:
        result = replace(result, back_s=time.monotonic() - began_s)
    left = _of_devices(floor)
    changed = changed or difference(ARRIVALS_MW, floor.limits_mw())
    changed = changed or (f"{', '.join(left)} lies in the state directory" if left else None)
    return replace(result, changed=changed, harmed=floor.harmed())


def _of_devices(floor: Floor) -> list[str]:
    """Entries and locks; what a manager and its supervisor that were killed have left beside is taken by the next."""
    return [name for name in floor.leftovers() if not name.startswith("budget.")]


# What is done; whether the budget goes on.


def _kill_manager(floor: Floor, rng: Random) -> bool:
    os.kill(floor.manager_pid(), signal.SIGKILL)
    return True


def _stop_manager(floor: Floor, rng: Random) -> bool:
    os.kill(floor.manager_pid(), signal.SIGSTOP)
    return True


def _kill_supervisor(floor: Floor, rng: Random) -> bool:
    assert floor.supervisor is not None
    floor.supervisor.kill()
    return False


def _kill_both(floor: Floor, rng: Random) -> bool:
    assert floor.supervisor is not None
    pids = [floor.supervisor.pid, floor.manager_pid()]
    rng.shuffle(pids)
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return False


def _terminate(floor: Floor, rng: Random) -> bool:
    assert floor.supervisor is not None
    os.kill(floor.supervisor.pid, rng.choice([signal.SIGTERM, signal.SIGINT, signal.SIGQUIT]))
    return False


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


def _kill_during_a_drop(floor: Floor, rng: Random) -> bool:
    pid = floor.manager_pid()
    with ThreadPoolExecutor(1) as beside:
        word = beside.submit(floor.tell, LESS_W)
        time.sleep(rng.uniform(0, 0.5))
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        with suppress(AutocapError):  # the word may have come too late
            word.result()
    return True


KINDS: dict[str, Callable[[Floor, Random], bool]] = {
    "SIGKILL to the manager": _kill_manager,
    "SIGSTOP to the manager": _stop_manager,
    "SIGKILL to the supervisor": _kill_supervisor,
    "SIGKILL to both": _kill_both,
    "SIGTERM, SIGINT or SIGQUIT": _terminate,
    "SIGKILL to a tuner": _kill_tuner,
    "a tuner stopped for a while": _stop_tuner,
    "a job is killed": _kill_job,
    "the budget falls": _drop,
    "SIGKILL while the budget falls": _kill_during_a_drop,
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
        began_s = floor.tell(LESS_W)
        floor.until(lambda: floor.is_within(LESS_W), "all limits are lowered")
        lowered_s = floor.now_s() - began_s
        floor.until(lambda: floor.power_w() <= LESS_W, "the cards draw less")
        return lowered_s, floor.now_s() - began_s
