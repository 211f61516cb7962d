"""What logs a run, as whoever tunes it has it: processes that are started beside it, and awaited for a bounded time;
or, where the training script has a run of a tracker open itself, a thread of the script."""

import logging
import os
import sys
import threading
import time
from collections.abc import Iterable, Sequence
from importlib.util import find_spec
from pathlib import Path

from autocap.errors import TrackerUnavailable
from autocap.events import Event
from autocap.job import registry
from autocap.job.processes import import_path
from autocap.job.signals import deaf
from autocap.job.supervised import Supervised
from autocap.plugins.trackers.sink import Sink, joined_sink
from autocap.reports.live.terminal import Reporter
from autocap.runlog.event_log import EVENTS
from autocap.text import printable

log = logging.getLogger(__name__)
JOINED_PATIENCE_S = 5.0  # with the last numbers
_FOLLOW_EVERY_S = 1.0


class Joined:
    """Follows a run directory that another process is about to write into an open run, from `start` to `end`.

    tracker: its name. Whatever goes wrong is said once, as a warning, and ends the logging alone.
    """

    def __init__(self, tracker: str, sink: Sink, run_dir: Path, *, every_s: float = _FOLLOW_EVERY_S) -> None:
        self.tracker, self._sink, self._run_dir, self._every_s = tracker, sink, run_dir, every_s
        self._before = _identity(run_dir)  # of an older run's log, which will be replaced
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"autocap-{tracker}", daemon=True)

    def start(self) -> None:
        """Raises RuntimeError where there can be no thread."""
        with deaf():
            self._thread.start()

    def end(self, patience_s: float = JOINED_PATIENCE_S) -> None:
        """The run has ended, or never began: what was written by now is logged, and waited for no longer than that."""
        self._stop.set()
        self._thread.join(patience_s)
        if self._thread.is_alive():
            log.warning(
                "autocap: %s has not taken the run's last numbers within %g s, and is not waited for",
                self.tracker, patience_s,
            )  # fmt: skip

    @property
    def _has_begun(self) -> bool:
        """Whether the run has a log."""
        return _identity(self._run_dir) not in (None, self._before)

    def _work(self) -> None:
        # Only here: what it needs would make the script wait when the block begins.
        from autocap.plugins.trackers.rows import follow

        try:
            while not self._stop.wait(self._every_s) and not self._has_begun:
                pass
            if not self._has_begun:
                return
            follow(self._run_dir, self._sink, self._stop, every_s=self._every_s)
        except Exception as error:  # noqa: BLE001 - whatever a library raises, the training goes on
            said = printable(f"{type(error).__name__}: {error}")
            log.warning("autocap: nothing more is logged to %s: %s", self.tracker, said)


def joined(trackers: Iterable[str], run_dir: Path) -> list[Joined]:
    """Those of the trackers that have a run open here, to be logged to in it. One that cannot be asked is not."""
    found = []
    for name in trackers:
        try:
            sink = joined_sink(name)
        except Exception:  # whatever a library raises; it gets a run of its own
            log.debug("no open run of %s", name, exc_info=True)
            continue
        if sink is not None:
            found.append(Joined(name, sink, run_dir))
    return found


def _identity(run_dir: Path) -> tuple[int, int] | None:
    """Which file the log of a run is; `None` where there is none."""
    try:
        status = os.stat(run_dir / EVENTS)
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


PATIENCE_S = 10.0  # with all the processes that log a run, at its end
GRACE_S = 1.0  # for one whose time is over
_LOOK_EVERY_S = 0.02


def require(trackers: Iterable[str]) -> None:
    """Raises TrackerUnavailable where the package of one of ours is not installed. A tracker, its package and our extra
    have one name. Imports none of them."""
    for name in trackers:
        if name in registry.ours("trackers") and not _is_installed(name):
            raise TrackerUnavailable(f"--log-to {name} needs the package {name}; install it with: pip install {name}")


def _is_installed(package: str) -> bool:
    """W&B keeps its files in folders called wandb, which Python would take for packages without modules."""
    if sys.modules.get(package) is not None:
        return True
    found = find_spec(package)
    return found is not None and found.origin is not None


class Tracker(Reporter):
    """One process that logs, from its start until it is closed. It reads the run directory; here is only looked
    whether it lives."""

    def __init__(self, name: str, run_dir: Path) -> None:
        """Raises TrackerUnavailable where no process can be started."""
        self.name = name
        self._said = ""
        self._has_told = False
        words = (sys.executable, "-P", "-m", "autocap.plugins.trackers", name, str(run_dir.absolute()))
        env = {**os.environ, "PYTHONPATH": os.pathsep.join(import_path())}
        try:
            self._process = Supervised(words, grace_s=GRACE_S, env=env)
        except OSError as error:
            raise TrackerUnavailable(f"nothing is logged to {name}: {error.strerror}") from error

    def event(self, event: Event) -> None:
        """Raises TrackerUnavailable, once, where it has failed."""
        self.is_over()
        trouble = self.trouble
        if trouble is not None:
            self._has_told = True
            raise TrackerUnavailable(trouble)

    @property
    def trouble(self) -> str | None:
        """A sentence on how it failed, unless that has been said; `None` while it has not."""
        if not self._process.returncode or self._has_told:
            return None
        why = self._said or f"its process ended with status {self._process.returncode}"
        return f"nothing more is logged to {self.name}: {why}"

    def is_over(self) -> bool:
        """Whether the process has ended, well or not."""
        if self._process.returncode is not None:
            return True
        ended = self._process.poll() is not None
        lines = self._process.errors().decode(errors="replace").strip().splitlines()
        self._said = lines[-1] if lines else self._said
        return ended

    def close(self) -> None:
        """End it, with all that it started."""
        self._process.close()


def await_end(trackers: Sequence[Tracker], patience_s: float = PATIENCE_S) -> Iterable[str]:
    """Wait until all have logged the end of the run, but no longer than that, and end the others; sentences on what
    went wrong."""
    deadline_s = time.monotonic() + patience_s
    while not all(one.is_over() for one in trackers) and time.monotonic() < deadline_s:
        time.sleep(_LOOK_EVERY_S)
    for one in trackers:
        if not one.is_over():
            yield f"{one.name} has not taken the run's last numbers within {patience_s:g} s, and is not waited for"
        elif one.trouble is not None:
            yield one.trouble
        one.close()


start, join = Tracker, joined  # as `session.trackers` asks for them
