"""Log records, Python's warnings and faults of threads, as lines of ours on standard error; the only handler that
autocap adds."""

import logging
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from autocap.printing import PREFIX
from autocap.text import printable

log = logging.getLogger(__name__)


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
