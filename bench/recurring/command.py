"""`python -m bench recurring`: batch size and cap of a job that comes again, against published rules.

The jobs are the six of Zeus's published traces. Each recurs fifty times, every time until its target is reached, under
autocap's rule, Zeus's as published, grid search, and with the batch size and the limit that it has by itself.

With --troubles runs crash, are preempted, lack memory or are dear the first time, and autocap's rule is held against
itself without that, and against Zeus's.
"""

import argparse
import math
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np

from bench.common import add_seeds, seeds_of
from bench.recurring.job import ALL, NONE, TROUBLES
from bench.recurring.rules import RULES, Case, Story, play
from bench.recurring.workloads import DRIFTS, made_up, prices, workloads

_CAPS = ("out", "in")
_MADE_UP = "made-up"
_OURS, _THEIRS, _PLAIN = "autocap", "zeus", "default"
_AS_GOOD = 0.02  # a batch size whose expected cost is within so much of the least is as good as the best


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How many recurrences a story has, and the seeds of the stories of each case and rule."""

    recurrences: int
    seeds: range


def main(argv: Sequence[str]) -> int:
    """Print the table that the command line asks for; the exit status."""
    args = _parser().parse_args(argv)
    try:
        chosen = [
            _listed(args.workloads, (*workloads(), _MADE_UP), "workload"),
            _listed(args.prices, tuple(prices()), "price"),
            _listed(args.caps, _CAPS, "way with the caps"),
            _listed(args.drifts, DRIFTS, "drift"),
        ]
        troubles = _listed(args.troubles, (*TROUBLES, ALL), "trouble") if args.troubles else []
        if args.seeds < 2 or args.recurrences < 1:
            raise ValueError("--seeds takes 2 or more, for the errors, and --recurrences 1 or more")
    except ValueError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    if args.quick:
        chosen, args.seeds = [["resnet50"], ["zeus"], chosen[2], ["none", "gradual"]], min(args.seeds, 5)
    settings = Settings(recurrences=args.recurrences, seeds=seeds_of(args))
    cases = list(product(*chosen))
    for line in troubled(cases, troubles, settings) if troubles else table(cases, settings):
        print(line, flush=True)
    return 0


def table(cases: Sequence[tuple[str, ...]], settings: Settings) -> Iterator[str]:
    """A line for each workload, price, way with the caps and drift, and the sums of the regrets at the end."""
    began = time.monotonic()
    yield f"| job | cost | caps | drift | {' | '.join(RULES)} | autocap less zeus | runs again | of default's |"
    yield "|" + "---|" * (len(RULES) + 7)
    worse, worse_surely, sums = 0, 0, np.zeros(2)
    with ProcessPoolExecutor() as pool:
        for names, stories in zip(cases, pool.map(partial(_played, settings=settings), cases), strict=True):
            regrets = {rule: _regrets(stories[rule]) for rule in RULES}
            less, error = _mean(regrets[_OURS] - regrets[_THEIRS])
            worse, worse_surely = worse + (less > 0), worse_surely + (less > 2 * error)
            sums += [regrets[_OURS].mean(), regrets[_THEIRS].mean()]
            yield f"| {' | '.join([*names, *_cells(regrets), _signed(less, error), *_others(stories)])} |"
    yield ""
    yield (
        f"{len(cases)} cases of {len(settings.seeds)} seeds in {time.monotonic() - began:.0f} s; autocap's mean regret "
        f"is above Zeus's in {worse}, beyond two errors in {worse_surely}; all regrets together {sums[0]:.0f} against "
        f"{sums[1]:.0f}"
    )


def troubled(cases: Sequence[tuple[str, ...]], troubles: Sequence[str], settings: Settings) -> Iterator[str]:
    """A line for each trouble, over all cases, and one for the stories without any."""
    began = time.monotonic()
    yield (
        f"| trouble | autocap | zeus | autocap, times that without | largest of a case | above zeus in | found within "
        f"{100 * _AS_GOOD:g} % | so zeus | missed |"
    )
    yield "|" + "---|" * 9
    with ProcessPoolExecutor() as pool:
        plain: np.ndarray | None = None
        for trouble in (NONE, *troubles):
            play_all = partial(_played, settings=settings, trouble=trouble, rules=(_OURS, _THEIRS))
            stories = dict(zip(cases, pool.map(play_all, cases), strict=True))
            regrets = {
                names: [_mean(_regrets(rows[rule])) for rule in (_OURS, _THEIRS)] for names, rows in stories.items()
            }
            ours_of = np.array([_regrets(rows[_OURS]) for rows in stories.values()])  # shape (cases, seeds)
            plain = ours_of if plain is None else plain
            largest = float((ours_of.mean(axis=1) / plain.mean(axis=1)).max())
            above = sum(ours > theirs for (ours, _), (theirs, _) in regrets.values())
            surely = sum(
                ours - theirs > 2 * math.hypot(error, other) for (ours, error), (theirs, other) in regrets.values()
            )
            both = [
                _mean(np.concatenate([_regrets(rows[rule]) for rows in stories.values()])) for rule in (_OURS, _THEIRS)
            ]
            found = [
                np.mean([story.over <= _AS_GOOD for rows in stories.values() for story in rows[rule]])
                for rule in (_OURS, _THEIRS)
            ]
            missed = sum(story.missed for rows in stories.values() for story in rows[_OURS])
            yield (
                f"| {trouble} | {both[0][0]:.2f} ± {both[0][1]:.2f} | {both[1][0]:.2f} ± {both[1][1]:.2f} | "
                f"{_times(ours_of.mean(axis=0), plain.mean(axis=0))} | {largest:.2f} | {above} of {len(cases)}, "
                f"{surely} beyond two errors | {100 * found[0]:.0f} % | {100 * found[1]:.0f} % | {missed} |"
            )
    yield ""
    yield f"{len(cases)} cases of {len(settings.seeds)} seeds each in {time.monotonic() - began:.0f} s"


def _regrets(stories: Sequence[Story]) -> np.ndarray:
    return np.array([story.regret.sum() for story in stories])


def _played(
    names: tuple[str, ...], settings: Settings, trouble: str = NONE, rules: Sequence[str] = RULES
) -> dict[str, list[Story]]:
    """The stories of a case by rule; the same seeds for all."""
    workload, price, caps, drift = names
    stories: dict[str, list[Story]] = {rule: [] for rule in rules}
    for seed in settings.seeds:
        job = made_up(seed) if workload == _MADE_UP else workloads()[workload]
        case = Case(workload=job, price=prices()[price], drift=drift, capped=caps == "in", trouble=trouble)
        for rule in rules:
            stories[rule].append(play(case, rule, seed, settings.recurrences))
    return stories


def _cells(regrets: dict[str, np.ndarray]) -> Iterator[str]:
    for rule in RULES:
        value, error = _mean(regrets[rule])
        yield f"{value:.2f} ± {error:.2f}"


def _others(stories: dict[str, list[Story]]) -> tuple[str, str]:
    again = " / ".join(f"{np.mean([story.again for story in stories[rule]]):.1f}" for rule in (_OURS, _THEIRS))
    missed = sum(story.missed for rule in RULES for story in stories[rule])
    spent = {rule: np.array([story.spent.sum() for story in stories[rule]]) for rule in (_OURS, _THEIRS, _PLAIN)}
    shares = " / ".join(f"{100 * spent[rule].mean() / spent[_PLAIN].mean():.0f} %" for rule in (_OURS, _THEIRS))
    return again + f", {missed} missed" * (missed > 0), shares


def _mean(values: np.ndarray) -> tuple[float, float]:
    """The mean and its standard error."""
    return float(values.mean()), float(values.std(ddof=1)) / math.sqrt(len(values))


def _times(values: np.ndarray, plain: np.ndarray) -> str:
    """How many times as much, of the same seeds, with its standard error."""
    times = float(values.mean() / plain.mean())
    return f"{times:.2f} ± {_mean(values - times * plain)[1] / float(plain.mean()):.2f}"


def _signed(value: float, error: float) -> str:
    return f"{value:+.2f} ± {error:.2f}"


def _listed(text: str, known: Sequence[str], what: str) -> list[str]:
    names = text.split(",")
    unknown = [name for name in names if name not in known]
    if unknown:
        raise ValueError(f"there is no {what} {unknown[0]!r}; choose of {', '.join(known)}")
    return names


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench recurring", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ",".join(workloads())
    parser.add_argument(
        "--workloads", default=names, metavar="LIST", help=f"of {names}, {_MADE_UP} (default: the first six)"
    )
    parser.add_argument("--prices", default="zeus,energy", metavar="LIST", help="of zeus,energy (default: both)")
    parser.add_argument("--caps", default=",".join(_CAPS), metavar="LIST", help="of out,in (default: both)")
    parser.add_argument("--drifts", default=",".join(DRIFTS), metavar="LIST", help=f"of {','.join(DRIFTS)}")
    parser.add_argument(
        "--troubles", default="", metavar="LIST", help=f"what goes wrong with runs, of {','.join((*TROUBLES, ALL))}"
    )
    parser.add_argument("--recurrences", type=int, default=50, metavar="N", help="of each job (default 50)")
    add_seeds(parser, 100, "stories of each case")
    parser.add_argument("--quick", action="store_true", help="one job and cost, five seeds")
    return parser
