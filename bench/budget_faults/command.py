"""python -m bench budget faults: one fault after the other into power budgets of real processes, and what became of
them; before that, how soon a budget that falls by a quarter is kept, by a word and by the events of a VTN."""

import argparse
import os
import signal
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import TypeVar

from autocap.errors import AutocapError
from bench.budget_faults.scene import BUDGET_W, LESS_W, Budget, Floor
from bench.budget_faults.vtn import CLIENT_ID, CLIENT_SECRET, StandInVtn, event, in_seconds
from bench.common import Late, waited
from bench.faults import outcome
from bench.faults.outcome import Outcome, difference
from bench.faults.scene import Boards, send

_AHEAD_S, _EVENT_SETTLES_S = 15.0, 15.0  # by then the caps of jobs that draw less than they might have come down
_LESS = 0.75


def credentials(folder: Path) -> Path:
    """A file of the stand-in's."""
    path = folder / "credentials.toml"
    path.write_text(f'client_id = "{CLIENT_ID}"\nclient_secret = "{CLIENT_SECRET}"\n')
    path.chmod(0o600)
    return path


def followed(seed: int) -> tuple[float, ...]:
    """Four jobs on eight cards, and a VTN that takes a quarter of the watts that they have been granted, ahead and at
    once: the seconds of `_FOLLOWED`. Raises Late."""
    with TemporaryDirectory() as name, StandInVtn() as vtn, Floor(Path(name) / "floor") as floor:
        floor.start_jobs()
        floor.start_budget(BUDGET_W, "--openadr", vtn.url, "--openadr-credentials", str(credentials(Path(name))))
        floor.until(lambda: floor.joined() == len(floor.jobs), "all have joined")
        floor.until(lambda: len(vtn.asked) > 2, "the VTN is asked")
        time.sleep(_EVENT_SETTLES_S)
        less_w = _LESS * sum(floor.limits_mw()) / 1e3
        starts_s = time.time() + _AHEAD_S
        vtn.events.append(event("ahead", less_w / 1e3, start=in_seconds(_AHEAD_S), duration="PT10S"))
        floor.until(lambda: floor.is_within(less_w), "all limits are lowered")
        begun_s = time.time() - starts_s
        floor.until(lambda: floor.power_w() <= less_w, "the cards draw less")
        begun_draw_s = time.time() - starts_s
        floor.until(lambda: _budget_w(floor) == BUDGET_W, "it is over")
        time.sleep(_EVENT_SETTLES_S + seed % 10)  # at any time between two questions
        less_w = _LESS * sum(floor.limits_mw()) / 1e3
        vtn.events = [event("now", less_w / 1e3, start="0001-01-01", duration="P9999Y")]
        told_s = floor.until(lambda: floor.is_within(less_w), "all limits are lowered")
        time.sleep(3.0)
        vtn.events = []
        deleted_s = floor.until(lambda: _budget_w(floor) == BUDGET_W, "it is over")
        floor.end()
    return begun_s, begun_draw_s, told_s, deleted_s


def _budget_w(floor: Floor) -> float | None:
    standing = floor.standing()
    return None if standing is None else standing.budget_w


LEASE_S = 3.0
_SETTLES_S = 4.0  # after a fault, before the budget is ended
RANDOM_S = 3.0  # a random moment


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
    budget.supervisor.kill()
    return False


def kill_both(budget: Budget, rng: Random) -> bool:
    pids = [budget.supervisor.pid, budget.manager_pid()]
    rng.shuffle(pids)
    for pid in pids:
        send(pid, signal.SIGKILL)
    return False


def terminate(budget: Budget, rng: Random) -> bool:
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
    floor.tuner.kill()
    return True


def _stop_tuner(floor: Floor, rng: Random) -> bool:
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


# Of an event that was known ahead, of one that begins at once, and of one that the VTN has no more; until what.
_FOLLOWED = (
    "its start, all limits lowered",
    "its start, the cards draw less",
    "begins at once and asked for every 10 s, all limits lowered",
    "deleted, the budget as it was",
)


def main(argv: Sequence[str]) -> int:
    """Inject and print; 1 where a limit was left changed, the budget exceeded for too long, a job harmed, or something
    hung."""
    parser = argparse.ArgumentParser(prog="python -m bench budget faults", description=__doc__)
    outcome.add_options(parser, 300)
    parser.add_argument("--drops", type=int, default=5, metavar="N", help="budgets that fall (default: %(default)s)")
    parser.add_argument(
        "--events", type=int, default=3, metavar="N", help="VTNs that are followed (default: %(default)s)"
    )
    parser.add_argument("--at-once", type=int, default=2, metavar="N", help="budgets (default: %(default)s)")
    args = parser.parse_args(argv)
    kinds = outcome.chosen(parser, args.kinds, KINDS)
    began_s = time.monotonic()
    drops = [dropped(args.seed + number) for number in range(args.drops)]
    if drops:
        tell_drops(*zip(*drops, strict=True))
    events = [followed(args.seed + 3 * number) for number in range(args.events)]
    for what, *known_s in zip(_FOLLOWED, *events, strict=True) if events else ():
        print(f"event less 25 %: {what} after {median(known_s):.2f} s (median), {max(known_s):.2f} s (worst)")
    drawn = outcome.drawn(kinds, args.injections, args.seed)
    with ThreadPoolExecutor(args.at_once) as threads:
        outcomes = list(threads.map(lambda one: injected(*one), drawn))
    return outcome.report(outcomes, began_s, args.json, back=partial(outcome.longest, kinds), said=8)


def tell_drops(lowered_s: Sequence[float], below_s: Sequence[float]) -> None:
    """How long budgets that fell took."""
    for what, times_s in (("all limits lowered", lowered_s), ("the cards draw less", below_s)):
        print(f"budget less 25 %: {what} after {median(times_s):.2f} s (median), {max(times_s):.2f} s (worst)")
