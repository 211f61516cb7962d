"""Real jobs for tests: small process trees, what can be seen of them from outside, and what a test has started; and a
moment in which this process can open no further file."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from autocap.job.processes import ProcessId, identify, tree
from tests.doubles import warm


def children() -> set[int]:
    """The PIDs of all that runs below us, but for those that wait to be forked."""
    me = identify(os.getpid())
    assert me is not None
    return {each.pid for each in tree(me)} - {os.getpid(), *warm.WAITING}


@contextmanager
def no_descriptors() -> Iterator[None]:
    """The limit on open files is lowered to those that are open, and what is free below it is taken."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    taken: list[int] = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, before[1]))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)
        for fd in taken:
            os.close(fd)


BUSY = "while True: pass"
SLEEPING = "import time; time.sleep(600)"
PARENT = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"


@contextlib.contextmanager
def job(code):
    """A Python process in a session of its own; killed at the end, with all that it started."""
    child = subprocess.Popen([sys.executable, "-S", "-c", code], start_new_session=True)
    try:
        yield identify(child.pid)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def state(process: ProcessId) -> str:
    """The letter of /proc/PID/stat; T is stopped."""
    text = Path(f"/proc/{process.pid}/stat").read_text()
    return text[text.rindex(")") + 2]


def cpu_s(process: ProcessId) -> float:
    """Time that all threads spent on a CPU so far, from schedstat."""
    return _schedstat_s(process, 0)


def waited_s(process: ProcessId) -> float:
    """Time that all threads could have run, but waited for a CPU."""
    return _schedstat_s(process, 1)


def _schedstat_s(process: ProcessId, field: int) -> float:
    tasks = Path(f"/proc/{process.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[field]) for task in tasks) * 1e-9


def has_a_working_child(root: ProcessId) -> bool:
    """Whether the one child is past its exec: until then the parent waits for it in a way that no signal interrupts."""
    children = tree(root)[1:]
    return len(children) == 1 and cpu_s(children[0]) > 0.02


def stops_seen(process: ProcessId, seconds=0.3) -> int:
    """How often, out of a look every 2 ms, the process was found stopped."""
    end_s, seen = time.monotonic() + seconds, 0
    while time.monotonic() < end_s:
        seen += state(process) == "T"
        time.sleep(0.002)
    return seen
