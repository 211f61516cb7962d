"""Loads what does linear algebra with a single thread.

The detector solves many small systems, for which more threads only get in each other's way: twentyfold slower beside a
job that keeps the CPUs busy. One thread also leaves the job its CPUs, and the signals to the main thread.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

_VARIABLE = "OPENBLAS_NUM_THREADS"  # read once, when the library is loaded; numpy and scipy each have their own


@contextmanager
def one_thread() -> Iterator[None]:
    """Load numpy, and what is imported inside; the environment, which a job inherits, is afterwards as it was."""
    given = os.environ.get(_VARIABLE)
    os.environ[_VARIABLE] = "1"
    try:
        import numpy  # noqa: F401

        yield
    finally:
        if given is None:
            del os.environ[_VARIABLE]
        else:
            os.environ[_VARIABLE] = given
