"""A run that is logged in the training script's own run of a tracker, by a thread of the script."""

import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path

from autocap.job.signals import deaf
from autocap.plugins.trackers.sink import Sink, joined_sink
from autocap.runlog.event_log import EVENTS
from autocap.text import printable

log = logging.getLogger(__name__)
PATIENCE_S = 5.0  # with the last numbers
_LOOK_EVERY_S = 1.0


class Joined:
    """Follows a run directory that another process is about to write into an open run, from `start` to `end`.

    tracker: its name. Whatever goes wrong is said once, as a warning, and ends the logging alone.
    """

    def __init__(self, tracker: str, sink: Sink, run_dir: Path, *, every_s: float = _LOOK_EVERY_S) -> None:
        self.tracker, self._sink, self._run_dir, self._every_s = tracker, sink, run_dir, every_s
        self._before = _identity(run_dir)  # of an older run's log, which will be replaced
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._work, name=f"autocap-{tracker}", daemon=True)

    def start(self) -> None:
        """Raises RuntimeError where there can be no thread."""
        with deaf():
            self._thread.start()

    def end(self, patience_s: float = PATIENCE_S) -> None:
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
