"""What a tracker is told, and the protocol of whoever tells it."""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from autocap.job import registry

Setting = str | float | bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Numbers of one moment, by key. t_s: on the run's clock. unix_s: the same by the calendar."""

    t_s: float
    unix_s: float
    numbers: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What the run came to. row: its numbers. words: its sentences, by key. killed: it did not come to its end."""

    row: Row
    words: Mapping[str, str]
    killed: bool


class Sink(Protocol):
    """One run in a tracker. Whatever a method raises ends the logging, and nothing else."""

    def begin(self, settings: Mapping[str, Setting]) -> None:
        """What was tuned, and how, by key; once, before anything else."""

    def log(self, row: Row) -> None: ...

    def end(self, result: Result) -> None:
        """The last call. What was logged is with the tracker when it returns."""


def new_sink(tracker: str, run_dir: Path) -> Sink:
    """A tracker's run of ours, or the one that its environment variables name. Raises whatever its library does."""
    start: Callable[[Path], Sink] = registry.load("trackers", tracker).start
    return start(run_dir)


def joined_sink(tracker: str) -> Sink | None:
    """The run of a tracker that is open in this very process and thread; `None` where there is none, or where the
    tracker has no such thing. Raises whatever its library does."""
    if tracker not in sys.modules:  # a script that has not imported it has no run
        return None
    join: Callable[[], Sink | None] | None = getattr(registry.load("trackers", tracker), "join", None)
    return None if join is None else join()
