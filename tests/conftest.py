"""What holds for every test and the processes that it starts; before any test loads numpy."""

import atexit
import fcntl
import gc
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

# With more threads than free cores they spin while they wait for each other, and the suite takes many times as long.
for _library in ("OPENBLAS", "OMP", "MKL"):
    os.environ.setdefault(f"{_library}_NUM_THREADS", "1")

# A fault of ours that becomes a sentence is to be seen with its traceback.
os.environ["AUTOCAP_DEBUG"] = "1"

# What is written to no terminal is as wide as it needs to be; a worker of several has the width of a terminal.
os.environ.pop("COLUMNS", None)

# Nobody's own settings: those of whoever runs the tests are theirs. (Under sudo their home counts instead.)
os.environ["XDG_CONFIG_HOME"] = os.path.join(os.path.dirname(__file__), "no-settings")

# Nor what they remember of jobs: a place of this process's own, made when something is remembered.
os.environ["XDG_STATE_HOME"] = os.path.join(tempfile.gettempdir(), f"autocap-tests-{os.getpid()}")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# Nor whoever would set limits for them on this machine.
os.environ["AUTOCAP_HELPER"] = os.path.join(os.path.dirname(__file__), "no-helper")
os.environ["ZEUSD_SOCK_PATH"] = os.path.join(os.path.dirname(__file__), "no-zeusd")

# Hundreds of processes import autocap: compiled once, not by each of them, even where Python is told to leave no trace.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Started in the background of a shell, or by nohup, a process ignores these, and so would every job that a test starts.
for _signal in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(_signal) is signal.SIG_IGN:
        signal.signal(_signal, signal.default_int_handler if _signal is signal.SIGINT else signal.SIG_DFL)

import pytest  # noqa: E402
from hypothesis import HealthCheck, settings  # noqa: E402 - hypothesis may load numpy

# The same examples each time, so that a test that passes here passes everywhere. On a busy machine generating them
# takes long, which says nothing of the code.
settings.register_profile(
    "autocap",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("autocap")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without looking for garbage: what is collected stays to the end. Looking through all of it again and
    again took two fifths of the time that every worker needs before its first test, and some of that of every test."""
    gc.disable()
    try:
        with _compiled_once():
            yield
        gc.freeze()
    finally:
        gc.enable()


@contextmanager
def _compiled_once() -> Iterator[None]:
    """Where nothing is compiled yet, the first of several workers does it and the others wait: each of them would
    compile all of it, which takes three times as long as the collection itself."""
    if (Path(__file__).parent / "workloads" / "__pycache__").exists():  # the last that is collected
        yield
        return
    with open(__file__, "rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            fcntl.flock(lock, fcntl.LOCK_SH)
        yield
