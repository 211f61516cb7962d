"""What the benchmarks have in common: options, cases in several processes, tables, rows in a file, and waiting for what
real processes do."""

import argparse
import json
import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from autocap.errors import AutocapError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

LOOK_S = 0.01


class Late(AutocapError):
    """Something did not happen in time."""


def until(condition: Callable[[], object], what: str, within_s: float, look_s: float = LOOK_S) -> float:
    """Seconds until the condition holds. what: it is then that has happened. Raises Late."""
    took_s = waited(condition, within_s, look_s)
    if took_s is None:
        raise Late(f"not within {within_s:g} s: {what}")
    return took_s


def waited(condition: Callable[[], object], within_s: float, look_s: float = 0.004) -> float | None:
    """Seconds until the condition holds; `None` where that is not within so many."""
    began_s = time.monotonic()
    while not condition():
        if time.monotonic() - began_s > within_s:
            return None
        time.sleep(look_s)
    return time.monotonic() - began_s


Given = TypeVar("Given")
Result = TypeVar("Result")
_BAR = 30


def add_seeds(parser: argparse.ArgumentParser, count: int, what: str, base: int = 0) -> None:
    """count, base: how many there are, and the first, unless told otherwise."""
    for name, usual, text in (("--seeds", count, what), ("--seed-base", base, "the first seed")):
        parser.add_argument(name, type=int, default=usual, metavar="N", help=f"{text} (default: %(default)s)")


def seeds_of(args: argparse.Namespace) -> range:
    return range(args.seed_base, args.seed_base + args.seeds)


def add_json(parser: argparse.ArgumentParser, what: str = "every single result") -> None:
    parser.add_argument("--json", type=Path, metavar="OUT", help=f"write {what} as a list")


def write_json(path: Path | None, rows: "Iterable[DataclassInstance]") -> None:
    """Where one is asked for."""
    if path is not None:
        path.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")


def played(
    run: Callable[[Given], Result],
    cases: Iterable[Given],
    chunk: int = 1,
    begin: Callable[[], None] | None = None,
) -> Iterator[Result]:
    """What comes of each case, in their order; in as many processes as there are cores, with a bar on a terminal.
    begin: is called in each of them first."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of the workers, which fill the cores by themselves
    given, shown = list(cases), sys.stderr.isatty()
    with ProcessPoolExecutor(initializer=begin) as pool:
        for done, result in enumerate(pool.map(run, given, chunksize=chunk), start=1):
            yield result
            if shown:
                print(f"\r[{'#' * (_BAR * done // len(given)):{_BAR}}] {done}/{len(given)}", end="", file=sys.stderr)
    if shown:
        print("\r\x1b[K", end="", file=sys.stderr)


def be_quiet() -> None:
    """What autocap would say on stderr in this process is not said."""
    logging.getLogger("autocap").addHandler(logging.NullHandler())


def markdown(*headings: str) -> Iterator[str]:
    """The first two lines of a table."""
    yield f"| {' | '.join(headings)} |"
    yield "|" + "---|" * len(headings)
