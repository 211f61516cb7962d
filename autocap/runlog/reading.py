"""The events of a run directory read back, whole or cut short."""

from pathlib import Path

from autocap.errors import RunDirectoryError
from autocap.events import Event
from autocap.runlog.event_log import EVENTS, events_of


def read_events(run_dir: Path) -> list[Event]:
    """The events of a run, oldest first, as far as they were written; a line cut short by a kill is left out.

    Events and fields that only a later version knows are skipped. Raises RunDirectoryError where there is no run.
    """
    try:
        lines = (run_dir / EVENTS).read_bytes().splitlines()
    except (FileNotFoundError, NotADirectoryError):
        raise RunDirectoryError(
            f"{run_dir} holds no run: there is no {EVENTS} in it; pass a directory that autocap wrote"
        ) from None
    except OSError as error:
        raise RunDirectoryError(
            f"{run_dir / EVENTS} cannot be read: {error.strerror}; check its permissions"
        ) from error
    *whole, last = lines or [b""]
    return events_of(whole, run_dir / EVENTS) + events_of([last], None)
