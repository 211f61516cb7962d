"""What is asked of every injection and answered, and what the commands that inject faults have in common: options, the
kinds and their seeds, and what is printed."""

import argparse
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from types import MappingProxyType

from bench.common import add_json, write_json


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One injection. Each complaint is a sentence, `None` where there is nothing to complain of.

    kind: of fault. seed: repeats it. changed: a limit that is not as it was found. harmed: what was done to the job.
    hung: what did not end in time. silent: what should have been said. by_restore: the GPU took no limit until the
    fault was over, and `autocap restore` then put it back. overtaken: another tool's write fell into our own call, so
    that the two cannot be distinguished. back_s: from the controller's death until every limit was back, where one was
    away. said: everything that was said.
    """

    kind: str
    seed: int
    changed: str | None = None
    harmed: str | None = None
    hung: str | None = None
    silent: str | None = None
    by_restore: bool = False
    overtaken: bool = False
    back_s: float | None = None
    said: tuple[str, ...] = ()

    @property
    def complaints(self) -> tuple[str, ...]:
        named = {"limit changed": self.changed, "job harmed": self.harmed, "hung": self.hung, "silent": self.silent}
        return tuple(f"{name}: {text}" for name, text in named.items() if text is not None)


def silence(said: Sequence[str], pattern: str | None) -> str | None:
    """The complaint that nothing of what was said names the fault; `None` where nothing need be said."""
    if pattern is None or any(re.search(pattern, text) for text in said):
        return None
    return f"nothing says {pattern!r}"


def difference(expected_mw: Sequence[int], found_mw: Sequence[int]) -> str | None:
    """Which limits differ from what they should be."""
    wrong = [
        f"GPU {gpu} at {found / 1000:g} W instead of {expected / 1000:g} W"
        for gpu, (expected, found) in enumerate(zip(expected_mw, found_mw, strict=True))
        if expected != found
    ]
    return ", ".join(wrong) or None


def table(outcomes: Iterable[Outcome]) -> list[str]:
    """A row a kind of fault, and the totals."""
    rows: dict[str, list[Outcome]] = {}
    for one in outcomes:
        rows.setdefault(one.kind, []).append(one)
    titles = ("injections", "changed", "harmed", "hangs", "silent", "by restore", "overtaken")
    lines = [f"{'fault':36}" + "".join(f"{title:>12}" for title in titles)]
    everything = [one for group in rows.values() for one in group]
    for name, group in (*rows.items(), ("all", everything)):
        counts = (
            len(group),
            sum(one.changed is not None for one in group),
            sum(one.harmed is not None for one in group),
            sum(one.hung is not None for one in group),
            sum(one.silent is not None for one in group),
            sum(one.by_restore for one in group),
            sum(one.overtaken for one in group),
        )
        lines.append(f"{name:36}" + "".join(f"{count:12}" for count in counts))
    return lines


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
