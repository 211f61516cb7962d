"""A service's log: to the journal with its priorities, or plainly to a terminal."""

import logging
import os
import sys
from collections.abc import Mapping

from autocap.printing import PREFIX
from autocap.text import printable

log = logging.getLogger(__name__)

_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))  # syslog's err, warning, info; else debug


class ServiceLines(logging.Formatter):
    """A line a record, whatever it holds; with its traceback behind it, where it has one.

    to_journal: each begins with its priority in angle brackets, which journald takes off.
    """

    def __init__(self, *, to_journal: bool) -> None:
        super().__init__()
        self._to_journal = to_journal

    def format(self, record: logging.LogRecord) -> str:
        text = printable(record.getMessage())
        if record.exc_info:
            text = "\n".join([text, *map(printable, self.formatException(record.exc_info).splitlines())])
        if not self._to_journal:
            return f"{PREFIX}{text}"
        priority = next((number for level, number in _PRIORITIES if record.levelno >= level), 7)
        return "\n".join(f"<{priority}>{line}" for line in text.splitlines())


def goes_to_journal(environ: Mapping[str, str] = os.environ, fd: int = 2) -> bool:
    """Whether a descriptor is the stream that systemd has connected to the journal."""
    try:
        status = os.fstat(fd)
    except OSError:
        return False
    return environ.get("JOURNAL_STREAM") == f"{status.st_dev}:{status.st_ino}"


def log_as_service() -> None:
    """From now on, everything from INFO on goes to standard error, one line each."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(ServiceLines(to_journal=goes_to_journal()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
