"""`autocap report --follow`: a run elsewhere, as it goes on."""

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from autocap.clock import Clock
from autocap.events import Event, RunEnded
from autocap.reports.live.plain import Reporter
from autocap.runlog.event_log import EventTail

log = logging.getLogger(__name__)
_LOOK_EVERY_S = 1.0
_LOOKS_AT_AN_ORPHAN = 2  # its writer takes the lock only after it has made the file


def follow(
    run_dir: Path, reporter: Reporter, clock: Clock, damaged: Callable[[str], None] = log.warning
) -> list[Event]:
    """Pass on to the reporter a run's events, old and new, until it has ended or was killed; all of its events.

    Of a run that has ended already nothing is reported. damaged: is told of lines that are left out. Raises
    RunDirectoryError where there is no such directory.
    """
    with EventTail(run_dir, damaged) as tail:
        found = tail.read()
        if _ended(found):
            return found
        if not found:
            reporter.say([f"waiting for the first event of a run in {run_dir}"])
        new, orphaned = found, 0
        while True:
            for event in new:
                reporter.event(event)
            if _ended(new) or orphaned == _LOOKS_AT_AN_ORPHAN:
                break
            reporter.tick(tail.now_s)
            clock.wait_until(clock.now() + _LOOK_EVERY_S)
            abandoned = tail.is_orphaned  # before the last look at what was written
            new = tail.read()
            orphaned = orphaned + 1 if abandoned and not new else 0
            found = found + new
        reporter.close()
        if not _ended(found):
            reporter.say(
                [f"the run was killed: nobody writes its events any more, the last one is of {tail.last_s:.0f} s"]
            )
        return found


def _ended(events: Sequence[Event]) -> bool:
    return any(isinstance(event, RunEnded) for event in events)
