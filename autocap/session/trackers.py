"""Whoever logs a run to experiment trackers (--log-to), which is a plug-in's to do."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

from autocap.job import registry
from autocap.reports.live.plain import Reporter


class OpenRun(Protocol):
    """A run that the training script itself has open in a tracker, and that is logged to from a thread of it."""

    tracker: str

    def start(self) -> None: ...

    def end(self) -> None: ...


class Trackers(Protocol):
    """PATIENCE_S: with all of them together, at the end of a run."""

    PATIENCE_S: float

    def require(self, names: Iterable[str]) -> None:
        """Raises TrackerUnavailable where one of them lacks something here."""

    def start(self, name: str, run_dir: Path) -> Reporter:
        """A process that logs a run to one of them. Raises TrackerUnavailable where it cannot be started."""

    def join(self, names: Iterable[str], run_dir: Path) -> Sequence[OpenRun]:
        """Those that have a run open in this very process."""

    def await_end(self, started: Sequence[Reporter]) -> Iterable[str]:
        """Wait until all have logged the end of a run, for a bounded time; sentences on what went wrong."""


def trackers(names: Sequence[str]) -> Trackers | None:
    """Who logs to these, all of which can be used; `None` for no names. Raises TrackerUnavailable and
    UsageError."""
    if not names:
        return None
    found: Trackers = registry.of_plugin("logs", "trackers", f"--log-to {names[0]}")
    found.require(names)
    return found
