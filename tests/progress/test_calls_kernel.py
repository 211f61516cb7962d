"""Calls counted by the kernel of this machine, where it lets us."""

import ctypes
import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from autocap.job.processes import ProcessId, identify
from autocap.progress.calls import uprobe
from autocap.progress.calls.counter import CallCounter
from autocap.progress.calls.host import Function, Host, mapped_file
from autocap.progress.calls.target import CallsUnavailable, CallTarget
from autocap.records import StepReading
from tests.doubles.waiting import eventually

LABS = CallTarget(library="libc.so", symbol="labs", what="call of labs", is_iteration=True)
# Calls it as often as a line says, in the thread that it names, and says how often it did so in all.
JOB = """
import ctypes, sys, threading
labs, made = ctypes.CDLL(None).labs, 0
print(labs(-1) * 0, flush=True)
for line in sys.stdin:
    where, times = line.split()
    def call():
        for _ in range(int(times)): labs(1)
    if where == "thread":
        other = threading.Thread(target=call); other.start(); other.join()
    else:
        call()
    made += int(times)
    print(made, flush=True)
"""
# Counts the calls in a process until it is killed.
COUNTER = """
import sys, time
from autocap.job.processes import identify
from autocap.progress.calls.counter import CallCounter
from autocap.progress.calls.target import CallTarget
counter = CallCounter(CallTarget(library="libc.so", symbol="labs", is_iteration=True))
counter.watch(identify(int(sys.argv[1])))
print(counter.trouble, flush=True)
time.sleep(60)
"""


def refusal() -> str | None:
    try:
        Host(LABS).rehearse()
    except CallsUnavailable as error:
        return str(error)
    return None


@pytest.fixture(scope="module")
def kernel() -> None:
    """One that counts calls; whether it does is tried in the process that runs these tests."""
    why = refusal()
    if why is not None:
        pytest.skip(f"no calls can be counted here: {why}")


needs_kernel = pytest.mark.usefixtures("kernel")


class KnownCost(Host):
    """A call costs 2 us."""

    def function(self, pid: int) -> Function | None:
        found = super().function(pid)
        return None if found is None else replace(found, cost_s=2e-6)


class Job:
    def __init__(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-S", "-c", JOB], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.heard()
        identity = identify(self.process.pid)
        self.identity: ProcessId = identity

    def heard(self) -> int:
        return int(self.process.stdout.readline())

    def call(self, times: int, where: str = "main") -> int:
        """How often it has called in all."""
        self.process.stdin.write(f"{where} {times}\n")
        self.process.stdin.flush()
        return self.heard()

    def first_bytes(self) -> bytes:
        """Of the function, in its memory."""
        address = ctypes.cast(ctypes.CDLL(None).labs, ctypes.c_void_p).value or 0
        ours, its = (self._base(pid) for pid in (os.getpid(), self.process.pid))
        with Path(f"/proc/{self.process.pid}/mem").open("rb") as memory:
            memory.seek(address - ours + its)
            return memory.read(4)

    @staticmethod
    def _base(pid: int) -> int:
        mapped = mapped_file(pid, LABS)
        return int(mapped.addresses.partition("-")[0], 16)


@pytest.fixture
def job() -> Iterator[Job]:
    one = Job()
    yield one
    one.process.kill()
    one.process.communicate()


@needs_kernel
def test_every_call_is_counted_and_stamped(job: Job) -> None:
    ahead_s = 0.0
    with CallCounter(LABS, now=lambda: time.monotonic() + ahead_s) as counter:
        counter.watch(job.identity)
        assert counter.trouble is None
        ahead_s = 1.1  # by then it is known that it is called rarely
        begun_s = time.monotonic()
        for times in (1, 2, 50, 2000):  # more than the ring holds
            made = job.call(times)
            reading = counter.read(0.0)
            assert reading == StepReading(count=made, t_s=pytest.approx(time.monotonic(), abs=5.0), of_calls=True)
            assert reading.t_s >= begun_s
            begun_s = reading.t_s
        job.call(5, "thread")  # it makes few calls and ends: it is not watched
        assert counter.read(0.0) == reading


@needs_kernel
def test_the_times_of_the_newest_calls_are_known_in_their_order(job: Job) -> None:
    with closing(Host(LABS)) as host:
        function = host.function(job.process.pid)
        calls = host.open(job.process.pid, function)
        with closing(calls):
            assert calls.after(0) == []
            begun_s = time.monotonic()
            job.call(5)
            stamps_s = calls.after(2) or []
            assert len(stamps_s) == 3
            assert begun_s < stamps_s[0] < stamps_s[1] < stamps_s[2] == (calls.last() or (0, 0.0))[1]
            made = job.call(2000)
            assert calls.after(5) is None
            assert len(calls.after(made - 1000) or []) == 1000
            assert calls.after(made) == []


@needs_kernel
def test_calls_that_repeat_are_put_together(job: Job) -> None:
    ahead_s = 0.0
    launches = replace(LABS, is_iteration=False)
    with CallCounter(launches, now=lambda: time.monotonic() + ahead_s) as counter:
        counter.watch(job.identity)
        ahead_s = 1.1
        readings = []
        for _ in range(60):
            job.call(20)
            readings.append(counter.read(0.0))
        last = readings[-1]
        assert readings[0] is None
        assert last.count == pytest.approx(60, abs=3)


@needs_kernel
def test_what_is_suspended_leaves_the_job_as_it_was_and_goes_on_later(job: Job) -> None:
    plain, ahead_s = job.first_bytes(), 0.0
    with CallCounter(LABS, KnownCost(LABS), now=lambda: time.monotonic() + ahead_s) as counter:
        counter.watch(job.identity)
        job.call(1500)
        ahead_s = 1.0
        counter.read(0.0)
        assert counter.remarks[0].startswith("counting the calls of labs takes 0.")
        ahead_s = 0.0
        counter.need(needed=False)
        suspended = counter.read(0.0)
        assert suspended.suspended
        eventually(lambda: job.first_bytes() == plain)
        job.call(7)
        counter.need(needed=True)
        counter.read(0.0)
        job.call(1)
        again = counter.read(0.0)
        job.call(3)
        more = counter.read(0.0)
        assert (again.count, more.count) == (suspended.count, suspended.count + 3)


@needs_kernel
def test_what_is_counted_is_as_often_as_it_may_be(job: Job) -> None:
    with CallCounter(LABS, pause=lambda _: job.call(5000) and None) as counter:
        counter.watch(job.identity)
        assert counter.hopeless
        assert "labs is called 250000 times a second, which to count would take " in (counter.trouble or "")


@pytest.mark.slow
@needs_kernel
def test_after_sigkill_of_the_counter_the_job_is_as_it_was(job: Job) -> None:
    before = job.first_bytes()
    counter = subprocess.Popen([sys.executable, "-c", COUNTER, str(job.process.pid)], stdout=subprocess.PIPE, text=True)
    assert counter.stdout.readline() == "None\n"
    assert job.first_bytes() != before
    counter.send_signal(signal.SIGKILL)
    counter.communicate()
    eventually(lambda: job.first_bytes() == before)
    assert job.call(3) == 3


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EACCES, "the kernel does not let autocap count calls (Permission denied); run it as root or with CAP_"),
        (errno.EPERM, "the kernel does not let autocap count calls (Operation not permitted); run it as root or with "),
        (errno.ENOSYS, "perf_event_open is switched off here (Function not implemented); run autocap outside"),
        (errno.EMFILE, "a descriptor a thread of the job is needed (Too many open files); raise the limit: ulimit -n"),
        (errno.EINVAL, "the kernel cannot stop at that function's first instruction (Invalid argument); choose"),
        (errno.ENOSPC, "the calls cannot be counted: perf_event_open: No space left on device"),
    ],
)
def test_each_refusal_of_the_kernel_says_what_helps(number: int, said: str) -> None:
    assert str(uprobe.refused(number)).startswith(said)
