"""A run directory, followed into a sink: at a time when nobody waits for it, however long the sink takes."""

import threading
from pathlib import Path

from autocap.plugins.trackers.rows import EVERY_S, Rows
from autocap.plugins.trackers.sink import Sink
from autocap.runlog.event_log import EventTail


def follow(run_dir: Path, sink: Sink, stop: threading.Event, *, every_s: float = EVERY_S) -> None:
    """Log a run, from its first event until it has ended, was killed, or `stop` is set, and what it came to.

    Raises RunDirectoryError where there is no such directory or it cannot be read, and whatever the sink does.
    """
    rows, begun = Rows(), False
    with EventTail(run_dir, lambda damaged: None) as tail:
        for new in tail.looks(lambda: not stop.wait(every_s)):
            for event in new:
                ended = list(rows.take(event))
                if rows.is_known and not begun:
                    begun = True
                    sink.begin(rows.settings)
                for row in ended:
                    sink.log(row)
            for row in rows.now():
                sink.log(row)
    if not begun:
        sink.begin(rows.settings)
    sink.end(rows.result)
