"""Log records, Python's warnings and faults of threads, as lines of ours on standard error; a service's log, to the
journal with its priorities or plainly to a terminal. No other handler is added."""

import logging
import os
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from autocap.text import PREFIX, printable

log = logging.getLogger(__name__)
_PRIORITIES = ((logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))  # syslog's err, warning, info; else debug


class _OneLine(logging.Formatter):
    """A line a record; the lines of a traceback follow it, where it has one."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        about = "warning" if record.levelno >= logging.WARNING else record.name
        return f"{PREFIX}{about}: {printable(record.message)}"


@contextmanager
def logged() -> Iterator[None]:
    """Inside, warnings are shown on the standard error of that moment."""
    root = logging.getLogger()
    handler, level, of_threads = logging.StreamHandler(sys.stderr), root.level, threading.excepthook
    handler.setFormatter(_OneLine())
    root.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning, threading.excepthook = _say, _say_fault
            yield
    finally:
        threading.excepthook = of_threads
        root.removeHandler(handler)
        root.setLevel(level)


def log_everything() -> None:
    """Show the debug log as well."""
    logging.getLogger().setLevel(logging.DEBUG)


def _say(
    message: Warning | str, category: type[Warning], filename: str, lineno: int,
    file: TextIO | None = None, line: str | None = None,
) -> None:  # fmt: skip
    log.warning("%s: %s (%s:%d)", category.__name__, message, filename, lineno)


def _say_fault(fault: threading.ExceptHookArgs) -> None:
    """A thread has ended; what it did is done no more."""
    name = "?" if fault.thread is None else fault.thread.name
    log.warning("the thread %s has ended: internal fault: %r", name, fault.exc_value)
    log.debug("the thread %s has ended", name, exc_info=fault.exc_value)


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
