"""python -m bench faults: one fault after the other into whole tuned jobs, and what became of limits and jobs."""

import argparse
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from statistics import median

from bench.common import be_quiet
from bench.faults import helper_faults, process_faults, sudo_faults, virtual_faults
from bench.faults.outcome import Outcome, add_options, chosen, drawn, report

_INJECTIONS, _KILLS = 500, 50
_KILLS_KIND = "SIGKILL with a cap set"
_PROCESS_SHARE = 0.24  # of the injections beside those kills: a real process takes half a minute, though mostly asleep
_AT_ONCE = 10  # jobs of real processes
_CROWD = 6  # of those that keep the processors busy, which are left to the end
_ATTEMPTS, _NEXT_SEED = 5, 1_000_000  # no later injection has such a seed
_GROUPS = {
    "helper": tuple(helper_faults.KINDS),
    "helper jobs": tuple(helper_faults.JOB_KINDS),
    "sudo": tuple(sudo_faults.KINDS),
}  # names of many kinds
_INJECTED = {
    **dict.fromkeys(virtual_faults.KINDS, virtual_faults.injected),
    **dict.fromkeys(process_faults.KINDS, process_faults.injected),
    **dict.fromkeys(helper_faults.KINDS, helper_faults.injected),
    **dict.fromkeys(helper_faults.JOB_KINDS, helper_faults.injected_into_job),
    **dict.fromkeys(sudo_faults.KINDS, sudo_faults.injected),
}  # what injects each kind


def main(argv: Sequence[str]) -> int:
    """Inject and print; 1 where a limit was left changed, a job harmed, something hung, or a message was missing."""
    parser = argparse.ArgumentParser(prog="python -m bench faults", description=__doc__)
    add_options(parser, _INJECTIONS)
    parser.add_argument("--kills", type=int, default=_KILLS, metavar="N", help="SIGKILLs among them, with a cap set")
    args = parser.parse_args(argv)
    kinds = chosen(parser, args.kinds, tuple(_INJECTED), groups=_GROUPS) if args.kinds else ()
    be_quiet()
    began_s = time.monotonic()
    outcomes = full(args.injections, args.kills, args.seed, kinds)
    return report(outcomes, began_s, args.json, back=_backs, said=6)


def _backs(backs_s: dict[str, list[float]]) -> Iterator[str]:
    for name, took_s in sorted(backs_s.items()):
        times = f"{1000 * median(took_s):.0f} ms (median), {1000 * max(took_s):.0f} ms (worst of {len(took_s)})"
        yield f"{name}: limits that were away were back after {times}"


def full(count: int, kills: int, seed: int, kinds: Sequence[str] = ()) -> list[Outcome]:
    """That many in all; with `kinds` only of those, as many of each. One that met nothing is drawn again."""
    if kinds:
        every = drawn(kinds, count, seed)
        real = [one for one in every if one[0] not in virtual_faults.KINDS]
        return _all([one for one in every if one[0] in virtual_faults.KINDS], real)
    kills = min(kills, count)
    others = round(_PROCESS_SHARE * (count - kills))
    of_processes = [*process_faults.KINDS, *sudo_faults.KINDS]
    real = drawn([kind for kind in of_processes if kind != _KILLS_KIND], others, seed)
    real += [(_KILLS_KIND, seed + number) for number in range(kills)]
    return _all(drawn(tuple(virtual_faults.KINDS), count - len(real), seed), real)


def _all(virtual: Sequence[tuple[str, int]], real: Sequence[tuple[str, int]]) -> list[Outcome]:
    """In virtual time first, which keeps the processors busy; real processes have their times to keep."""
    with ProcessPoolExecutor(os.cpu_count(), initializer=be_quiet) as pool:
        outcomes = _gathered(pool, virtual)
    busy = (process_faults.STARVING, f"sudo: {process_faults.STARVING}", *helper_faults.KINDS, *helper_faults.JOB_KINDS)
    for at_once, is_busy in ((_AT_ONCE, False), (_CROWD, True)):
        with ThreadPoolExecutor(at_once) as threads:
            outcomes += _gathered(threads, [one for one in real if (one[0] in busy) is is_busy])
    return outcomes


def _met(kind: str, seed: int) -> Outcome:
    """The outcome of the first of some seeds whose fault a job lived to meet."""
    for attempt in range(_ATTEMPTS):
        number = seed + attempt * _NEXT_SEED
        outcome = _INJECTED[kind](kind, number)
        if outcome is not None:
            return outcome
    return Outcome(kind=kind, seed=seed, hung=f"{_ATTEMPTS} jobs in a row ended before the fault")


def _gathered(pool: Executor, drawn: Sequence[tuple[str, int]]) -> list[Outcome]:
    running: list[Future[Outcome]] = [pool.submit(_met, kind, seed) for kind, seed in drawn]
    return [one.result() for one in running]
