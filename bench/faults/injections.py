"""What the commands that inject faults have in common: options, which kind meets which seed, and what is printed."""

import argparse
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from types import MappingProxyType

from bench.common import add_json, write_json
from bench.faults.outcome import Outcome, table


def add_options(parser: argparse.ArgumentParser, count: int, what: str = "in all", separator: str = ",") -> None:
    """count: of injections, unless told otherwise."""
    parser.add_argument("--injections", type=int, default=count, metavar="N", help=f"{what} (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="of the first of each kind (default: 0)")
    parser.add_argument(
        "--kinds", metavar=f"A{separator}B", help="only these kinds of fault, by the names in the table (default: all)"
    )
    add_json(parser, "every outcome")


def chosen(
    parser: argparse.ArgumentParser,
    given: str | None,
    there: Collection[str],
    separator: str = ",",
    groups: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> tuple[str, ...]:
    """The kinds that were asked for, of those that there are: all unless given. groups: names of several. Ends the
    program for an unknown one."""
    asked = given.split(separator) if given else there
    kinds = tuple(one for kind in asked for one in groups.get(kind, (kind,)))
    if unknown := set(kinds).difference(there):
        parser.error(f"unknown kind {', '.join(sorted(unknown))}; choose of {f'{separator} '.join(there)}")
    return kinds


def drawn(kinds: Sequence[str], count: int, seed: int) -> list[tuple[str, int]]:
    """As many of each kind as of any other, one with each seed."""
    return [(kind, seed + number // len(kinds)) for number, kind in enumerate(islice(cycle(kinds), count))]


def backs_s(outcomes: Iterable[Outcome]) -> dict[str, list[float]]:
    """By kind, how long limits that were away took to be back, seconds."""
    found: dict[str, list[float]] = {}
    for one in outcomes:
        if one.back_s is not None:
            found.setdefault(one.kind, []).append(one.back_s)
    return found


def report(
    outcomes: Sequence[Outcome],
    began_s: float,
    out: Path | None,
    *,
    back: Callable[[dict[str, list[float]]], Iterable[str]],
    said: int,
) -> int:
    """Print the table, what is to be said of how long limits took to be back, and each complaint with the last lines
    that were said; the exit status. out: where every outcome is written."""
    if outcomes:
        print("\n".join([*table(outcomes), *back(backs_s(outcomes))]))
    print(f"{len(outcomes)} injections, {time.monotonic() - began_s:.0f} s")
    for one in outcomes:
        for complaint in one.complaints:
            print(f"\n{one.kind}, seed {one.seed}: {complaint}")
            print("\n".join(f"    {text}" for text in one.said[-said:]))
    write_json(out, outcomes)
    return int(any(one.complaints for one in outcomes))


def longest(kinds: Iterable[str], backs: dict[str, list[float]]) -> Iterable[str]:
    """Of each kind into a budget."""
    for kind in kinds:
        yield f"{kind}: above the budget, or until all is back, {max(backs.get(kind, [0.0])):.2f} s at most"
