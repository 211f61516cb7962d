"""python -m bench scenarios: does the controller keep its promises through what real training jobs do?"""

import argparse
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from autocap.config import values
from autocap.config.option import Threshold, thresholds
from autocap.controller import tuning as of_controller
from autocap.measurement import tuning as of_measurement
from autocap.text import did_you_mean
from bench.common import add_json, played, write_json
from bench.scenarios import ceilings, noisy, step_lengths
from bench.scenarios.ceilings import CeilingRow
from bench.scenarios.noisy import NoisyRow
from bench.scenarios.runs import Floats, Row, constrained, draw, play, starved
from bench.scenarios.step_lengths import StepRow

_ROOMS = (of_measurement.TUNING, of_controller.TUNING)


def known() -> dict[str, Threshold]:
    """By name, as they are now."""
    return {one.name: one for room in _ROOMS for one in thresholds(room)}


def change(text: str) -> tuple[str, float]:
    """`NAME=VALUE`. Raises ArgumentTypeError."""
    name, given = values.key_value(text)
    one = known().get(name)
    if one is None:
        meant = did_you_mean(name, known())
        raise argparse.ArgumentTypeError(f"unknown threshold '{name}'{meant}; `autocap config --all` lists them")
    value, is_whole = values.number_or_none(given), isinstance(one.value, int)
    if value is None or not 0 < value <= values.LARGEST or (is_whole and value != int(value)):
        what = "a whole number from 1" if is_whole else "a number above 0, up"
        raise argparse.ArgumentTypeError(
            f"{name} cannot be {values.shown(given)}; give {what} to {values.plain(values.LARGEST)} "
            f"(built-in: {one.value:g} {one.unit})"
        )
    return name, int(value) if is_whole else value


def use(changes: Mapping[str, float]) -> None:
    """Have other values from now on, in this process."""
    for room in _ROOMS:
        for one in thresholds(room):
            if one.name in changes:
                object.__setattr__(room, one.name, changes[one.name])  # frozen for all others


_CLOSE_PCT, _OVER_PCT = 1.5, 0.5
_WITHIN = 60  # iterations
_CALM = 0.05  # jitter
_PER = 10_000
_EVERY = 3
_LISTED = 12
_R = TypeVar("_R", NoisyRow, StepRow, CeilingRow)


def main(argv: Sequence[str]) -> int:
    """Play the scenarios and print the promises; 1 where one is not kept."""
    parser = argparse.ArgumentParser(prog="python -m bench scenarios", description=__doc__)
    parser.add_argument("--count", type=int, default=200, help="scenarios (default: 200)")
    parser.add_argument("--seed-base", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--quick", action="store_true", help="24 scenarios")
    add_json(parser, "what came of each")
    parser.add_argument(
        "--step-lengths", action="store_true", help="instead, plain jobs of 0.05 to 60 s a step: is each of them tuned?"
    )
    parser.add_argument(
        "--noisy", action="store_true", help="instead, jobs on noisy machines: is what is said of them true?"
    )
    parser.add_argument(
        "--ceilings", action="store_true", help="instead, jobs under a ceiling that moves while they are tuned"
    )
    parser.add_argument(
        "--tuning", metavar="NAME=VALUE", type=change, action="append", default=[],
        help="another value of a threshold, as `autocap config --all` lists them; may be repeated",
    )  # fmt: skip
    args = parser.parse_args(argv)
    changes, built_in = dict(args.tuning), known()
    begin = partial(use, changes)
    for name, value in changes.items():
        print(f"{name}: {value:g} in place of {built_in[name].value:g} {built_in[name].unit}")
    count = 24 if args.quick else args.count
    seeds = range(args.seed_base, args.seed_base + count)
    if args.step_lengths:
        return _plain(step_lengths.play, step_lengths.report, step_lengths.promised, seeds, args.json, begin)
    if args.noisy:
        return _plain(noisy.play, noisy.report, noisy.promised, seeds, args.json, begin)
    if args.ceilings:
        return _plain(ceilings.play, ceilings.report, ceilings.promised, seeds, args.json, begin)
    begin_s = time.perf_counter()
    rows = list(played(_play, _cases(args.seed_base, count), 2, begin))
    print("\n".join(report(rows)))
    print(f"\n{count} scenarios, seeds {args.seed_base} to {args.seed_base + count - 1}, "
          f"{time.perf_counter() - begin_s:.0f} s")  # fmt: skip
    write_json(args.json, rows)
    return 0 if all(kept for _, kept in promises(rows)) else 1


def _plain(
    play_one: Callable[[int], _R],
    said: Callable[[Sequence[_R]], Iterable[str]],
    promised: Callable[[Sequence[_R]], bool],
    seeds: range,
    out: Path | None,
    begin: Callable[[], None],
) -> int:
    """Play a family with one job a seed, and print what it says of them; 1 where a promise is not kept."""
    begin_s = time.perf_counter()
    rows = list(played(play_one, seeds, begin=begin))
    print("\n".join(said(rows)))
    print(f"\n{len(rows)} jobs, seeds {seeds[0]} to {seeds[-1]}, {time.perf_counter() - begin_s:.0f} s")
    write_json(out, rows)
    return 0 if promised(rows) else 1


def _cases(first: int, count: int) -> Iterator[tuple[int, bool, bool]]:
    """Every seed, and every so many once more with a limit on slowdown; and all of these on a starved machine."""
    for seed in range(first, first + count):
        for starves in (False, True):
            yield seed, False, starves
            if seed % _EVERY == 0:
                yield seed, True, starves


def _play(case: tuple[int, bool, bool]) -> Row:
    seed, limited, starves = case
    scenario = draw(seed)
    scenario = constrained(scenario) if limited else scenario
    return play(starved(scenario) if starves else scenario)


def promises(rows: Sequence[Row]) -> Iterator[tuple[str, bool]]:
    """Each promise with its numbers, and whether it was kept."""
    yield from _kept([row for row in rows if not row.starved])
    if hungry := [row for row in rows if row.starved]:
        yield "on a machine with too few cores, samples 0.02 to 5 s apart:", True
        yield from _kept(hungry)
    yield f"limits not back: {sum(not row.back for row in rows)}", all(row.back for row in rows)
    yield f"internal faults: {sum(row.fault for row in rows)}", not any(row.fault for row in rows)


def _kept(rows: Sequence[Row]) -> Iterator[tuple[str, bool]]:
    """The promises of what is decided, with and without a limit on slowdown, as far as there are jobs to tell."""
    limited = [row for row in rows if row.constrained]
    free = [row for row in rows if not row.constrained]
    held = [row for row in free if row.regret_pct is not None]
    yield f"jobs that lasted beyond CONFIRMING: {len(held)} of {len(free)}", True
    regrets = _known(row.regret_pct for row in held)
    if regrets.size:
        close = _share(regrets <= _CLOSE_PCT)
        yield (
            (
                f"kept cap within {_CLOSE_PCT:g} % of the best: {100 * close:.1f} % of them (95 % aimed at); mean "
                f"{regrets.mean():.2f} %, worst {regrets.max():.2f} %"
            ),
            close >= 0.95,
        )
    over = _known(row.over_pct for row in rows)
    if over.size:
        yield (
            f"kept cap above the arrival limit's cost: worst {over.max():+.2f} % (+{_OVER_PCT:g} % allowed)",
            bool(over.max() <= _OVER_PCT),
        )
    due = [row for row in rows if row.due and row.jitter <= _CALM]
    soon = [row for row in due if row.noticed_after is not None and row.noticed_after <= _WITHIN]
    yield (
        (
            f"changed workload, jitter up to {100 * _CALM:g} %: noticed within {_WITHIN} iterations and the time it "
            f"has to last in {len(soon)} of {len(due)} (95 % aimed at)"
        ),
        len(soon) >= 0.95 * len(due),
    )
    quiet, retunes = sum(row.quiet for row in rows), sum(row.retunes for row in rows)
    yield (
        (f"searches anew without a change: {retunes} in {quiet:.0f} iterations at a held cap (fewer than 1 in {_PER})"),
        retunes * _PER < max(quiet, 1),
    )
    off = _known(row.saving_off for row in rows)
    if off.size:
        within = _share(np.abs(off) <= 2)
        yield (
            (
                f"reported saving within two standard errors of the truth: {100 * within:.1f} % of {len(off)} "
                "(90 % aimed at)"
            ),
            within >= 0.90,
        )
    excess = _known(row.excess_pct for row in rows)
    if excess.size:
        yield (
            (
                f"--max-slowdown 5 %: {len(excess)} jobs, {int(np.sum(excess > 0))} beyond it, worst "
                f"{excess.max():+.2f} % (after one aborted trial)"
            ),
            bool(excess.max() <= 0),
        )
    allowed = _known(row.regret_pct for row in limited)
    if allowed.size:
        yield (
            f"    kept cap above the best that is truly allowed: mean {allowed.mean():.2f} %, worst "
            f"{allowed.max():.2f} %, within {_CLOSE_PCT:g} % in {100 * _share(allowed <= _CLOSE_PCT):.1f} % of "
            f"{len(allowed)}",
            True,
        )


def _known(values: Iterable[float | None]) -> Floats:
    """Those that are, shape (n,); a few jobs may have none, and then there is nothing to promise."""
    return np.array([value for value in values if value is not None], dtype=np.float64)


def _share(kept: NDArray[np.bool_]) -> float:
    return float(np.mean(kept))


def report(rows: Sequence[Row]) -> Iterator[str]:
    """The promises, and the scenarios that broke one, as lines."""
    for text, kept in promises(rows):
        yield f"{'  ' if kept else '✗ '}{text}"
    for starves in (False, True):
        ended = Counter(row.ended_in for row in rows if row.starved is starves)
        where = ", ".join(f"{state} {count}" for state, count in sorted(ended.items()))
        yield f"ended in{', starved' if starves else ''}: {where}"
    broken = [
        row
        for row in rows
        if (row.regret_pct or 0) > _CLOSE_PCT
        or (row.due and (row.noticed_after is None or row.noticed_after > _WITHIN))
        or row.retunes
        or (row.excess_pct or 0) > 0
        or not row.back
        or row.fault
    ]
    for row in broken[:_LISTED]:
        yield (
            f"  seed {row.seed}{', starved' if row.starved else ''}: {row.metric}, jitter {100 * row.jitter:.0f} %, "
            f"kept {row.kept_w}, regret "
            f"{row.regret_pct}, noticed {row.noticed_after}, anew {row.retunes}, excess {row.excess_pct}"
        )
