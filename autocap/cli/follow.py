"""`autocap report --follow`: a run elsewhere, as it goes on."""

import logging
from collections.abc import Callable
from pathlib import Path

from autocap.clock import Clock
from autocap.events import Event
from autocap.reports.live.plain import Reporter
from autocap.runlog.event_log import EventTail, has_ended

log = logging.getLogger(__name__)
_LOOK_EVERY_S = 1.0


def follow(
    run_dir: Path, reporter: Reporter, clock: Clock, damaged: Callable[[str], None] = log.warning
) -> list[Event]:
    """Pass on to the reporter a run's events, old and new, until it has ended or was killed; all of its events.

    Of a run that has ended already nothing is reported. damaged: is told of lines that are left out. Raises
    RunDirectoryError where there is no such directory.
    """
    found: list[Event] = []
    with EventTail(run_dir, damaged) as tail:

        def wait() -> bool:
            reporter.tick(tail.now_s)
            clock.wait_until(clock.now() + _LOOK_EVERY_S)
            return True

        for look, new in enumerate(tail.looks(wait)):
            found += new
            if look == 0 and has_ended(found):
                return found
            if look == 0 and not found:
                reporter.say([f"waiting for the first event of a run in {run_dir}"])
            for event in new:
                reporter.event(event)
        reporter.close()
        if not has_ended(found):
            reporter.say(
                [f"the run was killed: nobody writes its events any more, the last one is of {tail.last_s:.0f} s"]
            )
        return found
