"""Loads numpy and scipy with a single thread, and after a session has blocked its signals.

The detector solves many small systems, for which more threads only get in each other's way: twentyfold slower beside a
job that keeps the CPUs busy. One thread also leaves the job its CPUs, and the signals to the main thread.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from autocap.job.signals import EndedBySignal, SignalClock

_VARIABLE = "OPENBLAS_NUM_THREADS"  # read once, when the library is loaded


@contextmanager
def one_thread() -> Iterator[None]:
    """Load numpy and scipy inside; the environment, which a job inherits, is afterwards as it was."""
    given = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        import numpy  # noqa: F401
        import scipy.linalg  # noqa: F401

        yield
    finally:
        if given is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = given


@contextmanager
def session_clock() -> Iterator[SignalClock]:
    """The clock of a session, which holds signals back before threads of numpy's could catch them.

    A signal that asks for the end before there is a job ends this process when all is closed.
    """
    try:
        with SignalClock() as clock:
            with one_thread():
                import autocap.session.modes  # noqa: F401
            yield clock
    except EndedBySignal as ended:
        ended.die()
        raise
