"""The clock of a session, and what has to be loaded after it has blocked the signals."""

from collections.abc import Iterator
from contextlib import contextmanager

from autocap.job.blas_threads import one_thread
from autocap.job.signals import EndedBySignal, SignalClock


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
